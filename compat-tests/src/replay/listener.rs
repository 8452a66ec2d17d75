//! Everything that is published on the server.

use std::time::Duration;

use futures_util::StreamExt;
use redis::aio::{MultiplexedConnection, PubSub};

use crate::{Failure, Outcome, within};

/// A subscription to all channels.
pub(crate) struct Listener {
    subscription: PubSub,
    /// A channel nobody else publishes on.
    marker: String,
    markers: u64,
}

/// One message as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) channel: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

impl Listener {
    pub(crate) async fn open(url: &str) -> Outcome<Self> {
        let mut subscription = redis::Client::open(url)?.get_async_pubsub().await?;
        subscription.psubscribe("*").await?;
        Ok(Self { subscription, marker: format!("replay-marker-{}", redlatch::Uuid::new_v4()), markers: 0 })
    }

    /// What was published since the last call, in order.
    ///
    /// A marker is published behind it and waited for: Redis hands its subscribers all messages in one order.
    pub(crate) async fn drain(&mut self, commands: &mut MultiplexedConnection) -> Outcome<Vec<Heard>> {
        self.markers += 1;
        let number = self.markers.to_string();
        redis::cmd("PUBLISH").arg(&self.marker).arg(&number).exec_async(commands).await?;
        let messages = &mut self.subscription.on_message();
        let mut heard = Vec::new();
        loop {
            let next = within(Duration::from_secs(10), "the replay's own marker", messages.next()).await?;
            let message = next.ok_or_else(|| Failure::new("the subscription to all channels has ended"))?;
            let channel: Vec<u8> = message.get_channel()?;
            if channel == self.marker.as_bytes() {
                if message.get_payload_bytes() == number.as_bytes() {
                    return Ok(heard);
                }
            } else if !is_keyspace_event(&channel) {
                heard.push(Heard { channel, payload: message.get_payload_bytes().to_vec() });
            }
        }
    }
}

/// Published by a server that was told to tell of every change.
fn is_keyspace_event(channel: &[u8]) -> bool {
    channel.starts_with(b"__keyspace@") || channel.starts_with(b"__keyevent@")
}
