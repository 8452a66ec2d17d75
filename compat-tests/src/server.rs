use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use std::{env, fs, process};

use redis::aio::MultiplexedConnection;
use redis::{AsyncCommands, AsyncConnectionConfig};
use tokio::time::{Instant, sleep};

use crate::{Failure, LockKind, Outcome, eventually, now_us};

/// A Redis of one test: on a free port, without persistence, killed when dropped.
///
/// It belongs to the runtime it was started on: the test's own connection is driven there.
#[derive(Debug)]
pub struct SharedRedis {
    server: Server,
    admin: MultiplexedConnection,
}

/// The process, killed when dropped.
#[derive(Debug)]
struct Server {
    process: Child,
    port: u16,
    directory: PathBuf,
}

impl SharedRedis {
    /// The name our own connections carry in `CLIENT LIST`.
    pub(crate) const ADMIN: &str = "admin";

    /// Starts one with the server's defaults.
    pub async fn start() -> Outcome<Self> {
        Self::start_with(&[]).await
    }

    /// Starts one with further settings, as on the server's command line (`["--maxmemory", "2mb"]`).
    pub async fn start_with(settings: &[&str]) -> Outcome<Self> {
        // The port is free when asked for and may be taken before the server has it; another one is tried then.
        for _ in 0..5 {
            if let Some(redis) = Self::try_start(settings).await? {
                return Ok(redis);
            }
        }
        Err(Failure::new("redis-server did not start on any of five free ports"))
    }

    async fn try_start(settings: &[&str]) -> Outcome<Option<Self>> {
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port();
        let directory = env::temp_dir().join(format!("redlatch-compat-{}-{port}-{}", process::id(), now_us()));
        fs::create_dir(&directory)?;
        let process = Command::new("redis-server")
            .current_dir(&directory)
            .args(["--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--port"])
            .arg(port.to_string())
            .args(settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| Failure::new(format!("cannot run redis-server: {error}")))?;
        let mut server = Server { process, port, directory };
        let deadline = Instant::now() + Duration::from_secs(10);
        while Instant::now() < deadline {
            if server.process.try_wait()?.is_some() {
                return Ok(None);
            }
            if let Some(admin) = server.connection().await {
                return Ok(Some(Self { server, admin }));
            }
            sleep(Duration::from_millis(5)).await;
        }
        Err(Failure::new("redis-server did not answer within 10 s"))
    }

    /// `redis://127.0.0.1:<port>`
    pub fn url(&self) -> String {
        format!("redis://127.0.0.1:{}", self.server.port)
    }

    /// The port it listens on, at 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.server.port
    }

    /// The server's process id, to stop and continue it.
    pub fn pid(&self) -> u32 {
        self.server.process.id()
    }

    /// The test's own connection: one, whose commands traces leave out.
    pub fn admin(&self) -> MultiplexedConnection {
        self.admin.clone()
    }

    /// The hash under this key, field to value; empty when there is no key.
    pub async fn hash(&self, key: &str) -> Outcome<BTreeMap<String, String>> {
        Ok(self.admin().hgetall(key).await?)
    }

    /// The answer of `PTTL`: -2 no key, -1 no expiry, else milliseconds.
    pub async fn pttl(&self, key: &str) -> Outcome<i64> {
        Ok(self.admin().pttl(key).await?)
    }

    /// How often this command was called so far (`INFO commandstats`), inside scripts as well.
    pub async fn calls(&self, command: &str) -> Outcome<u64> {
        Ok(figure(&command_stats(&mut self.admin()).await?, command, "calls"))
    }

    /// Scripts run so far for clients.
    pub async fn scripts_run(&self) -> Outcome<u64> {
        scripts_run(&mut self.admin()).await
    }

    /// Waits until so many clients listen on the channel.
    pub async fn listeners(&self, channel: &str, count: u64) -> Outcome {
        let admin = self.admin();
        let what = format!("{count} listeners on {channel}");
        eventually(Duration::from_secs(10), &what, || {
            let mut admin = admin.clone();
            async move { Ok(numsub(&mut admin, channel).await? == count) }
        })
        .await
    }
}

impl Server {
    /// A connection, once the server answers and is the one that was started: another may have taken the port.
    async fn connection(&self) -> Option<MultiplexedConnection> {
        let client = redis::Client::open((Ipv4Addr::LOCALHOST.to_string(), self.port)).ok()?;
        // The default of half a second is short where a busy machine reads a long slow log.
        let patient = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(30)));
        let mut connection = client.get_multiplexed_async_connection_with_config(&patient).await.ok()?;
        let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await.ok()?;
        if !info.lines().any(|line| line == format!("process_id:{}", self.process.id())) {
            return None;
        }
        redis::cmd("CLIENT").arg("SETNAME").arg(SharedRedis::ADMIN).exec_async(&mut connection).await.ok()?;
        Some(connection)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Each of these fails only when the thing is gone already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _: io::Result<()> = fs::remove_dir_all(&self.directory);
    }
}

/// The channel on which the release of a plain lock is told.
pub fn channel_of(name: &str) -> String {
    LockKind::Lock.channel(name, "")
}

pub(crate) async fn numsub(admin: &mut MultiplexedConnection, channel: &str) -> Outcome<u64> {
    let (_, count): (String, u64) = redis::cmd("PUBSUB").arg("NUMSUB").arg(channel).query_async(admin).await?;
    Ok(count)
}

pub(crate) async fn scripts_run(admin: &mut MultiplexedConnection) -> Outcome<u64> {
    let info = command_stats(admin).await?;
    // A script the server does not know yet was not run.
    let runs = |command| figure(&info, command, "calls") - figure(&info, command, "failed_calls");
    Ok(runs("eval") + runs("evalsha"))
}

async fn command_stats(admin: &mut MultiplexedConnection) -> Outcome<String> {
    Ok(redis::cmd("INFO").arg("commandstats").query_async(admin).await?)
}

/// Lines read `cmdstat_evalsha:calls=7,usec=91,..,failed_calls=0`.
fn figure(info: &str, command: &str, name: &str) -> u64 {
    let prefix = format!("cmdstat_{command}:");
    let figures = info.lines().find_map(|line| line.strip_prefix(&prefix)).unwrap_or_default();
    let value = figures.split(',').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='));
    value.and_then(|value| value.parse().ok()).unwrap_or(0)
}
