//! `redlatch run` on a terminal, under a shell with job control.

#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends at the first surprise")]

mod support;

use std::{
    ffi::OsStr,
    fs::File,
    io::{Read, Write},
    os::{fd::OwnedFd, unix::ffi::OsStrExt},
    process::{Child, Command},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Instant,
};

use redis::Commands;
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use support::{SOON, Server, eventually};

/// A shell on a terminal of its own, as a user has it.
struct Session {
    shell: Child,
    keyboard: File,
    screen: Receiver<Vec<u8>>,
    seen: String,
}

impl Session {
    fn start(server: &Server, script: &str) -> Self {
        Session::start_with(server, script, &[])
    }

    fn start_with(server: &Server, script: &str, environment: &[(&str, &str)]) -> Self {
        let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
        grantpt(&ours).unwrap();
        unlockpt(&ours).unwrap();
        let path = ptsname(&ours, Vec::new()).unwrap();
        let theirs = File::options().read(true).write(true).open(OsStr::from_bytes(path.to_bytes())).unwrap();
        let mut shell = Command::new("setsid");
        shell.args(["--ctty", "--wait", "bash", "--norc", "-m", "-c", script]);
        shell.env("REDLATCH", env!("CARGO_BIN_EXE_redlatch")).env("REDIS_URL", server.url());
        shell.env("TERM", "xterm").env_remove("NO_COLOR").envs(environment.iter().copied());
        shell.stdin(theirs.try_clone().unwrap()).stdout(theirs.try_clone().unwrap()).stderr(theirs);
        let shell = shell.spawn().unwrap();
        let keyboard = File::from(ours.try_clone().unwrap());
        Session { shell, keyboard, screen: chunks(ours), seen: String::new() }
    }

    fn press(&mut self, keys: &str) {
        self.keyboard.write_all(keys.as_bytes()).unwrap();
    }

    /// Waits until the text is on the screen and passes over it.
    fn expect(&mut self, text: &str) -> String {
        let until = Instant::now() + SOON;
        loop {
            if let Some(at) = self.seen.find(text) {
                let rest = self.seen.split_off(at + text.len());
                return std::mem::replace(&mut self.seen, rest);
            }
            let left = until.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(chunk) => self.seen.push_str(&String::from_utf8_lossy(&chunk)),
                Err(_) => panic!("no {text:?} on the screen, but:\n{}", self.seen),
            }
        }
    }

    fn code(&mut self) -> i32 {
        let shell = &mut self.shell;
        eventually("the end of the shell", || shell.try_wait().unwrap()).code().unwrap()
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}

fn chunks(screen: OwnedFd) -> Receiver<Vec<u8>> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut screen = File::from(screen);
        let mut buffer = [0; 4096];
        // Ends with an error when nobody has the other side open.
        while let Ok(length @ 1..) = screen.read(&mut buffer) {
            if sender.send(buffer[..length].to_vec()).is_err() {
                return;
            }
        }
    });
    receiver
}

#[test]
fn command_is_in_the_foreground_and_can_read_the_terminal() {
    let server = Server::start();
    let script = r#""$REDLATCH" run -v job -- sh -c 'echo up; read line; echo "got <$line>"'; echo "shell saw $?""#;
    let mut session = Session::start(&server, script);
    session.expect("up");
    session.press("hello\n");
    session.expect("got <hello>");
    session.expect("shell saw 0");
    assert_eq!(session.code(), 0);
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn a_command_that_reads_first_of_all_gets_the_terminal_in_time() {
    let server = Server::start();
    let script = r#"for i in $(seq 20); do "$REDLATCH" run job -- head -n 1 || exit; done; echo "all read""#;
    let mut session = Session::start(&server, script);
    for round in 0..20 {
        session.press(&format!("line {round}\n"));
        // Once from the terminal's echo, once from the command.
        session.expect(&format!("line {round}\r\n"));
        session.expect(&format!("line {round}\r\n"));
    }
    session.expect("all read");
}

#[test]
fn interrupt_key_reaches_the_command_once_and_the_shell_gets_its_terminal_back() {
    let server = Server::start();
    let script = r#"
        "$REDLATCH" run job -- sh -c '
            exec 3<&0; trap "" INT; cat <&3 >/dev/null & trap "echo interrupted" INT
            echo up; while kill -0 $! 2>/dev/null; do wait $!; done; true'
        echo "shell saw $?"; read line; echo "shell got <$line>""#;
    let mut session = Session::start(&server, script);
    session.expect("up");
    session.press("\x03");
    session.expect("interrupted");
    session.press("\x04");
    let between = session.expect("shell saw ");
    assert!(!between.contains("interrupted"), "{between}");
    session.press("more\n");
    session.expect("shell got <more>");
    assert_eq!(session.code(), 0);
}

#[test]
fn interrupt_key_while_waiting_ends_the_wait() {
    let server = Server::start();
    server.hold_as_another("job", SOON);
    let mut session = Session::start(&server, r#""$REDLATCH" run -v job -- echo ran; echo "shell saw $?""#);
    session.expect("held by another, waiting");
    session.press("\x03");
    let between = session.expect("shell saw 130");
    assert!(!between.contains("ran\r\n"), "{between}");
}

#[test]
fn suspend_key_stops_command_and_redlatch_and_fg_continues_both() {
    let server = Server::start();
    let script = r#"
        "$REDLATCH" run -v --watchdog 60s job -- bash -c 'echo up; read line; echo "got <$line>"; exit 7'
        echo "shell has it: $?"; read line; fg >/dev/null; echo "shell saw $?""#;
    let mut session = Session::start(&server, script);
    session.expect("up");
    session.press("\x1a");
    session.expect("suspended");
    // 128 + SIGSTOP
    session.expect("shell has it: 147");
    assert_eq!(server.holders("job").len(), 1);
    session.press("on\n");
    session.expect("resumed");
    session.press("hello\n");
    session.expect("got <hello>");
    session.expect("shell saw 7");
    assert_eq!(server.keys(), Vec::<String>::new());
}

#[test]
fn suspend_key_works_with_a_stdin_that_is_no_terminal() {
    let server = Server::start();
    let script = r#"
        "$REDLATCH" run -v --watchdog 60s job -- bash -c 'echo up; exec sleep 1000' </dev/null
        echo "shell has it: $?"; read line; fg >/dev/null; echo "shell saw $?""#;
    let mut session = Session::start(&server, script);
    session.expect("up");
    session.press("\x1a");
    session.expect("shell has it: 147");
    session.press("on\n");
    session.expect("resumed");
    session.press("\x03");
    session.expect("shell saw 130");
}

#[test]
fn a_command_whose_lock_ran_out_during_a_suspension_does_not_go_on() {
    let server = Server::start();
    let script = r#"
        "$REDLATCH" run -v --watchdog 600ms job -- bash -c 'echo up; read line; echo "went on"'
        echo "shell has it: $?"; read line; fg >/dev/null; echo "shell saw $?""#;
    let mut session = Session::start(&server, script);
    session.expect("up");
    session.press("\x1a");
    session.expect("shell has it: 147");
    eventually("the lock to run out", || server.keys().is_empty().then_some(()));
    session.press("on\n");
    let between = session.expect("shell saw 116");
    assert!(!between.contains("went on"), "{between}");
    assert!(between.contains("is lost"), "{between}");
}

#[test]
fn a_run_in_the_background_leaves_the_terminal_to_the_shell() {
    let server = Server::start();
    let script = r#"
        "$REDLATCH" run job -- sh -c 'echo up; exec sleep 1000' &
        read line; echo "shell got <$line>"; kill %1; wait %1; echo "shell saw $?""#;
    let mut session = Session::start(&server, script);
    session.expect("up");
    session.press("mine\n");
    session.expect("shell got <mine>");
    session.expect("shell saw 143");
}

#[test]
fn colour_is_for_terminals_and_only_without_no_color() {
    let server = Server::start();
    let _: () = server.connect().set("job", "text").unwrap();
    let script = r#""$REDLATCH" run job -- true; echo "shell saw $?""#;
    let coloured = Session::start(&server, script).expect("shell saw 117");
    assert!(coloured.contains("\x1b[1;31merror:"), "{coloured:?}");
    let plain = Session::start_with(&server, script, &[("NO_COLOR", "1")]).expect("shell saw 117");
    assert!(plain.contains("redlatch: error:"), "{plain:?}");
    let plain = Session::start_with(&server, script, &[("TERM", "dumb")]).expect("shell saw 117");
    assert!(plain.contains("redlatch: error:"), "{plain:?}");
}
