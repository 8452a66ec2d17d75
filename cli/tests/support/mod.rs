//! A private Redis for a test, and `redlatch` processes run against it.

#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test ends at the first surprise")]

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader, Read},
    net::TcpListener,
    path::Path,
    process::{Child, ChildStdin, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::{Duration, Instant},
};

use redis::{Commands, Connection};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

/// Bound of every wait for an event that must come.
pub(crate) const SOON: Duration = Duration::from_secs(20);

/// A redis-server of its own on a free port, killed on drop.
#[derive(Debug)]
pub(crate) struct Server {
    process: Child,
    pub(crate) port: u16,
    password: Option<String>,
    _dir: TempDir,
}

impl Server {
    pub(crate) fn start() -> Self {
        Server::start_with(None)
    }

    pub(crate) fn start_with(password: Option<&str>) -> Self {
        loop {
            let dir = tempfile::tempdir().unwrap();
            let port = free_port();
            let mut process = spawn_server(dir.path(), port, password);
            if answers(&mut process, port, password) {
                let password = password.map(str::to_owned);
                return Server { process, port, password, _dir: dir };
            }
            // Somebody else took the port between the look and the bind: another one.
        }
    }

    pub(crate) fn url(&self) -> String {
        url(self.port, self.password.as_deref())
    }

    pub(crate) fn connect(&self) -> Connection {
        redis::Client::open(self.url()).unwrap().get_connection().unwrap()
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(pid(&self.process), signal).unwrap();
    }

    /// `redlatch` with this server in the environment.
    pub(crate) fn redlatch<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Command {
        let mut command = redlatch();
        command.args(arguments).env("REDIS_URL", self.url());
        command
    }

    /// `redlatch run --json OPTIONS -- CMD…`, started.
    pub(crate) fn run(&self, options: &[&str], command: &[&str]) -> Running {
        let run = ["run", "--json"].iter().chain(options).chain(&["--"]).chain(command);
        Running::start(self.redlatch(run))
    }

    /// A hold of somebody else, as Redisson writes it.
    pub(crate) fn hold_as_another(&self, name: &str, lease: Duration) {
        let millis = i64::try_from(lease.as_millis()).unwrap();
        let mut connection = self.connect();
        let _: () = redis::pipe().atomic().hset(name, ANOTHER, 1).pexpire(name, millis).query(&mut connection).unwrap();
    }

    /// The other one releases, as Redisson does it.
    pub(crate) fn release_as_another(&self, name: &str) {
        let channel = format!("redisson_lock__channel:{{{name}}}");
        let _: () = redis::pipe().atomic().del(name).publish(channel, 0).query(&mut self.connect()).unwrap();
    }

    pub(crate) fn holders(&self, name: &str) -> Vec<String> {
        self.connect().hkeys(name).unwrap()
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.connect().keys("*").unwrap()
    }

    pub(crate) fn channels(&self) -> Vec<String> {
        redis::cmd("PUBSUB").arg("CHANNELS").query(&mut self.connect()).unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// Owner of the holds of `Server::hold_as_another`.
pub(crate) const ANOTHER: &str = "ffffffff-ffff-ffff-ffff-ffffffffffff:9";

/// `redlatch` without any setting from the environment of the tests.
pub(crate) fn redlatch() -> Command {
    // `env` becomes redlatch under the same process id, and gives it every signal back that whoever runs the tests ignores.
    let mut command = Command::new("env");
    command.args(["--default-signal", env!("CARGO_BIN_EXE_redlatch")]);
    command.env_remove("REDIS_URL").env_remove("NO_COLOR");
    command
}

/// A started process whose output can be waited for line by line. Killed on drop.
#[derive(Debug)]
pub(crate) struct Running {
    process: Child,
    /// The command's stdin; dropped to tell a `cat` or a `read` to end.
    pub(crate) stdin: Option<ChildStdin>,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    ended: bool,
}

impl Running {
    pub(crate) fn start(mut command: Command) -> Self {
        let piped = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = piped.spawn().unwrap();
        let stdin = process.stdin.take();
        let stdout = lines(process.stdout.take().unwrap());
        let stderr = lines(process.stderr.take().unwrap());
        Running { process, stdin, stdout, stderr, ended: false }
    }

    pub(crate) fn pid(&self) -> Pid {
        pid(&self.process)
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// The next line the command wrote to stdout.
    pub(crate) fn line(&self) -> String {
        self.stdout.recv_timeout(SOON).expect("a line on stdout")
    }

    /// The next line on stdout that is a process id.
    pub(crate) fn line_pid(&self) -> Pid {
        Pid::from_raw(self.line().parse().unwrap()).unwrap()
    }

    /// Passes over events up to the next one with this name, and over what the command writes to the same stderr.
    pub(crate) fn event(&self, name: &str) -> Value {
        let until = Instant::now() + SOON;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.stderr.recv_timeout(left).unwrap_or_else(|_| panic!("no event {name:?}"));
            match serde_json::from_str::<Value>(&line) {
                Ok(event) if event["event"] == name => return event,
                _ => {}
            }
        }
    }

    /// All lines on stderr from here to its end.
    pub(crate) fn rest_of_stderr(&self) -> Vec<String> {
        rest(&self.stderr)
    }

    /// All lines on stdout from here to its end.
    pub(crate) fn rest_of_stdout(&self) -> Vec<String> {
        rest(&self.stdout)
    }

    /// Exit status of redlatch, which must end soon.
    pub(crate) fn status(&mut self) -> ExitStatus {
        let process = &mut self.process;
        let status = eventually("the end of redlatch", || process.try_wait().unwrap());
        self.ended = true;
        status
    }

    /// Exit code of redlatch, which must end soon and not by a signal.
    pub(crate) fn code(&mut self) -> i32 {
        let status = self.status();
        status.code().unwrap_or_else(|| panic!("ended by a signal: {status}"))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }
}

/// Looks every few milliseconds until there is an answer; panics when there is none soon.
pub(crate) fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + SOON;
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        thread::sleep(Duration::from_millis(5));
    }
}

/// Whether this process has ended; one that nobody has reaped counts as ended.
pub(crate) fn has_ended(pid: Pid) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid()));
    // `pid (name) state …`; the name may hold anything.
    stat.map_or(true, |stat| stat.rsplit(") ").next().unwrap().starts_with(['Z', 'X']))
}

pub(crate) fn ends_soon(pid: Pid) {
    eventually(&format!("the end of process {pid:?}"), || has_ended(pid).then_some(()));
}

fn pid(process: &Child) -> Pid {
    Pid::from_raw(i32::try_from(process.id()).unwrap()).unwrap()
}

fn free_port() -> u16 {
    TcpListener::bind(("127.0.0.1", 0)).unwrap().local_addr().unwrap().port()
}

fn url(port: u16, password: Option<&str>) -> String {
    match password {
        Some(password) => format!("redis://:{password}@127.0.0.1:{port}"),
        None => format!("redis://127.0.0.1:{port}"),
    }
}

fn spawn_server(dir: &Path, port: u16, password: Option<&str>) -> Child {
    let binary = std::env::var_os("REDLATCH_REDIS_SERVER").unwrap_or_else(|| "redis-server".into());
    let mut command = Command::new(binary);
    command.args(["--port", &port.to_string(), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]);
    command.arg("--dir").arg(dir);
    if let Some(password) = password {
        command.args(["--requirepass", password]);
    }
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("a redis-server to start")
}

/// Whether this very process answers on the port, and no other.
fn answers(process: &mut Child, port: u16, password: Option<&str>) -> bool {
    let ours = process.id().to_string();
    let client = redis::Client::open(url(port, password)).unwrap();
    eventually("an answer of redis-server", || {
        if process.try_wait().unwrap().is_some() {
            return Some(false);
        }
        let mut connection = client.get_connection().ok()?;
        let info: redis::InfoDict = redis::cmd("INFO").arg("server").query(&mut connection).ok()?;
        Some(info.get::<String>("process_id").is_some_and(|id| id == ours))
    })
}

/// A thread of its own reads, so that a full pipe never holds up the process.
fn lines(stream: impl Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        for line in BufReader::new(stream).lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

fn rest(lines: &Receiver<String>) -> Vec<String> {
    let until = Instant::now() + SOON;
    let mut rest = Vec::new();
    while let Ok(line) = lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
        rest.push(line);
    }
    assert!(Instant::now() < until, "the stream does not end");
    rest
}
