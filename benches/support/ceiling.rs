//! The ceiling: our own scripts, sent by hand with the client's arguments. Nothing between the task and redis-rs.

use redis::{AsyncConnectionConfig, Cmd, Value, aio::MultiplexedConnection};

const ACQUIRE: &str = include_str!("../../lua/lock_acquire.lua");
const RELEASE: &str = include_str!("../../lua/lock_release.lua");
const LEASE_MS: u64 = 30_000;

/// A bare connection on which both scripts are loaded.
pub(crate) struct Ceiling {
    con: MultiplexedConnection,
    acquire: String,
    release: String,
}

/// One key's two commands.
pub(crate) struct Key {
    con: MultiplexedConnection,
    acquire: String,
    release: String,
    key: String,
    owner: String,
    channel: String,
}

impl Ceiling {
    /// With the settings that the client gives its own connection.
    pub(crate) async fn connect(port: u16) -> Self {
        let client = redis::Client::open(format!("redis://127.0.0.1:{port}")).unwrap();
        let config = AsyncConnectionConfig::new().set_response_timeout(None).set_pipeline_buffer_size(1024);
        let mut con = client.get_multiplexed_async_connection_with_config(&config).await.unwrap();
        let mut load = async |source: &str| -> String {
            redis::cmd("SCRIPT").arg("LOAD").arg(source).query_async(&mut con).await.unwrap()
        };
        let (acquire, release) = (load(ACQUIRE).await, load(RELEASE).await);
        Self { con, acquire, release }
    }

    pub(crate) fn key(&self, name: &str) -> Key {
        Key {
            con: self.con.clone(),
            acquire: self.acquire.clone(),
            release: self.release.clone(),
            key: name.to_owned(),
            owner: format!("00000000-0000-4000-8000-000000000000:{name}"),
            channel: format!("redisson_lock__channel:{{{name}}}"),
        }
    }
}

impl Key {
    /// Takes and releases.
    pub(crate) async fn cycle(&self) {
        assert_eq!(self.run(&self.acquire_call()).await, Value::Nil, "granted");
        assert_eq!(self.run(&self.release_call()).await, Value::Int(1), "freed");
    }

    fn acquire_call(&self) -> Cmd {
        let mut call = self.call(&self.acquire);
        call.arg(1).arg(LEASE_MS).arg(LEASE_MS);
        call
    }

    fn release_call(&self) -> Cmd {
        let mut call = self.call(&self.release);
        call.arg(0).arg(LEASE_MS).arg(&self.channel).arg("PUBLISH").arg(0);
        call
    }

    fn call(&self, digest: &str) -> Cmd {
        let mut call = redis::cmd("EVALSHA");
        call.arg(digest).arg(1).arg(&self.key).arg(&self.owner);
        call
    }

    async fn run(&self, call: &Cmd) -> Value {
        self.con.clone().send_packed_command(call).await.unwrap()
    }
}
