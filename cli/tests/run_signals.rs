//! `redlatch run` and signals: passed on to the command, or the end of the wait.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends at the first surprise")]

mod support;

use std::{os::unix::process::CommandExt, process::Command, time::Duration};

use rustix::process::Signal;
use support::{ANOTHER, Running, Server, ends_soon, eventually};

const PASSED_ON: [(Signal, &str); 7] = [
    (Signal::HUP, "HUP"),
    (Signal::INT, "INT"),
    (Signal::QUIT, "QUIT"),
    (Signal::TERM, "TERM"),
    (Signal::USR1, "USR1"),
    (Signal::USR2, "USR2"),
    (Signal::ALARM, "ALRM"),
];

/// A shell that tells of every signal and ends with its stdin. It waits for a `cat` that hears none of them: a shell's
/// `wait` returns after a trap has run, its `read` may miss one.
fn telling_script() -> String {
    let names = PASSED_ON.map(|(_, name)| name).join(" ");
    let traps: String = PASSED_ON.iter().map(|(_, name)| format!("trap 'echo {name}' {name}; ")).collect();
    format!(
        "exec 3<&0; trap '' {names}; cat <&3 & {traps} echo up; \
         while kill -0 $! 2>/dev/null; do wait $!; done; true"
    )
}

#[test]
fn every_signal_reaches_the_command_and_the_lock_is_held_on() {
    let server = Server::start();
    let mut run = server.run(&["job"], &["sh", "-c", &telling_script()]);
    assert_eq!(run.line(), "up");
    let owner = server.holders("job");
    for (signal, name) in PASSED_ON {
        run.signal(signal);
        assert_eq!(run.line(), name);
        let event = run.event("signal");
        assert_eq!(event["signal"], format!("SIG{name}"));
        assert_eq!(event["number"], signal.as_raw());
        assert_eq!(event["forwarded"], true);
    }
    assert_eq!(server.holders("job"), owner);
    run.stdin = None;
    assert_eq!(run.code(), 0);
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn a_signal_reaches_the_whole_group() {
    let server = Server::start();
    for (signal, number) in [(Signal::TERM, 15), (Signal::HUP, 1), (Signal::USR1, 10)] {
        let script = "sh -c 'echo $$; sleep 1000 & echo $!; wait' & wait";
        let mut run = server.run(&["job"], &["sh", "-c", script]);
        let family = [run.line_pid(), run.line_pid()];
        run.signal(signal);
        assert_eq!(run.code(), 128 + number);
        family.into_iter().for_each(ends_soon);
        assert_eq!(server.keys(), Vec::<String>::new());
    }
}

#[test]
fn a_stopped_command_hears_term() {
    let server = Server::start();
    let mut run = server.run(&["job"], &["sh", "-c", "echo $$; exec sleep 1000"]);
    let command = run.line_pid();
    rustix::process::kill_process(command, Signal::STOP).unwrap();
    run.signal(Signal::TERM);
    assert_eq!(run.code(), 143);
}

#[test]
fn stopping_the_command_alone_keeps_lock_and_redlatch() {
    let server = Server::start();
    let mut run = server.run(&["--watchdog", "600ms", "job"], &["sh", "-c", "echo $$; cat"]);
    let command = run.line_pid();
    let owner = server.holders("job");
    rustix::process::kill_process(command, Signal::STOP).unwrap();
    let until = std::time::Instant::now() + Duration::from_millis(1_500);
    eventually("two watchdog timeouts to pass", || {
        assert_eq!(server.holders("job"), owner);
        (std::time::Instant::now() > until).then_some(())
    });
    rustix::process::kill_process(command, Signal::CONT).unwrap();
    run.stdin = None;
    assert_eq!(run.code(), 0);
}

#[test]
fn a_signal_while_waiting_ends_the_wait_and_leaves_nothing() {
    let server = Server::start();
    server.hold_as_another("job", Duration::from_secs(60));
    for (signal, name) in PASSED_ON {
        let mut run = server.run(&["job"], &["echo", "ran"]);
        run.event("waiting");
        run.signal(signal);
        assert_eq!(run.event("signal")["forwarded"], false);
        assert_eq!(run.code(), 128 + signal.as_raw(), "{name}");
        assert_eq!(run.rest_of_stdout(), Vec::<String>::new());
    }
    assert_eq!(server.holders("job"), [ANOTHER]);
    assert_eq!(server.keys(), ["job"]);
    eventually("the last subscription to end", || server.channels().is_empty().then_some(()));
}

#[test]
fn a_signal_at_the_moment_of_the_grant_leaves_nothing() {
    let server = Server::start();
    for round in 0..40 {
        server.hold_as_another("job", Duration::from_secs(60));
        let mut run = server.run(&["job"], &["sleep", "1000"]);
        run.event("waiting");
        // Both on their way at once; which one is first changes from round to round.
        std::thread::scope(|scope| {
            let release = scope.spawn(|| server.release_as_another("job"));
            std::thread::sleep(Duration::from_micros(round * 100));
            run.signal(Signal::TERM);
            release.join().unwrap();
        });
        assert_eq!(run.code(), 143, "round {round}");
        assert_eq!(server.keys(), Vec::<String>::new(), "round {round}");
    }
    eventually("the last subscription to end", || server.channels().is_empty().then_some(()));
}

#[test]
fn ignored_signals_stay_ignored_as_with_nohup() {
    let server = Server::start();
    let mut nohup = Command::new("nohup");
    nohup.arg(env!("CARGO_BIN_EXE_redlatch")).env("REDIS_URL", server.url());
    nohup.args(["run", "--json", "job", "--", "sh", "-c", "echo up; cat; grep SigIgn /proc/$$/status"]);
    let mut run = Running::start(nohup);
    assert_eq!(run.line(), "up");
    run.signal(Signal::HUP);
    // Answered in order: had HUP been passed on, this one would find nobody.
    run.signal(Signal::WINCH);
    run.stdin = None;
    let mask = run.line();
    let mask = u64::from_str_radix(mask.split_whitespace().last().unwrap(), 16).unwrap();
    assert_eq!(mask & 1, 1, "the command inherits it");
    assert_eq!(run.code(), 0);
}

#[test]
fn command_runs_in_a_process_group_of_its_own() {
    let server = Server::start();
    let mut redlatch = server.redlatch(["run", "--json", "job", "--"]);
    redlatch.args(["sh", "-c", "echo $$; cut -d' ' -f5 /proc/$$/stat; cat"]).process_group(0);
    let mut run = Running::start(redlatch);
    let (leader, group) = (run.line(), run.line());
    assert_eq!(leader, group);
    assert_eq!(run.event("started")["pid"].to_string(), leader);
    assert_ne!(run.pid().as_raw_pid().to_string(), group);
    run.stdin = None;
    assert_eq!(run.code(), 0);
}
