//! The scripts of the read/write lock on a private redis-server.

mod acquiring;
mod random;
mod releasing;
mod renewing;

use std::{
    cell::RefCell,
    collections::BTreeMap,
    path::PathBuf,
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU32, Ordering},
    time::{Duration, Instant},
};

use redis::{Cmd, Connection, FromRedisValue, RedisError, Value, cmd};
use uuid::Uuid;

use super::{
    answers::{Acquired, Busy, Granted, Released},
    read_write::{self, Acquire, Names, ReadRelease, WriteRelease},
};
use crate::{
    connection::Invocation,
    keys,
    owner::{Holder, OwnerId, Role},
    topology::Flavour,
};

/// Times are whole seconds, far apart, so that a slow machine does not matter.
fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// What a time to live is when this much was set a moment ago.
#[track_caller]
fn about(left: Option<Duration>, set: Duration) {
    let left = left.expect("it has an expiry");
    assert!(left <= set && left + s(4) > set, "{left:?} is left of {set:?}");
}

fn owner(thread: i64) -> OwnerId {
    OwnerId::with_thread(Uuid::from_u128(0xa), thread).expect("a free id")
}

fn reader(thread: i64) -> Holder {
    Holder { owner: owner(thread), role: Role::Read }
}

fn writer(thread: i64) -> Holder {
    Holder { owner: owner(thread), role: Role::Write }
}

fn fresh() -> Acquired {
    Acquired::Granted(Granted { found: 0, fresh: true, token: None })
}

fn granted(found: u64) -> Acquired {
    Acquired::Granted(Granted { found, fresh: false, token: None })
}

/// Given back, with or without a message.
fn released(found: u64, published: bool) -> Released {
    Released { found, published, untold: false, granted: None, was_free: false }
}

/// Checks who is in the way, and returns when the key ends.
#[track_caller]
fn busy(answer: Acquired, readers: bool) -> Option<Duration> {
    match answer {
        Acquired::Busy(Busy { retry_in, by_readers, place: None }) if by_readers == readers => retry_in,
        other => panic!("{other:?}"),
    }
}

/// A redis-server on a socket of its own, killed when dropped.
struct Server {
    child: Child,
    dir: PathBuf,
    con: RefCell<Connection>,
}

impl Server {
    fn start() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("redlatch-rw-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let socket = dir.join("s");
        let binary = std::env::var("REDLATCH_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let mut child = Command::new(binary)
            .args(["--port", "0", "--save", "", "--appendonly", "no", "--loglevel", "warning"])
            .arg("--dir")
            .arg(&dir)
            .arg("--unixsocket")
            .arg(&socket)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let end = Instant::now() + s(10);
        let con = loop {
            match connect(&socket) {
                Ok(con) => break con,
                Err(e) if Instant::now() > end => {
                    let _ = child.kill();
                    panic!("redis-server does not start: {e}");
                }
                Err(_) => std::thread::sleep(Duration::from_millis(5)),
            }
        };
        Self { child, dir, con: RefCell::new(con) }
    }

    fn ask<T: FromRedisValue>(&self, command: &Cmd) -> T {
        command.query(&mut self.con.borrow_mut()).expect("a command of the test's own")
    }

    fn run(&self, call: &Invocation) -> Result<Value, RedisError> {
        let con = &mut *self.con.borrow_mut();
        match call.evalsha.query(con) {
            Err(e) if e.kind() == redis::ServerErrorKind::NoScript.into() => {
                cmd("SCRIPT").arg("LOAD").arg(call.source).query::<()>(con)?;
                call.evalsha.query(con)
            }
            reply => reply,
        }
    }

    /// How often a command has been executed.
    fn calls(&self, command: &str) -> u64 {
        let info: String = self.ask(cmd("INFO").arg("commandstats"));
        let start = format!("cmdstat_{command}:calls=");
        let count = info.lines().find_map(|line| line.strip_prefix(&start)?.split(',').next()?.parse().ok());
        count.unwrap_or(0)
    }
}

fn connect(socket: &std::path::Path) -> Result<Connection, RedisError> {
    redis::Client::open(format!("unix://{}", socket.display()))?.get_connection()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// One lock, and what is published.
struct Lock {
    name: String,
    channel: String,
    ears: RefCell<Connection>,
    server: Server,
}

impl Lock {
    fn new() -> Self {
        Self::named("orders")
    }

    fn named(name: &str) -> Self {
        let server = Server::start();
        let mut ears = connect(&server.dir.join("s")).expect("it is up");
        cmd("PSUBSCRIBE").arg("*").exec(&mut ears).expect("subscribed");
        Self {
            channel: keys::prefixed("redisson_rwlock", name),
            name: name.to_owned(),
            ears: RefCell::new(ears),
            server,
        }
    }

    fn names(&self) -> Names<'_> {
        Names { key: &self.name, channel: &self.channel }
    }

    fn run(&self, call: &Invocation) -> Value {
        self.server.run(call).expect("the script runs")
    }

    fn read(&self, thread: i64, target: u64, lease: Duration) -> Acquired {
        self.read_asking(&Acquire { owner: owner(thread), target, lease, longest: lease, abandoned: &[] })
    }

    fn read_asking(&self, ask: &Acquire<'_>) -> Acquired {
        let reply = self.run(&read_write::acquire_read(&self.name, ask));
        read_write::read_read_acquired(&self.name, &reply).expect("a known answer")
    }

    fn write(&self, thread: i64, target: u64, lease: Duration) -> Acquired {
        self.write_asking(&Acquire { owner: owner(thread), target, lease, longest: lease, abandoned: &[] })
    }

    fn write_asking(&self, ask: &Acquire<'_>) -> Acquired {
        let reply = self.run(&read_write::acquire_write(&self.name, ask));
        read_write::read_write_acquired(&self.name, &reply).expect("a known answer")
    }

    fn release_read(&self, thread: i64, target: u64, rearm: &[Duration]) -> Released {
        let ask = ReadRelease { owner: owner(thread), target, rearm, strict: false, ended: false };
        let reply = self.run(&read_write::release_read(self.names(), Flavour::Plain, &ask));
        read_write::read_read_released(&self.name, &reply).expect("a known answer")
    }

    fn release_write(&self, thread: i64, target: u64, left: Duration) -> Released {
        let ask = WriteRelease { owner: owner(thread), target, left, strict: false, ended: false };
        let reply = self.run(&read_write::release_write(self.names(), Flavour::Plain, &ask));
        read_write::read_write_released(&self.name, &reply).expect("a known answer")
    }

    /// The hash, with owners by their thread ids.
    fn fields(&self) -> BTreeMap<String, String> {
        let fields: BTreeMap<String, String> = self.server.ask(cmd("HGETALL").arg(&self.name));
        let client = format!("{}:", Uuid::from_u128(0xa));
        fields.into_iter().map(|(field, value)| (field.replace(&client, ""), value)).collect()
    }

    #[track_caller]
    fn assert_fields(&self, expected: &[(&str, &str)]) {
        let expected = expected.iter().map(|(f, v)| ((*f).to_owned(), (*v).to_owned())).collect();
        assert_eq!(self.fields(), expected);
    }

    fn hold_key(&self, thread: i64, number: u64) -> String {
        let start = if self.name.contains('{') { self.name.clone() } else { format!("{{{}}}", self.name) };
        format!("{start}:{}:rwlock_timeout:{number}", owner(thread))
    }

    /// Time to live of a key that has one.
    fn left(&self, key: &str) -> Option<Duration> {
        u64::try_from(self.server.ask::<i64>(cmd("PTTL").arg(key))).ok().map(Duration::from_millis)
    }

    fn lives(&self) -> Option<Duration> {
        self.left(&self.name)
    }

    fn hold_lives(&self, thread: i64, number: u64) -> Option<Duration> {
        self.left(&self.hold_key(thread, number))
    }

    /// As if that hold's own lease were over.
    fn lapse(&self, thread: i64, number: u64) {
        assert_eq!(self.server.ask::<u64>(cmd("DEL").arg(self.hold_key(thread, number))), 1);
    }

    /// All keys of the server.
    fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.server.ask(cmd("KEYS").arg("*"));
        keys.sort();
        keys
    }

    /// The messages since the last call: channel, space, payload.
    fn heard(&self) -> Vec<String> {
        self.server.ask::<()>(cmd("PUBLISH").arg("all heard").arg(""));
        let ears = &mut *self.ears.borrow_mut();
        let mut heard = Vec::new();
        loop {
            let message: Vec<String> = redis::from_redis_value(ears.recv_response().expect("a message")).expect("text");
            let [_, _, channel, payload] = message.as_slice() else { panic!("{message:?}") };
            if channel == "all heard" {
                return heard;
            }
            heard.push(format!("{channel} {payload}"));
        }
    }

    #[track_caller]
    fn assert_heard(&self, payloads: &[&str]) {
        let expected: Vec<String> = payloads.iter().map(|p| format!("{} {p}", self.channel)).collect();
        assert_eq!(self.heard(), expected);
    }
}
