//! A wheel with a clock and a task: values come back when their time has come.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::Notify, time::sleep};

use super::wheel::{Token, Wheel};
use crate::clock::Moment;

/// See the module. The task ends when the alarm is dropped.
pub(crate) struct Alarm<T> {
    state: Mutex<State<T>>,
    earlier: Arc<Notify>,
    origin: Moment,
    tick: Duration,
}

struct State<T> {
    wheel: Wheel<T>,
    /// The tick the task sleeps to.
    wakes_at: u64,
}

impl<T: Send + 'static> Alarm<T> {
    /// An alarm whose values are handed to `fire` in batches, late by a tick at most.
    pub(crate) fn new(
        tick: Duration,
        slots: usize,
        runtime: &Handle,
        fire: impl Fn(Vec<T>) + Send + 'static,
    ) -> Arc<Self> {
        let alarm = Arc::new(Self {
            state: Mutex::new(State { wheel: Wheel::new(slots, 0), wakes_at: u64::MAX }),
            earlier: Arc::new(Notify::new()),
            origin: Moment::now(),
            tick,
        });
        runtime.spawn(run(Arc::downgrade(&alarm), alarm.earlier.clone(), fire));
        alarm
    }

    pub(crate) fn set(&self, at: Moment, value: T) -> Token {
        let due = u64::try_from(at.since(self.origin).as_nanos().div_ceil(self.tick.as_nanos())).unwrap_or(u64::MAX);
        let mut state = self.state.lock();
        let token = state.wheel.insert(due, value);
        let is_earlier = due < state.wakes_at;
        if is_earlier {
            state.wakes_at = due;
        }
        drop(state);
        if is_earlier {
            self.earlier.notify_one();
        }
        token
    }

    pub(crate) fn cancel(&self, token: Token) {
        self.state.lock().wheel.cancel(token);
    }

    pub(crate) fn len(&self) -> usize {
        self.state.lock().wheel.len()
    }

    fn advance(&self) -> (Vec<T>, Option<Duration>) {
        let now = Moment::now();
        let tick = u64::try_from(now.since(self.origin).as_nanos() / self.tick.as_nanos()).unwrap_or(u64::MAX);
        let mut due = Vec::new();
        let mut state = self.state.lock();
        state.wheel.advance(tick, &mut due);
        let next = state.wheel.next_due();
        state.wakes_at = next.unwrap_or(u64::MAX);
        let sleep = next.map(|tick| {
            let length = u64::try_from(self.tick.as_nanos()).unwrap_or(u64::MAX);
            self.origin.plus(Duration::from_nanos(tick.saturating_mul(length))).since(now)
        });
        (due, sleep)
    }
}

impl<T> Drop for Alarm<T> {
    fn drop(&mut self) {
        self.earlier.notify_one();
    }
}

async fn run<T: Send + 'static>(alarm: Weak<Alarm<T>>, earlier: Arc<Notify>, fire: impl Fn(Vec<T>)) {
    loop {
        let Some(strong) = alarm.upgrade() else { return };
        let (due, pause) = strong.advance();
        drop(strong);
        if !due.is_empty() {
            fire(due);
            continue;
        }
        match pause {
            None => earlier.notified().await,
            Some(pause) => tokio::select! {
                () = sleep(pause) => {}
                () = earlier.notified() => {}
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn values_come_back_in_their_order_and_cancelled_ones_do_not() {
        let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
        let fire = move |due: Vec<u32>| due.into_iter().for_each(|v| tell.send(v).expect("heard"));
        let alarm = Alarm::new(Duration::from_millis(1), 64, &Handle::current(), fire);
        let now = Moment::now();
        alarm.set(now.plus(Duration::from_millis(200)), 3);
        let cancelled = alarm.set(now.plus(Duration::from_millis(40)), 2);
        alarm.set(now.plus(Duration::from_millis(10)), 1);
        alarm.cancel(cancelled);
        assert_eq!(told.recv().await, Some(1));
        assert!(Moment::now() >= now.plus(Duration::from_millis(10)));
        assert_eq!(told.recv().await, Some(3));
        assert!(Moment::now() >= now.plus(Duration::from_millis(200)));
        assert_eq!(alarm.len(), 0);
        drop(alarm);
        assert_eq!(told.recv().await, None, "the task ends with the alarm");
    }
}
