//! A private redis-server, what is in it and what is published on it.

use std::{
    collections::BTreeMap,
    fmt::Debug,
    net::TcpListener,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use redis::{Connection, FromRedisValue, RedisError, Value, cmd};
use uuid::Uuid;

use crate::{
    connection::Invocation,
    owner::{Holder, OwnerId},
    scripts::ALL,
};

/// The n-th owner of one client.
pub(super) fn owner(n: i64) -> Holder {
    OwnerId::with_thread(Uuid::from_u128(7), n).expect("a free id").alone()
}

pub(super) fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Killed when dropped.
pub(super) struct Server {
    child: Child,
    port: u16,
    con: Connection,
    ear: Connection,
}

/// What a key is and holds; of its expiry only whether there is one.
#[derive(Debug, PartialEq)]
pub(super) struct Content {
    pub(super) value: Value,
    pub(super) expires: bool,
}

impl Server {
    pub(super) fn start() -> Self {
        let binary = std::env::var("REDLATCH_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        // Another process may take the port between the probe and the start: then the server ends at once.
        for _ in 0..20 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            let mut child = Command::new(&binary)
                .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
                .args(["--dir", &std::env::temp_dir().display().to_string()])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("redis-server is installed");
            let end = Instant::now() + Duration::from_secs(10);
            while Instant::now() < end && child.try_wait().unwrap().is_none() {
                if let (Ok(con), Ok(ear)) = (connect(port, child.id()), connect(port, child.id())) {
                    let mut server = Self { child, port, con, ear };
                    server.load();
                    return server;
                }
                std::thread::sleep(Duration::from_millis(5));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("redis-server does not start: is it installed?");
    }

    fn load(&mut self) {
        for script in ALL {
            cmd("SCRIPT").arg("LOAD").arg(script.source).exec(&mut self.con).unwrap();
        }
        let listen = cmd("PSUBSCRIBE").arg("*").get_packed_command();
        self.ear.send_packed_command(&listen).unwrap();
        self.ear.recv_response().unwrap();
    }

    /// From now on the tests' commands are those of a user, with the password `x`.
    pub(super) fn become_user(&mut self, name: &str) {
        self.con = connect(self.port, self.child.id()).unwrap();
        self.run_words(&["AUTH", name, "x"]);
    }

    pub(super) fn try_call(&mut self, call: &Invocation) -> Result<Value, RedisError> {
        call.evalsha.query(&mut self.con)
    }

    pub(super) fn call(&mut self, call: &Invocation) -> Value {
        self.try_call(call).expect("the script runs")
    }

    pub(super) fn ask<T: FromRedisValue>(&mut self, words: &[&str]) -> T {
        let mut command = cmd(words[0]);
        words[1..].iter().for_each(|word| {
            command.arg(word);
        });
        command.query(&mut self.con).unwrap_or_else(|e| panic!("{words:?}: {e}"))
    }

    pub(super) fn run_words(&mut self, words: &[&str]) {
        self.ask::<Value>(words);
    }

    /// The server's clock.
    pub(super) fn now(&mut self) -> i64 {
        let (seconds, micros): (i64, i64) = self.ask(&["TIME"]);
        seconds * 1000 + micros / 1000
    }

    /// No room for anything more.
    pub(super) fn fill(&mut self) {
        self.run_words(&["CONFIG", "SET", "maxmemory", "1"]);
        assert_refused(cmd("SET").arg("probe").arg(1).exec(&mut self.con), "OOM");
    }

    /// All that was published since the last look: channel and payload.
    pub(super) fn heard(&mut self) -> Vec<(String, String)> {
        self.run_words(&["PUBLISH", "so far", ""]);
        let mut heard = Vec::new();
        loop {
            let message = self.ear.recv_response().expect("a message");
            let parts: Vec<String> = redis::from_redis_value(message).expect("four texts");
            let [_, _, channel, payload] = parts.try_into().expect("of a pattern");
            if channel == "so far" {
                return heard;
            }
            heard.push((channel, payload));
        }
    }

    /// Every key.
    pub(super) fn contents(&mut self) -> BTreeMap<String, Content> {
        let keys: Vec<String> = self.ask(&["KEYS", "*"]);
        keys.into_iter()
            .map(|key| {
                let kind: String = self.ask(&["TYPE", &key]);
                let value = match kind.as_str() {
                    "hash" => Value::Array(self.ask(&["HGETALL", &key])),
                    "list" => self.ask(&["LRANGE", &key, "0", "-1"]),
                    "zset" => self.ask(&["ZRANGE", &key, "0", "-1", "WITHSCORES"]),
                    _ => self.ask(&["GET", &key]),
                };
                let expires = self.ask::<i64>(&["PTTL", &key]) >= 0;
                (key, Content { value, expires })
            })
            .collect()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Refuses a server that is not this process.
fn connect(port: u16, process: u32) -> Result<Connection, RedisError> {
    let mut con = redis::Client::open(format!("redis://127.0.0.1:{port}"))?.get_connection()?;
    con.set_read_timeout(Some(Duration::from_secs(10)))?;
    let info: String = cmd("INFO").arg("server").query(&mut con)?;
    match info.lines().any(|line| line == format!("process_id:{process}")) {
        true => Ok(con),
        false => Err((redis::ErrorKind::Io, "another server has the port").into()),
    }
}

/// By that error: Redis 6.2 puts it into another one.
#[track_caller]
pub(super) fn assert_refused<T: Debug>(outcome: Result<T, RedisError>, error: &str) {
    let text = outcome.expect_err("an error").to_string();
    assert!(text.contains(error), "{text}");
}

#[track_caller]
pub(super) fn assert_near(actual: i64, expected: i64) {
    assert!((actual - expected).abs() <= 250, "{actual} is not about {expected}");
}
