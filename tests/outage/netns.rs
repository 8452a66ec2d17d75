//! Two network namespaces joined by a link that can be cut: a Redis in one, clients in the other.
//!
//! A cut takes the server's end of the link down. The client's end keeps its address and its routes, so that what it sends
//! is lost without a word, as on a broken network: no reset, no "unreachable".

use std::{
    fs::File,
    os::fd::AsFd,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::support::redis::Redis;

const SERVER: &str = "10.213.0.1";
const CLIENT: &str = "10.213.0.2";
/// The link's name at both ends.
const WIRE: &str = "wire";

/// Deleted when dropped; what runs in it lives on until it ends.
struct Namespace {
    name: String,
}

impl Namespace {
    fn new(name: String) -> Self {
        ip(&["netns", "add", &name]);
        let made = Self { name };
        ip(&["-n", &made.name, "link", "set", "lo", "up"]);
        made
    }

    /// Runs `work` in a thread of its own, whose sockets and child processes belong to the namespace.
    fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let inside = || {
            let file = File::open(format!("/run/netns/{}", self.name)).unwrap();
            move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network)).unwrap();
            work()
        };
        thread::scope(|scope| scope.spawn(inside).join()).unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// See the module.
pub(crate) struct Network {
    // In this order: the server ends before its namespace is deleted.
    redis: Redis,
    server: Namespace,
    client: Namespace,
}

impl Network {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("redlatch-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let server = Namespace::new(format!("{prefix}-server"));
        let client = Namespace::new(format!("{prefix}-client"));
        let ends = [WIRE, "type", "veth", "peer", "name", WIRE, "netns", &client.name];
        ip(&[&["-n", &server.name, "link", "add", "name"], ends.as_slice()].concat());
        for (namespace, address) in [(&server, SERVER), (&client, CLIENT)] {
            ip(&["-n", &namespace.name, "address", "add", &format!("{address}/24"), "dev", WIRE]);
            ip(&["-n", &namespace.name, "link", "set", WIRE, "up"]);
        }
        let redis = server.run(|| Redis::with(&["--bind", "0.0.0.0", "--protected-mode", "no"]));
        Self { redis, server, client }
    }

    /// Reached through its Unix socket the server is beside us: no cut comes between.
    pub(crate) fn redis(&self) -> &Redis {
        &self.redis
    }

    /// The server's address on the far side of the link.
    pub(crate) fn url(&self) -> String {
        format!("redis://{SERVER}:{}", self.redis.port())
    }

    /// Runs `work` on the client's side of the link.
    pub(crate) fn on_client_side<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        self.client.run(work)
    }

    pub(crate) fn cut(&self) {
        ip(&["-n", &self.server.name, "link", "set", WIRE, "down"]);
    }

    pub(crate) fn heal(&self) {
        ip(&["-n", &self.server.name, "link", "set", WIRE, "up"]);
    }

    /// How many connections of the calling thread's namespace have sent what nobody has acknowledged.
    pub(crate) fn unacknowledged() -> usize {
        queues("/proc/thread-self/net/tcp", 0)
    }

    /// How many connections have sent what the server has not read.
    pub(crate) fn unread(&self) -> usize {
        queues(&format!("/proc/{}/net/tcp", self.redis.pid()), 1)
    }
}

/// How many established connections in a table of `/proc` have something in their send queue (0) or receive queue (1).
fn queues(table: &str, which: usize) -> usize {
    let text = std::fs::read_to_string(table).unwrap();
    let is_waiting = |line: &&str| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        fields[3] == "01" && u64::from_str_radix(fields[4].split(':').nth(which).unwrap(), 16).unwrap() > 0
    };
    text.lines().skip(1).filter(is_waiting).count()
}

fn ip(arguments: &[&str]) {
    let output = Command::new("ip").args(arguments).output().expect("`ip` of iproute2 is needed: install iproute2");
    assert!(
        output.status.success(),
        "`ip {}` failed: {}; network namespaces need root (CAP_NET_ADMIN and CAP_SYS_ADMIN) and a kernel with them",
        arguments.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
}
