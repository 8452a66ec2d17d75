//! Everything that is published, in order.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use crate::support::{
    eventually,
    redis::{Probe, Redis},
    secs,
};

const MARK: &str = "test:mark";

/// Channel and payload.
type Message = (String, String);

pub struct Messages {
    heard: Arc<Mutex<Vec<Message>>>,
    probe: Probe,
    marks: usize,
}

impl Messages {
    /// Hears every channel from now on, until the server ends.
    pub async fn on(redis: &Redis) -> Self {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let (url, list) = (redis.url(), heard.clone());
        thread::spawn(move || {
            let client = redis::Client::open(url).unwrap();
            let mut connection = client.get_connection_with_timeout(Duration::from_secs(5)).unwrap();
            let mut messages = connection.as_pubsub();
            messages.psubscribe("*").unwrap();
            while let Ok(message) = messages.get_message() {
                let entry = (message.get_channel_name().to_owned(), message.get_payload().unwrap());
                list.lock().unwrap().push(entry);
            }
        });
        let mut messages = Self { heard, probe: redis.probe().await, marks: 0 };
        let probe = messages.probe.clone();
        let listens = || async { probe.ask::<u64>(&["PUBSUB", "NUMPAT"]).await == 1 };
        eventually(secs(5), "it listens", listens).await;
        messages.take().await;
        messages
    }

    /// What was published since the last call.
    pub async fn take(&mut self) -> Vec<Message> {
        self.marks += 1;
        let mark = (MARK.to_owned(), self.marks.to_string());
        self.probe.run(&["PUBLISH", MARK, &mark.1]).await;
        // Redis tells in the order of the commands: what came before the mark has been heard when the mark is.
        let list = self.heard.clone();
        eventually(secs(5), "the mark", || async { list.lock().unwrap().contains(&mark) }).await;
        let mut heard = std::mem::take(&mut *list.lock().unwrap());
        heard.retain(|(channel, _)| channel != MARK);
        heard
    }
}
