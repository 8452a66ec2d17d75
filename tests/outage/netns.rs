//! Two network namespaces, a Redis in one and clients in the other, and a third one between them that forwards.
//!
//! A cut makes the one in the middle swallow everything. Neither end notices: no link goes down, nothing is refused, what is
//! sent is lost without a word and sent again by TCP, later and later. So a command that the client has given up may still
//! arrive seconds after the way is open again.

use std::{
    fs::File,
    os::fd::AsFd,
    process::Command,
    sync::atomic::{AtomicU32, Ordering},
    thread,
};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::support::redis::Redis;

const SERVER: &str = "10.213.1.1";
const CLIENT: &str = "10.213.2.1";

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
    _server: Namespace,
    client: Namespace,
    between: Namespace,
}

impl Network {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let prefix = format!("redlatch-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let [server, client, between] =
            ["server", "client", "between"].map(|role| Namespace::new(format!("{prefix}-{role}")));
        between.run(|| {
            let forwarding = std::fs::write("/proc/sys/net/ipv4/ip_forward", "1");
            assert!(forwarding.is_ok(), "/proc/sys/net must be writable: {forwarding:?}");
        });
        for (end, wire, address) in [(&server, "to-server", SERVER), (&client, "to-client", CLIENT)] {
            let gateway = format!("{}.254", address.rsplit_once('.').unwrap().0);
            let (end, middle) = (&*end.name, &*between.name);
            ip(&["-n", middle, "link", "add", wire, "type", "veth", "peer", "name", "wire", "netns", end]);
            ip(&["-n", middle, "address", "add", &format!("{gateway}/24"), "dev", wire]);
            ip(&["-n", middle, "link", "set", wire, "up"]);
            ip(&["-n", end, "address", "add", &format!("{address}/24"), "dev", "wire"]);
            ip(&["-n", end, "link", "set", "wire", "up"]);
            ip(&["-n", end, "route", "add", "default", "via", &gateway]);
        }
        let redis = server.run(|| Redis::with(&["--bind", "0.0.0.0", "--protected-mode", "no"]));
        Self { redis, _server: server, client, between }
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
        self.swallow("add");
    }

    pub(crate) fn heal(&self) {
        self.swallow("del");
    }

    fn swallow(&self, verb: &str) {
        for address in [SERVER, CLIENT] {
            ip(&["-n", &self.between.name, "route", verb, "blackhole", address]);
        }
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
