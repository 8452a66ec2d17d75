//! `redlatch run` when the answer of Redis comes late.

#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends at the first surprise")]

mod support;

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use assert_cmd::assert::OutputAssertExt;
use support::{ANOTHER, Running, Server, eventually, redlatch};

/// Stands between redlatch and the server, and can keep the answer to a script back.
struct Proxy {
    port: u16,
    gate: Arc<Gate>,
}

#[derive(Default)]
struct Gate {
    /// `None` until it is closed for the first and only time.
    closed: Mutex<Option<bool>>,
    opened: Condvar,
}

impl Proxy {
    /// No answer to the first script call goes through, nor any after it, until `open`.
    fn start(server: &Server) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let (port, target) = (listener.local_addr().unwrap().port(), server.port);
        let gate = Arc::new(Gate::default());
        let for_all = Arc::clone(&gate);
        thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let server = TcpStream::connect(("127.0.0.1", target)).unwrap();
                let (questions, answers) = (Arc::clone(&for_all), Arc::clone(&for_all));
                let (from, to) = (client.try_clone().unwrap(), server.try_clone().unwrap());
                thread::spawn(move || {
                    copy(from, to, |bytes| {
                        if bytes.windows(7).any(|word| word == b"EVALSHA") {
                            questions.close();
                        }
                    });
                });
                thread::spawn(move || copy(server, client, |_| answers.wait()));
            }
        });
        Proxy { port, gate }
    }

    fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    fn open(&self) {
        *self.gate.closed.lock().unwrap() = Some(false);
        self.gate.opened.notify_all();
    }
}

impl Gate {
    fn close(&self) {
        self.closed.lock().unwrap().get_or_insert(true);
    }

    fn wait(&self) {
        let closed = self.closed.lock().unwrap();
        drop(self.opened.wait_while(closed, |closed| *closed == Some(true)).unwrap());
    }
}

fn copy(mut from: TcpStream, mut to: TcpStream, before_each: impl Fn(&[u8])) {
    let mut buffer = [0; 16 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer) {
        before_each(&buffer[..length]);
        if to.write_all(&buffer[..length]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
}

#[test]
fn a_lock_granted_by_an_answer_that_came_after_its_lease_is_not_held() {
    let server = Server::start();
    // From here on the server knows the script: one call, one answer.
    server.redlatch(["run", "job", "--", "true"]).assert().success();
    let proxy = Proxy::start(&server);
    let mut late = redlatch();
    late.args(["run", "--json", "--lease", "300ms", "--url", &proxy.url(), "job", "--", "echo", "ran"]);
    let mut late = Running::start(late);
    eventually("the lock to be granted", || (!server.keys().is_empty()).then_some(()));
    eventually("its lease to end", || server.keys().is_empty().then_some(()));
    server.hold_as_another("job", Duration::from_secs(60));
    proxy.open();
    late.event("lost");
    assert_eq!(late.code(), 116);
    assert_eq!(late.rest_of_stdout(), Vec::<String>::new(), "the command was not started");
    assert_eq!(server.holders("job"), [ANOTHER]);
}
