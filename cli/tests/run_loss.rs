//! `redlatch run` when the lock is lost: the command is stopped, with all it started.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends at the first surprise")]

mod support;

use std::time::{Duration, Instant};

use redis::Commands;
use rustix::process::{Pid, Signal};
use support::{ANOTHER, Running, Server, ends_soon, eventually, has_ended};

/// A loss is found at the next renewal, a third of this.
const WATCHDOG: [&str; 2] = ["--watchdog", "900ms"];

/// Starts a process and another below it, writes both ids, and waits for them.
const FAMILY: &str = "sh -c 'echo $$; sleep 1000 & echo $!; wait' & wait";

/// The same, and none of them hears TERM.
const DEAF_FAMILY: &str = "trap '' TERM; sh -c 'echo $$; sleep 1000 & echo $!; wait' & wait";

fn start(server: &Server, options: &[&str], script: &str) -> (Running, [Pid; 2]) {
    let options: Vec<&str> = WATCHDOG.iter().chain(options).copied().chain(["job"]).collect();
    let run = server.run(&options, &["sh", "-c", script]);
    let family = [run.line_pid(), run.line_pid()];
    (run, family)
}

fn delete(server: &Server) {
    let deleted: i32 = server.connect().del("job").unwrap();
    assert_eq!(deleted, 1, "the lock was held");
}

#[test]
fn loss_ends_the_whole_group_with_its_own_code() {
    let server = Server::start();
    let (mut run, family) = start(&server, &[], FAMILY);
    delete(&server);
    let deleted = Instant::now();
    run.event("lost");
    assert_eq!(run.event("stopping")["signal"], "SIGTERM");
    assert_eq!(run.event("exited")["signal"], "SIGTERM");
    assert_eq!(run.code(), 116);
    assert!(deleted.elapsed() < Duration::from_secs(4), "TERM was enough, no KILL: {:?}", deleted.elapsed());
    assert_eq!(run.event("finished")["exit_code"], 116);
    assert!(family.into_iter().all(has_ended), "ended before redlatch");
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn loss_is_told_without_any_option() {
    let server = Server::start();
    let run = ["run", "--watchdog", "900ms", "job", "--", "sh", "-c", "echo up; exec sleep 1000"];
    let mut run = Running::start(server.redlatch(run));
    assert_eq!(run.line(), "up");
    delete(&server);
    assert_eq!(run.code(), 116);
    assert_eq!(run.rest_of_stderr(), ["redlatch: error: lock \"job\" is lost"]);
}

#[test]
fn a_group_that_does_not_hear_term_is_killed_after_the_grace_period() {
    let server = Server::start();
    let (mut run, family) = start(&server, &["--kill-after", "400ms"], DEAF_FAMILY);
    delete(&server);
    assert_eq!(run.event("stopping")["signal"], "SIGTERM");
    let told = Instant::now();
    assert_eq!(run.event("stopping")["signal"], "SIGKILL");
    assert!(told.elapsed() > Duration::from_millis(300), "{:?}", told.elapsed());
    assert_eq!(run.event("exited")["signal"], "SIGKILL");
    assert_eq!(run.code(), 116);
    family.into_iter().for_each(ends_soon);
}

#[test]
fn a_grandchild_that_does_not_hear_term_is_killed_though_the_command_has_ended() {
    let server = Server::start();
    let script = "sh -c 'trap \"\" TERM; echo $$; sleep 1000 & echo $!; wait' & wait";
    let (mut run, family) = start(&server, &["--kill-after", "400ms"], script);
    delete(&server);
    assert_eq!(run.event("exited")["signal"], "SIGTERM");
    assert_eq!(run.event("stopping")["signal"], "SIGKILL");
    assert_eq!(run.code(), 116);
    family.into_iter().for_each(ends_soon);
}

#[test]
fn without_a_grace_period_kill_comes_at_once() {
    let server = Server::start();
    let (mut run, family) = start(&server, &["--kill-after", "0"], DEAF_FAMILY);
    delete(&server);
    assert_eq!(run.event("stopping")["signal"], "SIGTERM");
    let told = Instant::now();
    assert_eq!(run.code(), 116);
    assert!(told.elapsed() < Duration::from_secs(2), "{:?}", told.elapsed());
    family.into_iter().for_each(ends_soon);
}

#[test]
fn a_stopped_command_is_ended_too() {
    let server = Server::start();
    let (mut run, family) = start(&server, &["--kill-after", "1000s"], FAMILY);
    for process in family {
        rustix::process::kill_process(process, Signal::STOP).unwrap();
    }
    delete(&server);
    assert_eq!(run.code(), 116);
    family.into_iter().for_each(ends_soon);
}

#[test]
fn a_command_that_ends_well_after_the_loss_still_gives_the_code_of_the_loss() {
    let server = Server::start();
    let script = "trap 'exit 0' TERM; echo $$; echo $$; while :; do sleep 1000 & wait $!; done";
    let (mut run, _) = start(&server, &[], script);
    delete(&server);
    assert_eq!(run.event("exited")["code"], 0);
    assert_eq!(run.code(), 116);
}

#[test]
fn a_command_that_ends_between_the_loss_and_its_discovery_gives_the_code_of_the_loss() {
    let server = Server::start();
    // No renewal comes within this test: the release is the first to find out.
    let mut run = server.run(&["--watchdog", "600s", "job"], &["sh", "-c", "echo up; cat"]);
    assert_eq!(run.line(), "up");
    delete(&server);
    run.stdin = None;
    assert_eq!(run.event("exited")["code"], 0);
    run.event("lost");
    assert_eq!(run.code(), 116);
}

#[test]
fn signals_are_passed_on_after_the_loss_too() {
    let server = Server::start();
    let script =
        "trap '' TERM; trap 'echo usr1; exit 0' USR1; echo $$; echo $$; while :; do sleep 1000 & wait $!; done";
    let (mut run, _) = start(&server, &["--kill-after", "1000s"], script);
    delete(&server);
    run.event("stopping");
    run.signal(Signal::USR1);
    assert_eq!(run.line(), "usr1");
    assert_eq!(run.code(), 116);
}

#[test]
fn a_lease_without_renewal_is_lost_at_its_end() {
    let server = Server::start();
    let mut run = server.run(&["--lease", "800ms", "job"], &["sh", "-c", "echo up; exec sleep 1000"]);
    assert_eq!(run.line(), "up");
    let acquired = run.event("acquired");
    assert_eq!((&acquired["renewed"], &acquired["lease_ms"]), (&false.into(), &800.into()));
    let started = Instant::now();
    run.event("lost");
    assert!(started.elapsed() < Duration::from_millis(1_500), "{:?}", started.elapsed());
    assert_eq!(run.code(), 116);
}

#[test]
fn a_lease_that_is_long_enough_changes_nothing() {
    let server = Server::start();
    let mut run = server.run(&["--lease", "60s", "job"], &["sh", "-c", "echo up; cat; exit 7"]);
    assert_eq!(run.line(), "up");
    let left: i64 = server.connect().pttl("job").unwrap();
    assert!((50_000..=60_000).contains(&left), "{left}");
    run.stdin = None;
    assert_eq!(run.code(), 7);
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn the_hold_of_the_next_owner_is_left_alone() {
    let server = Server::start();
    let (mut run, _) = start(&server, &[], FAMILY);
    delete(&server);
    server.hold_as_another("job", Duration::from_secs(60));
    assert_eq!(run.code(), 116);
    assert_eq!(server.holders("job"), [ANOTHER]);
    let left: i64 = server.connect().pttl("job").unwrap();
    assert!(left > 10_000, "{left}");
}

#[test]
fn a_server_that_falls_silent_costs_the_lock_by_the_end_of_its_lease() {
    let server = Server::start();
    let (mut run, family) = start(&server, &[], FAMILY);
    server.signal(Signal::STOP);
    let silent = Instant::now();
    run.event("lost");
    // The lease of 900 ms, and the way of the line to here on a busy machine.
    let took = silent.elapsed();
    assert!(took < Duration::from_millis(1_200), "{took:?}");
    family.into_iter().for_each(ends_soon);
    assert_eq!(run.code(), 116);
    server.signal(Signal::CONT);
    eventually("the key to expire", || server.keys().is_empty().then_some(()));
}

#[test]
fn kill_9_of_redlatch_frees_the_lock_within_its_lease() {
    let server = Server::start();
    let mut run = server.run(&["--watchdog", "1500ms", "job"], &["sh", "-c", "echo up; cat"]);
    assert_eq!(run.line(), "up");
    run.signal(Signal::KILL);
    let killed = Instant::now();
    assert_eq!(run.status().code(), None);
    assert_eq!(server.holders("job").len(), 1, "nobody has released it");
    eventually("the key to expire", || server.keys().is_empty().then_some(()));
    assert!(killed.elapsed() < Duration::from_millis(2_500), "{:?}", killed.elapsed());
    // The `cat` is on its own now; the end of its stdin ends it.
    run.stdin = None;
}

#[test]
fn by_default_others_wait_ten_seconds_at_most_for_a_killed_redlatch() {
    let server = Server::start();
    let run = server.run(&["job"], &["sh", "-c", "echo up; cat"]);
    assert_eq!(run.line(), "up");
    let left: i64 = server.connect().pttl("job").unwrap();
    assert!((1..=10_000).contains(&left), "{left}");
}
