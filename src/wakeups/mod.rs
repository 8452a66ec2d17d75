//! Who is told when a channel speaks. It knows nothing of locks: a message is a message, its payload is not read.

pub(crate) mod channel;

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use redis::{PushInfo, PushKind, RedisError, Value, cmd};
use tokio::{runtime::Handle, time::sleep};

use crate::{
    config::Target,
    connection::{Connection, Epoch, LinkEvent, RunError},
    error::{Action, Error, Fault},
    topology::Flavour,
};
use channel::{Channel, Send, Step};

/// A silent subscriber is asked whether it lives after this time.
const PING_PERIOD: Duration = Duration::from_secs(10);

/// Told of what happens to a channel. Calls come from the connection's task and must be quick.
pub(crate) trait Listener: std::marker::Send + Sync {
    /// From now on messages are heard.
    fn live(&self);
    /// Messages may have been missed, and are until it is live again.
    fn lost(&self);
    /// Something was published.
    fn message(&self);
    /// The server does not allow the subscription.
    fn refused(&self, error: &Error);
}

/// Tells the listeners of a channel apart.
pub(crate) type ListenerId = usize;

/// The subscriptions of a client, on one connection that is opened when the first is wanted.
pub(crate) struct Wakeups {
    connection: Connection,
    flavour: Flavour,
    runtime: Handle,
    state: Mutex<Channels>,
    pinging: AtomicBool,
    me: Weak<Self>,
}

#[derive(Default)]
struct Channels {
    /// The link that is up.
    up: Option<Epoch>,
    /// Entries ever made: their commands are numbered apart.
    made: u64,
    by_name: HashMap<Arc<str>, Entry>,
}

struct Entry {
    channel: Channel,
    listeners: Vec<(ListenerId, Arc<dyn Listener>)>,
}

impl Entry {
    fn listeners(&self) -> Vec<Arc<dyn Listener>> {
        self.listeners.iter().map(|(_, listener)| listener.clone()).collect()
    }
}

impl Wakeups {
    pub(crate) fn new(target: Target, flavour: Flavour, runtime: Handle) -> Arc<Self> {
        Arc::new_cyclic(|me: &Weak<Self>| {
            let (on_push, on_change) = (me.clone(), me.clone());
            let connection = Connection::new(
                target,
                runtime.clone(),
                Some(Arc::new(move |info| {
                    if let Some(me) = on_push.upgrade() {
                        me.pushed(&info);
                    }
                })),
                Some(Arc::new(move |event| {
                    if let Some(me) = on_change.upgrade() {
                        me.link_event(event);
                    }
                })),
            );
            Self {
                connection,
                flavour,
                runtime,
                state: Mutex::default(),
                pinging: AtomicBool::new(false),
                me: me.clone(),
            }
        })
    }

    /// Subscribes; the listener is told when that is confirmed, never from within this call.
    pub(crate) fn listen(&self, name: &Arc<str>, id: ListenerId, listener: Arc<dyn Listener>) {
        self.connection.start();
        self.keep_pinging();
        let mut state = self.state.lock();
        let epoch = state.up;
        let up = epoch.is_some();
        state.made += 1;
        let first_serial = state.made << 24;
        let (step, serial) = match state.by_name.get_mut(name) {
            Some(entry) => {
                entry.listeners.push((id, listener.clone()));
                let step = entry.channel.want(up);
                (step, entry.channel.serial)
            }
            None => {
                let (channel, step) = Channel::new(up, first_serial);
                let serial = channel.serial;
                state.by_name.insert(name.clone(), Entry { channel, listeners: vec![(id, listener.clone())] });
                (step, serial)
            }
        };
        drop(state);
        if step.live {
            self.runtime.spawn(async move { listener.live() });
        }
        self.follow(name, Step { live: false, ..step }, serial, epoch, &[]);
    }

    /// Ends the listener's interest; the last one ends the subscription.
    pub(crate) fn unlisten(&self, name: &Arc<str>, id: ListenerId) {
        self.step(name, |entry| {
            entry.listeners.retain(|(other, _)| *other != id);
            if entry.listeners.is_empty() { entry.channel.unwant() } else { Step::default() }
        });
    }

    /// Channels that are wanted or not yet left.
    pub(crate) fn len(&self) -> usize {
        self.state.lock().by_name.len()
    }

    pub(crate) fn close(&self) {
        self.connection.close();
    }

    fn step(&self, name: &Arc<str>, event: impl FnOnce(&mut Entry) -> Step) {
        let mut state = self.state.lock();
        let epoch = state.up;
        let Some(entry) = state.by_name.get_mut(name) else { return };
        let step = event(entry);
        let serial = entry.channel.serial;
        let listeners = if step.live { entry.listeners() } else { Vec::new() };
        if step.gone {
            state.by_name.remove(name);
            if state.by_name.is_empty() && state.by_name.capacity() > 1024 {
                state.by_name.shrink_to_fit();
            }
        }
        drop(state);
        self.follow(name, step, serial, epoch, &listeners);
    }

    fn follow(&self, name: &Arc<str>, step: Step, serial: u64, epoch: Option<Epoch>, now_live: &[Arc<dyn Listener>]) {
        now_live.iter().for_each(|listener| listener.live());
        // The link may have gone down meanwhile, and that may have been told first.
        if !now_live.is_empty() && !self.is_live(name) {
            now_live.iter().for_each(|listener| listener.lost());
        }
        let (Some(send), Some(epoch), Some(me)) = (step.send, epoch, self.me.upgrade()) else { return };
        let name = name.clone();
        self.runtime.spawn(async move { me.send(&name, send, serial, epoch).await });
    }

    async fn send(&self, name: &Arc<str>, send: Send, serial: u64, epoch: Epoch) {
        let verb = match send {
            Send::Subscribe => self.flavour.subscribe(),
            Send::Unsubscribe => self.flavour.unsubscribe(),
        };
        match self.connection.command_on(epoch, cmd(verb).arg(&**name)).await {
            Ok(_) => self.step(name, |entry| entry.channel.confirmed(serial)),
            Err(RunError::Refused(source)) => {
                let error = Error::redis(Action::Subscribe, name, source);
                let listeners = self.listeners(name);
                self.step(name, |entry| entry.channel.failed(serial));
                if send == Send::Subscribe {
                    listeners.iter().for_each(|listener| listener.refused(&error));
                }
            }
            Err(_) => self.step(name, |entry| entry.channel.failed(serial)),
        }
    }

    fn pushed(&self, info: &PushInfo) {
        if !matches!(info.kind, PushKind::Message | PushKind::SMessage) {
            return;
        }
        let Some(Value::BulkString(name)) = info.data.first() else { return };
        let Ok(name) = std::str::from_utf8(name) else { return };
        self.listeners(name).iter().for_each(|listener| listener.message());
    }

    fn listeners(&self, name: &str) -> Vec<Arc<dyn Listener>> {
        self.state.lock().by_name.get(name).map(Entry::listeners).unwrap_or_default()
    }

    fn is_live(&self, name: &str) -> bool {
        self.state.lock().by_name.get(name).is_some_and(|entry| entry.channel.state == channel::State::Live)
    }

    fn link_event(&self, event: LinkEvent<'_>) {
        match event {
            LinkEvent::Up(epoch) => self.link_changed(Some(epoch)),
            LinkEvent::Down => self.link_changed(None),
            LinkEvent::Failed(source) => self.link_failed(source),
        }
    }

    /// A server that is away comes back; one that refuses us does not change its mind by itself.
    fn link_failed(&self, source: &RedisError) {
        let error = Error::redis(Action::Connect, &self.connection.address(), source.clone());
        if !matches!(error, Error::Redis { fault: Fault::AuthFailed | Fault::NoPermission, .. }) {
            return;
        }
        let listeners: Vec<_> = self.state.lock().by_name.values().flat_map(Entry::listeners).collect();
        listeners.iter().for_each(|listener| listener.refused(&error));
    }

    fn link_changed(&self, up: Option<Epoch>) {
        let names: Vec<Arc<str>> = {
            let mut state = self.state.lock();
            state.up = up;
            state.by_name.keys().cloned().collect()
        };
        for name in names {
            if up.is_some() {
                self.step(&name, |entry| entry.channel.link_up());
                continue;
            }
            let listeners = self.listeners(&name);
            self.step(&name, |entry| entry.channel.link_down());
            listeners.iter().for_each(|listener| listener.lost());
        }
    }

    /// A link that does not answer is given up by the connection itself.
    fn keep_pinging(&self) {
        if self.pinging.swap(true, Ordering::AcqRel) {
            return;
        }
        let me = self.me.clone();
        self.runtime.spawn(async move {
            loop {
                sleep(PING_PERIOD).await;
                let Some(me) = me.upgrade() else { return };
                if me.connection.is_up() && matches!(me.connection.command(&cmd("PING")).await, Err(RunError::Closed)) {
                    return;
                }
            }
        });
    }
}
