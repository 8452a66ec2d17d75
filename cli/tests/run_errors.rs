//! `redlatch run` with bad settings, bad servers and bad data.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends at the first surprise")]

mod support;

use std::{
    net::TcpListener,
    process::Command,
    time::{Duration, Instant},
};

use assert_cmd::assert::OutputAssertExt;
use redis::Commands;
use rustix::process::Signal;
use support::{Running, Server, eventually, redlatch};

/// Runs to the end and gives code, stdout and stderr.
fn outcome(command: &mut Command) -> (i32, String, String) {
    let output = command.output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

fn assert_error(command: &mut Command, code: i32, words: &[&str]) {
    let (found, stdout, stderr) = outcome(command);
    assert_eq!(found, code, "{stderr}");
    assert_eq!(stdout, "");
    for word in words {
        assert!(stderr.contains(word), "{word:?} is missing in:\n{stderr}");
    }
    assert!(!stderr.contains("geheim"), "the password is shown:\n{stderr}");
    assert!(!stderr.contains("panicked"), "{stderr}");
}

/// A port that was free a moment ago.
fn closed_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

#[test]
fn no_server_is_an_error_that_names_the_setting() {
    let port = closed_port();
    let url = format!("redis://ann:geheim@127.0.0.1:{port}");
    let address = format!("redis://***@127.0.0.1:{port}");
    for options in [&[][..], &["-v"], &["--json"]] {
        let run = ["run"].iter().chain(options).chain(&["job", "--", "echo", "ran"]);
        let words = ["--url (REDIS_URL)", &address];
        assert_error(redlatch().args(run).env("REDIS_URL", &url), 117, &words);
    }
}

#[test]
fn a_wrong_password_is_an_error_that_names_the_setting_and_not_the_password() {
    let server = Server::start_with(Some("right"));
    let port = server.port;
    for user_info in [":geheim", "ann:geheim", "default:geheim"] {
        let url = format!("redis://{user_info}@127.0.0.1:{port}");
        for options in [&[][..], &["-v"], &["--json"]] {
            let run = ["run"].iter().chain(options).chain(&["job", "--", "echo", "ran"]);
            let words = ["--url (REDIS_URL)", "refused the user or the password"];
            assert_error(redlatch().args(run).env("REDIS_URL", &url), 117, &words);
        }
        let run = ["run", "--url", &url, "job", "--", "echo", "ran"];
        assert_error(redlatch().args(run), 117, &["--url (REDIS_URL)"]);
    }
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn a_missing_password_is_an_error_that_names_the_setting() {
    let server = Server::start_with(Some("right"));
    let url = format!("redis://127.0.0.1:{}", server.port);
    let run = ["run", "--url", &url, "job", "--", "echo", "ran"];
    assert_error(redlatch().args(run), 117, &["--url (REDIS_URL)"]);
}

#[test]
fn the_right_password_is_accepted_and_never_shown() {
    let server = Server::start_with(Some("geheim"));
    for options in [&["-v"][..], &["--json"]] {
        let run = ["run"].iter().chain(options).chain(&["job", "--", "true"]);
        let (code, stdout, stderr) = outcome(&mut server.redlatch(run));
        assert_eq!((code, stdout.as_str()), (0, ""), "{stderr}");
        assert!(!stderr.is_empty());
        assert!(!stderr.contains("geheim"), "{stderr}");
    }
}

#[test]
fn a_url_that_is_none_is_a_usage_error_that_names_the_setting() {
    for url in
        ["nonsense", "http://:geheim@127.0.0.1", "redis//:geheim@127.0.0.1", "redis://:geheim@127.0.0.1:port", ""]
    {
        let run = ["run", "--url", url, "job", "--", "echo", "ran"];
        assert_error(redlatch().args(run), 2, &["--url (REDIS_URL)"]);
        let run = ["run", "job", "--", "echo", "ran"];
        assert_error(redlatch().args(run).env("REDIS_URL", url), 2, &["--url (REDIS_URL)"]);
    }
}

#[test]
fn the_option_goes_before_the_environment() {
    let server = Server::start();
    let mut run = redlatch();
    run.args(["run", "--url", &server.url(), "job", "--", "echo", "ran"]).env("REDIS_URL", "redis://127.0.0.1:1");
    run.assert().success().stdout("ran\n");
}

#[test]
fn a_server_that_does_not_answer_ends_the_run() {
    let server = Server::start();
    server.signal(Signal::STOP);
    let started = Instant::now();
    let run = ["run", "--no-wait", "job", "--", "echo", "ran"];
    assert_error(&mut server.redlatch(run), 117, &["--url (REDIS_URL)"]);
    assert!(started.elapsed() < Duration::from_secs(12), "{:?}", started.elapsed());
    server.signal(Signal::CONT);
}

#[test]
fn a_release_that_is_not_confirmed_is_an_error_that_tells_how_the_command_ended() {
    let server = Server::start();
    let run = ["run", "--watchdog", "8s", "job", "--", "sh", "-c", "echo up; cat; exit 7"];
    let mut run = Running::start(server.redlatch(run));
    assert_eq!(run.line(), "up");
    server.signal(Signal::STOP);
    run.stdin = None;
    assert_eq!(run.code(), 117);
    let stderr = run.rest_of_stderr().join("\n");
    for words in ["the command has ended (code 7)", "not confirmed"] {
        assert!(stderr.contains(words), "{words:?} is missing in:\n{stderr}");
    }
    server.signal(Signal::CONT);
    eventually("the end of the lease", || server.keys().is_empty().then_some(()));
}

#[test]
fn a_key_of_another_type_is_refused_and_left_as_it_is() {
    let server = Server::start();
    let _: () = server.connect().set("job", "text").unwrap();
    assert_error(&mut server.redlatch(["run", "job", "--", "echo", "ran"]), 117, &["job"]);
    let value: String = server.connect().get("job").unwrap();
    assert_eq!(value, "text");
}

#[test]
fn arguments_that_make_no_sense_are_usage_errors() {
    let server = Server::start();
    let cases: [(&[&str], &str); 10] = [
        (&[], "Usage"),
        (&["run"], "NAME"),
        (&["run", "job"], "CMD"),
        (&["run", "job", "--"], "CMD"),
        (&["run", "job", "true"], "true"),
        (&["run", "--wait", "1s", "--no-wait", "job", "--", "true"], "--no-wait"),
        (&["run", "--wait", "soon", "job", "--", "true"], "--wait"),
        (&["run", "--lease", "0", "job", "--", "true"], "--lease"),
        (&["run", "--lease", "1s", "--watchdog", "1s", "job", "--", "true"], "--watchdog"),
        (&["ls"], "ls"),
    ];
    for (arguments, word) in cases {
        assert_error(&mut server.redlatch(arguments), 2, &[word]);
    }
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn an_empty_name_is_a_usage_error() {
    let server = Server::start();
    assert_error(&mut server.redlatch(["run", "", "--", "echo", "ran"]), 2, &["name"]);
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn a_lease_beyond_what_redis_can_hold_is_a_usage_error() {
    let server = Server::start();
    let lease = "18446744073709551615s";
    assert_error(&mut server.redlatch(["run", "--lease", lease, "job", "--", "echo", "ran"]), 2, &["lease"]);
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn a_watchdog_that_is_too_short_is_a_usage_error() {
    let server = Server::start();
    let run = ["run", "--watchdog", "1ms", "job", "--", "echo", "ran"];
    assert_error(&mut server.redlatch(run), 2, &["--watchdog"]);
    assert_eq!(server.keys(), Vec::<String>::new());
}
