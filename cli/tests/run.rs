//! `redlatch run` as a script sees it: exit codes, output, waiting, exclusion.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends at the first surprise")]

mod support;

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use assert_cmd::assert::OutputAssertExt;
use rustix::process::{Signal, kill_process};
use serde_json::Value;
use support::{ANOTHER, Running, SOON, Server, eventually, has_ended, redlatch};

#[test]
fn exit_code_of_the_command_is_passed_on() {
    let server = Server::start();
    for code in [0, 1, 7, 255] {
        let script = format!("exit {code}");
        server.redlatch(["run", "job", "--", "sh", "-c", &script]).assert().code(code);
        assert_eq!(server.keys(), Vec::<String>::new(), "after code {code}");
    }
}

#[test]
fn command_ended_by_a_signal_gives_128_plus_its_number() {
    let server = Server::start();
    // 40 is a real-time signal, which has no name.
    for signal in [1, 6, 9, 15, 40] {
        let script = format!("kill -{signal} $$");
        let code = 128 + signal;
        server.redlatch(["run", "job", "--", "bash", "-c", &script]).assert().code(code);
        assert_eq!(server.keys(), Vec::<String>::new(), "after signal {signal}");
    }
}

#[test]
fn stdout_carries_only_the_output_of_the_command() {
    let server = Server::start();
    for options in [&["-v"][..], &["--json"], &["--json", "-v"], &[]] {
        let run = ["run"].iter().chain(options).chain(&["job", "--", "printf", "one\\ntwo"]);
        server.redlatch(run).assert().success().stdout("one\ntwo");
    }
}

#[test]
fn without_options_a_good_run_says_nothing() {
    let server = Server::start();
    server.redlatch(["run", "job", "--", "true"]).assert().success().stdout("").stderr("");
}

#[test]
fn verbose_tells_every_step_on_stderr() {
    let server = Server::start();
    let run = server.redlatch(["run", "-v", "job", "--", "sh", "-c", "exit 3"]).assert().code(3);
    let stderr = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    for step in ["acquired after", "command started", "ended with code 3", "released", "exit code 3"] {
        assert!(stderr.contains(step), "{step:?} is missing in:\n{stderr}");
    }
    assert!(stderr.lines().all(|line| line.starts_with("redlatch: ")), "{stderr}");
}

#[test]
fn every_json_line_parses_and_has_time_lock_and_event() {
    let server = Server::start();
    let mut run = server.run(&["job"], &["sh", "-c", "exit 7"]);
    assert_eq!(run.code(), 7);
    let events: Vec<Value> = run.rest_of_stderr().iter().map(|line| serde_json::from_str(line).unwrap()).collect();
    let names: Vec<&str> = events.iter().map(|event| event["event"].as_str().unwrap()).collect();
    assert_eq!(names, ["acquired", "started", "exited", "released", "finished"]);
    let times: Vec<&str> = events.iter().map(|event| event["ts"].as_str().unwrap()).collect();
    assert!(times.is_sorted(), "{times:?}");
    assert!(times.iter().all(|ts| ts.len() == "2026-01-01T00:00:00.000Z".len() && ts.ends_with('Z')));
    assert!(events.iter().all(|event| event["lock"] == "job"));
    assert_eq!(events[0]["renewed"], true);
    assert_eq!(events[0]["lease_ms"], 10_000);
    assert_eq!(events[2]["code"], 7);
    assert_eq!(events[4]["exit_code"], 7);
}

#[test]
fn command_knows_name_and_owner_of_the_lock() {
    let server = Server::start();
    let mut run = server.run(&["job"], &["sh", "-c", "echo $REDLATCH_NAME; echo $REDLATCH_OWNER; cat"]);
    assert_eq!(run.line(), "job");
    let owner = run.line();
    assert_eq!(server.holders("job"), [owner.as_str()]);
    assert_eq!(run.event("acquired")["owner"], owner.as_str());
    run.stdin = None;
    assert_eq!(run.code(), 0);
}

#[test]
fn command_reads_stdin_of_redlatch() {
    let server = Server::start();
    let mut run = assert_cmd::Command::from_std(server.redlatch(["run", "job", "--", "cat"]));
    run.timeout(SOON).write_stdin("in\n").assert().success().stdout("in\n");
}

#[test]
fn a_lock_held_by_another_is_not_waited_for_with_no_wait() {
    let server = Server::start();
    server.hold_as_another("job", Duration::from_secs(60));
    for options in [&["--no-wait"][..], &["--wait", "0"]] {
        let run = ["run"].iter().chain(options).chain(&["job", "--", "echo", "ran"]);
        let started = Instant::now();
        let run = server.redlatch(run).assert().code(115).stdout("");
        assert!(started.elapsed() < Duration::from_secs(5), "{options:?}");
        let stderr = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
        assert!(stderr.contains("\"job\" is held by another"), "{stderr}");
    }
    assert_eq!(server.holders("job"), [ANOTHER]);
}

#[test]
fn a_bounded_wait_ends_with_its_own_code_and_in_time() {
    let server = Server::start();
    server.hold_as_another("job", Duration::from_secs(60));
    let started = Instant::now();
    let mut run = server.run(&["--wait", "700ms", "job"], &["echo", "ran"]);
    assert_eq!(run.event("waiting")["wait_ms"], 700);
    assert_eq!(run.code(), 115);
    let took = started.elapsed();
    assert!((700..4_000).contains(&took.as_millis()), "{took:?}");
    assert!(run.event("not_obtained")["waited_ms"].as_u64().unwrap() >= 700);
    assert_eq!(run.rest_of_stdout(), Vec::<String>::new());
    assert_eq!(server.holders("job"), [ANOTHER]);
    assert_eq!(server.channels(), Vec::<String>::new());
}

#[test]
fn a_wait_of_the_greatest_duration_waits_without_limit() {
    let server = Server::start();
    server.hold_as_another("job", Duration::from_secs(60));
    let mut run = server.run(&["--wait", "18446744073709551615s", "job"], &["echo", "ran"]);
    run.event("waiting");
    server.release_as_another("job");
    assert_eq!(run.line(), "ran");
    assert_eq!(run.code(), 0);
}

#[test]
fn a_waiting_redlatch_runs_when_the_lock_is_released() {
    let server = Server::start();
    server.hold_as_another("job", Duration::from_secs(60));
    let mut run = server.run(&["job"], &["echo", "ran"]);
    assert_eq!(run.event("waiting")["wait_ms"], Value::Null);
    server.release_as_another("job");
    assert_eq!(run.line(), "ran");
    assert_eq!(run.code(), 0);
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn a_second_redlatch_starts_its_command_only_after_the_first_has_released() {
    let server = Server::start();
    let mut first = server.run(&["job"], &["sh", "-c", "echo first; cat"]);
    assert_eq!(first.line(), "first");
    let mut second = server.run(&["job"], &["echo", "second"]);
    second.event("waiting");
    server.redlatch(["run", "--no-wait", "job", "--", "echo", "third"]).assert().code(115).stdout("");
    first.stdin = None;
    assert_eq!(first.code(), 0);
    assert_eq!(second.line(), "second");
    assert_eq!(second.code(), 0);
}

#[test]
fn many_at_once_exclude_each_other() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let taken = dir.path().join("taken");
    // mkdir fails if another command is between its mkdir and its rmdir.
    let script = r#"mkdir "$0" || exit 99; ls "$0" && rmdir "$0""#;
    let command = ["sh", "-c", script, taken.to_str().unwrap()];
    let mut runs: Vec<Running> = (0..12).map(|_| server.run(&["job"], &command)).collect();
    let codes: Vec<i32> = runs.iter_mut().map(Running::code).collect();
    assert_eq!(codes, [0; 12]);
    assert!(!fs::exists(&taken).unwrap());
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn other_names_do_not_wait_for_each_other() {
    let server = Server::start();
    let first = server.run(&["one"], &["sh", "-c", "echo first; cat"]);
    assert_eq!(first.line(), "first");
    server.redlatch(["run", "--no-wait", "two", "--", "echo", "ran"]).assert().success().stdout("ran\n");
}

#[test]
fn a_watchdog_hold_outlives_its_timeout() {
    let server = Server::start();
    let mut run = server.run(&["--watchdog", "600ms", "job"], &["sh", "-c", "echo up; cat"]);
    assert_eq!(run.line(), "up");
    let owner = server.holders("job");
    let until = Instant::now() + Duration::from_millis(2_000);
    eventually("three timeouts to pass", || {
        assert_eq!(server.holders("job"), owner);
        (Instant::now() > until).then_some(())
    });
    run.stdin = None;
    assert_eq!(run.code(), 0);
}

#[test]
fn a_command_that_does_not_exist_gives_127_and_leaves_no_key() {
    let server = Server::start();
    let run = server.redlatch(["run", "job", "--", "no-such-command-anywhere"]).assert().code(127);
    let stderr = String::from_utf8_lossy(&run.get_output().stderr).into_owned();
    assert!(stderr.contains("no-such-command-anywhere"), "{stderr}");
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn a_command_that_cannot_be_run_gives_126_and_leaves_no_key() {
    let server = Server::start();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("not-executable");
    fs::write(&file, "#!/bin/sh\n").unwrap();
    for path in [file.as_path(), dir.path()] {
        server.redlatch(["run", "job", "--", path.to_str().unwrap()]).assert().code(126);
        assert_eq!(server.keys(), Vec::<String>::new());
    }
}

#[test]
fn what_a_command_leaves_in_the_background_does_not_hold_the_lock() {
    let server = Server::start();
    let mut run = server.run(&["job"], &["sh", "-c", "sleep 1000 & echo $!"]);
    let left_behind = run.line_pid();
    assert_eq!(run.code(), 0);
    assert_eq!(server.keys(), Vec::<String>::new());
    assert!(!has_ended(left_behind));
    kill_process(left_behind, Signal::KILL).unwrap();
}

#[test]
fn help_lists_every_exit_code_and_only_what_exists() {
    let long = redlatch().args(["run", "--help"]).env("REDIS_URL", "redis://:geheim@db").assert().success();
    let help = String::from_utf8_lossy(&long.get_output().stdout).into_owned();
    for word in ["128+N", "115", "116", "117", "125", "126", "127", "--wait", "--no-wait", "--lease", "REDIS_URL"] {
        assert!(help.contains(word), "{word} is missing in:\n{help}");
    }
    assert!(!help.contains("geheim"), "{help}");
    let top = redlatch().arg("--help").env("REDIS_URL", "redis://:geheim@db").assert().success();
    let help = String::from_utf8_lossy(&top.get_output().stdout).into_owned();
    assert!(help.contains("run"), "{help}");
    assert!(!help.contains("geheim"), "{help}");
    for later in ["inspect", "unlock", "doctor", "--kind"] {
        assert!(!help.contains(later), "{later} is not there yet:\n{help}");
    }
}

#[test]
fn version_is_the_one_of_the_package() {
    let version = format!("redlatch {}\n", env!("CARGO_PKG_VERSION"));
    Command::new(env!("CARGO_BIN_EXE_redlatch")).arg("--version").assert().success().stdout(version);
}
