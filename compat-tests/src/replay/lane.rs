//! A Redis to replay on, one scenario at a time.

use std::collections::BTreeSet;
use std::time::Duration;

use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Client};
use tokio::time::sleep;

use super::listener::{Heard, Listener};
use super::snapshot::{self, Snapshot};
use crate::{Failure, Outcome, SharedRedis, within};

/// A server, and the replay's own connections to it.
pub(crate) struct Lane {
    url: String,
    commands: MultiplexedConnection,
    listener: Listener,
    /// Connections that were there before the first scenario.
    own_connections: BTreeSet<String>,
    /// Killed when the lane goes.
    private: Option<SharedRedis>,
}

impl Lane {
    /// On a private server that ends with the lane.
    pub(crate) async fn private() -> Outcome<Self> {
        let server = SharedRedis::start().await?;
        let mut lane = Self::open(server.url()).await?;
        lane.private = Some(server);
        Ok(lane)
    }

    /// On a server of somebody else. Its database must be empty, unless it may be flushed.
    pub(crate) async fn shared(url: &str, may_flush: bool) -> Outcome<Self> {
        let mut lane = Self::open(url.to_owned()).await?;
        let keys: u64 = redis::cmd("DBSIZE").query_async(&mut lane.commands).await?;
        if keys > 0 && !may_flush {
            return Err(Failure::new(format!(
                "the database holds {keys} keys and a replay flushes it before every scenario; \
                 give an empty database, or --flush to have this one emptied"
            )));
        }
        Ok(lane)
    }

    async fn open(url: String) -> Outcome<Self> {
        let settings = AsyncConnectionConfig::new().set_response_timeout(Some(Duration::from_secs(20)));
        let client = Client::open(url.as_str())?;
        let commands = client.get_multiplexed_async_connection_with_config(&settings).await?;
        let listener = Listener::open(&url).await?;
        let mut lane = Self { url, commands, listener, own_connections: BTreeSet::new(), private: None };
        lane.own_connections = connections(&mut lane.commands.clone()).await?;
        Ok(lane)
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }

    /// The replay's own connection, for plain commands.
    pub(crate) fn commands(&mut self) -> &mut MultiplexedConnection {
        &mut self.commands
    }

    /// Empties the database and forgets what was published.
    ///
    /// Call it when no client process is alive: what the last one had sent is waited for on a private server.
    pub(crate) async fn clean(&mut self) -> Outcome {
        if self.private.is_some() {
            within(Duration::from_secs(10), "the connections of killed clients to be closed", self.only_own())
                .await??;
        }
        redis::cmd("FLUSHDB").exec_async(&mut self.commands).await?;
        self.published().await?;
        Ok(())
    }

    /// Until nobody but the replay itself is connected.
    async fn only_own(&mut self) -> Outcome {
        while !connections(&mut self.commands).await?.is_subset(&self.own_connections) {
            sleep(Duration::from_millis(1)).await;
        }
        Ok(())
    }

    /// The whole database now.
    pub(crate) async fn snapshot(&mut self) -> Outcome<Snapshot> {
        snapshot::read(&mut self.commands).await
    }

    /// What was published since the last call.
    pub(crate) async fn published(&mut self) -> Outcome<Vec<Heard>> {
        self.listener.drain(&mut self.commands).await
    }
}

/// The ids of all connections, from lines that read `id=7 addr=.. ..`.
async fn connections(commands: &mut MultiplexedConnection) -> Outcome<BTreeSet<String>> {
    let list: String = redis::cmd("CLIENT").arg("LIST").query_async(commands).await?;
    Ok(list.lines().filter_map(|line| line.split(' ').next()).map(str::to_owned).collect())
}
