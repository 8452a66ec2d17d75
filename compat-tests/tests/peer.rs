//! The Java peer itself: what the other tests take for granted about it. No Rust client takes part.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use compat_tests::{
    Api, Audit, Failure, JavaError, LockKind, Outcome, Peer, Register, SharedRedis, Source, Trace, built_peer,
    first_overlap, now_us, redisson_version, within,
};
use tokio::task::spawn_blocking;

const BOTH: [Api; 2] = [Api::Async, Api::Sync];

#[tokio::test]
async fn both_apis_act_as_the_thread_they_are_given() -> Outcome {
    let redis = SharedRedis::start().await?;
    let peer = Peer::start(&redis).await?;
    let java = peer.lock("order", 1000);
    for (count, api) in (1..).zip([Api::Async, Api::Sync, Api::Async]) {
        java.through(api).lock().await?;
        assert_eq!(redis.hash("order").await?, [(java.owner(), count.to_string())].into());
        assert_eq!(java.through(api).hold_count().await?, count);
    }
    assert!(java.is_held().await?);
    assert!(!peer.lock("order", 1001).is_held().await?);
    for api in [Api::Sync, Api::Async, Api::Sync] {
        let refused = peer.lock("order", 1001).through(api).unlock().await;
        assert!(refused.as_ref().is_err_and(JavaError::is_not_owner), "{refused:?}");
        java.through(api).unlock().await?;
    }
    assert_eq!(java.ttl().await?, -2);
    peer.exit().await
}

#[tokio::test]
async fn a_call_that_waits_does_not_hold_up_the_others() -> Outcome {
    let redis = SharedRedis::start().await?;
    let peer = Peer::start(&redis).await?;
    let holder = peer.lock("order", 1000);
    for api in BOTH {
        holder.lock().await?;
        let scripts = redis.scripts_run().await?;
        let waiter = peer.lock("order", 1001).through(api);
        let mut waiting = waiter.lock();
        waiter.sleeps(&redis, scripts).await?;
        assert!(holder.is_locked().await?);
        assert!(!waiting.is_answered());
        holder.unlock().await?;
        within(Duration::from_secs(1), "the waiter's grant", waiting).await??;
        waiter.unlock().await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_name_of_any_shape_arrives_as_it_was_given() -> Outcome {
    let redis = SharedRedis::start().await?;
    let peer = Peer::start(&redis).await?;
    for name in ["two words", "a+b%20c", "Straße/✓/𝄞", "line\nbreak", "\"quoted\\\"", "{x}", " "] {
        for api in BOTH {
            peer.lock(name, 1000).through(api).lock().await?;
            assert_eq!(redis.hash(name).await?.len(), 1, "{name:?}");
            peer.lock(name, 1000).through(api).unlock().await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn work_and_poll_report_every_hold_and_no_two_at_one_time() -> Outcome {
    let redis = SharedRedis::start().await?;
    let peer = Peer::start(&redis).await?;
    let until = now_us() + 1_500_000;
    let mut worked = peer.work("order", 4, Duration::from_millis(1), until);
    let polled = peer.poll("order", Duration::from_millis(5), until);
    let first = worked.first_hold().await?;
    let (worked, polled) = (worked.report().await?, polled.report().await?);
    assert_eq!((worked.errors.len(), polled.errors.len()), (0, 0), "{worked:?} {polled:?}");
    assert_eq!(worked.attempts, worked.holds.len() as u64 + 1);
    assert!(polled.attempts >= polled.holds.len() as u64);
    assert!(worked.holds.iter().all(|hold| hold.end_us >= hold.start_us + 1000), "each lasts a millisecond");
    let all = worked.holds.iter().chain(&polled.holds).chain([&first]).copied();
    assert_eq!(first_overlap(all), None);
    Ok(())
}

#[tokio::test]
async fn every_kind_is_the_one_it_is_called() -> Outcome {
    let redis = SharedRedis::start().await?;
    let peer = Peer::start(&redis).await?;
    for kind in LockKind::ALL.into_iter().filter(|kind| kind.is_in_redisson()) {
        for api in BOTH {
            let java = peer.lock_of(kind, kind.word(), 1000).through(api);
            java.lock().await?;
            let field = if kind == LockKind::Write { format!("{}:write", java.owner()) } else { java.owner() };
            assert_eq!(redis.hash(kind.word()).await?.get(&field).map(String::as_str), Some("1"), "{kind}");
            assert_eq!(java.hold_count().await?, 1, "{kind}");
            assert!(java.is_held().await?, "{kind}");
            java.unlock().await?;
            assert_eq!(redis.pttl(kind.word()).await?, -2, "{kind}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_waiting_call_can_be_cancelled_through_either_api() -> Outcome {
    let redis = SharedRedis::start().await?;
    let peer = Peer::start(&redis).await?;
    let holder = peer.lock("order", 1000);
    holder.lock().await?;
    let waiter = peer.lock("order", 1001);
    let limit = Duration::from_secs(1);
    for (api, class) in [(Api::Async, "CancellationException"), (Api::Sync, "InterruptedException")] {
        let scripts = redis.scripts_run().await?;
        let waiter = waiter.through(api);
        let waiting = if api == Api::Sync { waiter.lock_interruptibly() } else { waiter.lock() };
        waiter.sleeps(&redis, scripts).await?;
        let again = peer.call::<bool>("cancel", &["no-such-call"]).await?;
        assert!(!again, "there is no such call");
        assert!(peer.cancel(&waiting).await?, "{api:?}");
        let cancelled = within(limit, "the end of the call", waiting).await?;
        assert!(cancelled.as_ref().is_err_and(|error| error.is_a(class)), "{api:?}: {cancelled:?}");
        // The thread can be used again, and its next call is not interrupted.
        assert!(!waiter.through(Api::Sync).try_lock().await?, "{api:?}");
    }
    holder.unlock().await?;
    Ok(())
}

/// Or no test could trust the register.
#[tokio::test]
async fn a_register_refuses_what_may_not_be() -> Outcome {
    let redis = SharedRedis::start().await?;
    let peer = Peer::start(&redis).await?;
    let audit = |name, mix: &str, register| {
        let mut audit = Audit::new(mix, name, register);
        (audit.workers, audit.turns, audit.longest_hold) = (2, 20, Duration::from_millis(5));
        audit
    };
    let run = async |audits: [&Audit; 2]| -> Outcome<(u64, u64)> {
        let [one, other] = audits.map(|audit| peer.audit(audit));
        let (one, other) = (one.report().await?, other.report().await?);
        assert_eq!((one.errors.len(), other.errors.len()), (0, 0), "{one:?} {other:?}");
        Ok((one.count + other.count, one.refused + other.refused))
    };
    // On one lock all is well; on two, of which each thinks it is alone, writers meet.
    let exclusion = |key: &str| Register::Exclusion(key.into());
    let good = audit("one", "read,write,downgrade", exclusion("good"));
    assert_eq!(run([&good, &good]).await?, (80, 0));
    let wrong = [audit("one", "write", exclusion("bad")), audit("two", "write", exclusion("bad"))];
    assert!(run([&wrong[0], &wrong[1]]).await?.1 > 0, "two writers at one time");
    let readers = [audit("one", "read", exclusion("shared")), audit("two", "read", exclusion("shared"))];
    assert_eq!(run([&readers[0], &readers[1]]).await?, (80, 0));
    if LockKind::Fenced.is_in_redisson() {
        let tokens = |key: &str| Register::Tokens(key.into());
        let good = audit("three", "fenced", tokens("grow"));
        assert_eq!(run([&good, &good]).await?, (80, 0));
        // Two locks count each for itself.
        let wrong = [audit("four", "fenced", tokens("jump")), audit("five", "fenced", tokens("jump"))];
        assert!(run([&wrong[0], &wrong[1]]).await?.1 > 0, "equal tokens");
    }
    Ok(())
}

#[tokio::test]
async fn the_trace_tells_java_from_its_scripts_and_from_us() -> Outcome {
    let redis = SharedRedis::start().await?;
    let peer = Peer::start(&redis).await?;
    peer.lock("warm", 1000).lock().await?;
    let mut trace = Trace::start(&redis).await?;
    peer.lock("order", 1000).lock().await?;
    redis.pttl("order").await?;
    let section = trace.section().await?;
    let by = |source| -> Vec<&str> {
        section.iter().filter(|command| command.source == source).map(|command| command.words[0].as_str()).collect()
    };
    assert!(matches!(by(Source::Java).as_slice(), ["eval" | "evalsha"]), "{section:?}");
    assert_eq!(by(Source::Script), ["exists", "hincrby", "pexpire"]);
    assert_eq!(by(Source::Rust), Vec::<&str>::new());
    assert_eq!(trace.section().await?, []);
    Ok(())
}

#[tokio::test]
async fn kill_9_ends_pending_calls_and_releases_nothing() -> Outcome {
    let redis = SharedRedis::start().await?;
    let peer = Peer::start(&redis).await?;
    peer.lock("order", 1000).lock().await?;
    let waiting = peer.lock("order", 1001).lock();
    peer.kill9()?;
    assert_eq!(waiting.await, Err(JavaError::Gone));
    assert_eq!(redis.hash("order").await?, [(format!("{}:1000", peer.client()), "1".into())].into());
    Ok(())
}

#[tokio::test]
async fn the_peer_ends_with_its_input() -> Outcome {
    let redis = SharedRedis::start().await?;
    let jar = spawn_blocking(|| built_peer(&redisson_version())).await??;
    let mut java = Command::new("java")
        .arg("-jar")
        .arg(jar)
        .arg(redis.url())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    let stdout = java.stdout.take().ok_or_else(|| Failure::new("no stdout"))?;
    let lines = spawn_blocking(move || {
        let mut lines = BufReader::new(stdout).lines();
        let first = lines.next();
        drop(java.stdin.take());
        (first, lines.count(), java.wait())
    });
    let (first, further, ended) = within(Duration::from_secs(30), "the end of the peer", lines).await??;
    assert!(first.is_some_and(|line| line.is_ok_and(|line| line.contains("\"ready\":true"))));
    assert_eq!(further, 0);
    assert!(ended?.success());
    Ok(())
}
