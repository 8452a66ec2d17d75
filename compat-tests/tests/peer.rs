//! The Java peer itself: what the other tests take for granted about it. No Rust client takes part.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::time::Duration;

use compat_tests::{
    Api, Failure, JavaError, Outcome, Peer, SharedRedis, Source, Trace, built_peer, first_overlap, now_us,
    redisson_version, within,
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
