//! A private redis-server, on a free port and a Unix socket, killed when dropped.

use std::{
    collections::BTreeMap,
    net::TcpListener,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        OnceLock,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, Instant},
};

use redis::{AsyncConnectionConfig, Cmd, Value, aio::MultiplexedConnection};
use redlatch::{Client, ClientBuilder};

pub struct Redis {
    child: Child,
    port: u16,
    dir: PathBuf,
}

impl Redis {
    pub fn start() -> Self {
        Self::with(&[])
    }

    /// Further command-line options.
    pub fn with(options: &[&str]) -> Self {
        // Another process may take the port between the probe and the start: then the server ends at once.
        for _ in 0..20 {
            let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
            if let Some(server) = Self::try_start(port, options) {
                return server;
            }
        }
        panic!("redis-server does not start: is it installed?");
    }

    /// At a given port, for a server that comes back.
    pub fn try_start(port: u16, options: &[&str]) -> Option<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir = std::env::temp_dir().join(format!("redlatch-{}-{number}-{port}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let binary = std::env::var("REDLATCH_REDIS_SERVER").unwrap_or_else(|_| "redis-server".to_owned());
        let child = Command::new(&binary)
            .args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"])
            .args(["--dir", &dir.display().to_string(), "--unixsocket", &dir.join("s").display().to_string()])
            .args(debug_option(&binary))
            .args(options)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("redis-server is installed");
        let mut server = Self { child, port, dir };
        let end = Instant::now() + Duration::from_secs(10);
        while Instant::now() < end {
            if server.child.try_wait().unwrap().is_some() {
                return None;
            }
            let up = redis::Client::open(server.url()).unwrap().get_connection_with_timeout(Duration::from_millis(200));
            let up = up.and_then(|mut con| redis::cmd("INFO").arg("server").query::<String>(&mut con));
            if up.as_ref().is_ok_and(|info| !info.contains(&format!("process_id:{}\r\n", server.pid()))) {
                return None; // somebody else's server has that port
            }
            if up.is_ok() || up.is_err_and(|e| e.to_string().contains("auth") || e.to_string().contains("NOAUTH")) {
                return Some(server);
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        None
    }

    /// Kills the server, as `kill -9` does, and starts an empty one at the same port.
    pub fn kill_and_restart(self) -> Self {
        let port = self.port;
        drop(self);
        Self::try_start(port, &[]).expect("the port was ours a moment ago")
    }

    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.port)
    }

    /// Where the server keeps its files.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    pub fn unix_url(&self) -> String {
        format!("unix://{}", self.dir.join("s").display())
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub async fn client(&self) -> Client {
        self.builder().connect().await.unwrap()
    }

    pub fn builder(&self) -> ClientBuilder {
        Client::builder().url(self.url())
    }

    /// A connection of the test's own.
    pub async fn probe(&self) -> Probe {
        Probe::at(self.url()).await
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.pid().to_string()]).status().unwrap();
        assert!(status.success());
    }
}

/// From 7.0 on `DEBUG` has to be allowed; before, the option is unknown.
fn debug_option(binary: &str) -> &'static [&'static str] {
    static OLD: OnceLock<bool> = OnceLock::new();
    let is_old = || {
        let version = Command::new(binary).arg("--version").output().expect("redis-server is installed").stdout;
        String::from_utf8_lossy(&version).contains("v=6.")
    };
    if *OLD.get_or_init(is_old) { &[] } else { &["--enable-debug-command", "yes"] }
}

impl Drop for Redis {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

/// Looks into Redis from outside.
#[derive(Clone)]
pub struct Probe {
    con: MultiplexedConnection,
}

impl Probe {
    pub async fn at(url: String) -> Self {
        // A paused or loading server is looked at, too: it may take its time.
        let config = AsyncConnectionConfig::new().set_response_timeout(None);
        let client = redis::Client::open(url).unwrap();
        Self { con: client.get_multiplexed_async_connection_with_config(&config).await.unwrap() }
    }

    pub async fn exists(&self, key: &str) -> bool {
        self.ask::<u64>(&["EXISTS", key]).await == 1
    }

    /// Every key with its content as the server would dump it, and whether it expires.
    pub async fn everything(&self) -> BTreeMap<String, (Vec<u8>, bool)> {
        let mut all = BTreeMap::new();
        for key in self.keys().await {
            let dump = self.ask(&["DUMP", &key]).await;
            let expires = self.ask::<i64>(&["PTTL", &key]).await >= 0;
            all.insert(key, (dump, expires));
        }
        all
    }

    pub async fn ask<T: redis::FromRedisValue>(&self, command: &[&str]) -> T {
        let mut cmd = Cmd::new();
        for part in command {
            cmd.arg(*part);
        }
        cmd.query_async(&mut self.con.clone()).await.unwrap()
    }

    pub async fn run(&self, command: &[&str]) {
        self.ask::<Value>(command).await;
    }

    /// `CLIENT PAUSE` for all, and how long the key had to live at that moment.
    pub async fn pttl_and_pause(&self, key: &str, ms: u64) -> Duration {
        let mut both = redis::pipe();
        both.cmd("PTTL").arg(key).cmd("CLIENT").arg("PAUSE").arg(ms).ignore();
        let (left,): (u64,) = both.query_async(&mut self.con.clone()).await.unwrap();
        Duration::from_millis(left)
    }

    pub async fn keys(&self) -> Vec<String> {
        let mut keys: Vec<String> = self.ask(&["KEYS", "*"]).await;
        keys.sort();
        keys
    }

    pub async fn channels(&self) -> Vec<String> {
        self.ask(&["PUBSUB", "CHANNELS"]).await
    }

    /// How often clients, not scripts, have called these commands.
    pub async fn calls(&self, commands: &[&str]) -> u64 {
        let stats: String = self.ask(&["INFO", "commandstats"]).await;
        stats
            .lines()
            .filter_map(|line| line.strip_prefix("cmdstat_")?.split_once(':'))
            .filter(|(name, _)| commands.contains(name))
            .map(|(_, rest)| rest.strip_prefix("calls=").unwrap().split(',').next().unwrap().parse::<u64>().unwrap())
            .sum()
    }
}
