//! A process that is stopped for longer than its lease, and then goes on.

use std::{
    future::poll_fn,
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use redlatch::{Client, Error};
use tokio::{sync::oneshot, task::yield_now};

use crate::{
    Kept,
    support::{
        eventually, forgotten,
        redis::{Probe, Redis},
        secs,
    },
    take,
};

/// The same test in a child: where it connects to, and how it holds.
const CHILD: &str = "REDLATCH_TEST_HOLDER";
const LEASE: Duration = Duration::from_millis(600);

#[tokio::test]
async fn a_process_stopped_beyond_its_lease_knows_at_its_first_look_that_the_hold_is_lost() {
    if let Ok(settings) = std::env::var(CHILD) {
        return holder(&settings).await;
    }
    for kept in ["watched", "fixed"] {
        let redis = Redis::start();
        let (client, probe) = (redis.client().await, redis.probe().await);
        let mut child = Holder::start(&redis, kept);
        assert_eq!(child.says(), "held");
        child.signal("STOP");
        eventually(secs(2), "its lease ends", || async { !probe.exists("orders").await }).await;
        let guard = client.lock("orders").try_lock().await.unwrap().expect("free");
        // Waits in the pipe until the child goes on: the first thing it sees then.
        child.tell("look");
        child.signal("CONT");
        assert_eq!(child.says(), "valid: false");
        assert_eq!(child.says(), "protected work polled again: false, completed: None");
        assert_eq!(child.says(), "release: lost");
        child.ends_well();
        assert!(guard.is_valid() && held_by(&probe, &guard.owner().to_string()).await, "{kept}: left alone");
        guard.release().await.unwrap();
        forgotten(&client).await;
    }
}

async fn held_by(probe: &Probe, owner: &str) -> bool {
    probe.ask::<Vec<String>>(&["HGETALL", "orders"]).await == [owner, "1"]
}

/// What the child does. It reports on lines that begin with `@`.
async fn holder(settings: &str) {
    let (kept, url) = settings.split_once(' ').unwrap();
    let client = Client::builder().url(url).watchdog_timeout(LEASE).connect().await.unwrap();
    let kept = if kept == "fixed" { Kept::Fixed(LEASE) } else { Kept::Watched };
    let guard = Arc::new(take(&client, "orders", kept).await);

    // Work that is woken by the word to look, and by nothing else.
    let (wake, mut woken) = oneshot::channel::<()>();
    let polls = Arc::new(AtomicUsize::new(0));
    let work = tokio::spawn({
        let (guard, polls) = (guard.clone(), polls.clone());
        async move {
            let work = poll_fn(move |cx| {
                polls.fetch_add(1, Ordering::SeqCst);
                std::pin::Pin::new(&mut woken).poll(cx).map(|_| ())
            });
            guard.protect(work).await
        }
    });
    while polls.load(Ordering::SeqCst) == 0 {
        yield_now().await;
    }
    say("held");
    // Blocks this thread, which is the runtime's only one: nothing else runs before the look.
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    assert_eq!(line, "look\n");
    say(&format!("valid: {}", guard.is_valid()));
    let before = polls.load(Ordering::SeqCst);
    wake.send(()).unwrap();
    let lost = work.await.unwrap().expect_err("the hold is lost");
    let again = polls.load(Ordering::SeqCst) > before;
    say(&format!("protected work polled again: {again}, completed: {:?}", lost.completed));
    let guard = Arc::into_inner(guard).unwrap();
    match guard.release().await {
        Err(Error::LeaseLost(_)) => say("release: lost"),
        other => say(&format!("release: {other:?}")),
    }
}

fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    writeln!(out, "\n@{line}").unwrap();
    out.flush().unwrap();
}

struct Holder {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Holder {
    fn start(redis: &Redis, kept: &str) -> Self {
        let name = "stopped::a_process_stopped_beyond_its_lease_knows_at_its_first_look_that_the_hold_is_lost";
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args([name, "--exact", "--nocapture"])
            .env(CHILD, format!("{kept} {}", redis.url()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Self { child, input, output }
    }

    /// The next line of the child's report.
    fn says(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the child ended without a word");
            if let Some(said) = line.strip_prefix('@') {
                return said.trim_end().to_owned();
            }
        }
    }

    fn tell(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([&format!("-{name}"), &pid]).status().unwrap().success());
    }

    fn ends_well(&mut self) {
        assert!(self.child.wait().unwrap().success());
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
