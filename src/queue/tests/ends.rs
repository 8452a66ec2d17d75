//! What must hold at any moment, and how it all ends.

use std::sync::atomic::Ordering;

use super::{world::Guarded, *};

impl<R: Redis> World<R> {
    // ---- what must hold

    pub(super) fn check(&mut self) {
        let now = self.now;
        let forced = self.redis.forced();
        let held = self.redis.holds();
        for guard in &mut self.guards {
            let left = guard.held.validity.left(now);
            if left.is_zero() {
                let lost = now < guard.until && guard.forced == forced;
                let expected = !lost || self.unbarred || self.surprised.contains(&guard.owner);
                assert!(expected, "lost without a cause: {} {:?}\n{:?}", guard.owner, self.redis, self.queue);
            } else {
                guard.until = now.plus(left);
            }
        }
        let valid: Vec<&Guarded> =
            self.guards.iter().filter(|g| g.held.validity.is_valid(now) && g.forced == forced).collect();
        for (index, guard) in valid.iter().enumerate() {
            let owner = guard.owner;
            for other in &valid[..index] {
                assert!(!R::excludes(owner, other.owner), "{owner} and {} trust their holds", other.owner);
            }
            let count = valid.iter().filter(|g| g.owner == owner).count() as u64;
            match held.iter().find(|found| found.owner == owner) {
                Some(found) => {
                    assert!(found.count >= count, "{owner} trusts {count} holds, Redis counts {}", found.count);
                    assert!(found.worth >= guard.until, "{owner} trusts its hold for longer than Redis");
                }
                None => panic!("{owner} trusts its hold, Redis has {:?}", self.redis),
            }
        }
        let quiet = self.in_flight.is_empty() && !self.unbarred && !self.breaking;
        if quiet && !self.queue.closed {
            for Found { owner, count, end, worth } in held.into_iter().filter(|f| self.is_ours(f.owner)) {
                let record = self.queue.owner(owner);
                let known = record.map_or(0, |o| o.live.len() as u64);
                // The end of a lease is given some time to come about in Redis, too.
                let ends = record.is_some_and(|o| o.ended.is_some_and(|later| later > now));
                let late = self.late.get(&owner).copied().unwrap_or_default();
                let ended = if self.gave_up { worth } else { end }.minus(late) <= now;
                assert!(
                    count <= known || ends || ended,
                    "{owner} has {count} holds in Redis, {known} here: {:?}",
                    self.queue
                );
            }
        }
        let over = |w: &Waiter| match &w.state {
            WaiterState::Over(error) => Some((w.id, error.is_some())),
            _ => None,
        };
        let over: Vec<(WaiterId, bool)> = self.queue.waiters().filter_map(over).collect();
        for (id, error) in std::mem::replace(&mut self.over, over) {
            let still = self.over.iter().any(|(other, now)| *other == id && *now >= error);
            assert!(still || !self.queue.wants(id), "a wait goes on that was over, or its error is gone");
        }
        // One that was given up before its place was known may stand in a queue for longer.
        self.redis.check(now, &self.queue, quiet && !self.gave_up);
        self.check_listening();
    }

    pub(super) fn check_listening(&mut self) {
        let asks = |w: &&Waiter| matches!(w.state, WaiterState::Waiting) && !w.stalled;
        let hears = |of: Option<Holder>| self.channels.iter().any(|(other, _)| *other == of);
        match R::DISCIPLINE {
            Discipline::Spin => assert!(self.channels.is_empty(), "spins and listens"),
            Discipline::Fair => {
                for waiter in self.queue.line.iter().filter(asks) {
                    let owner = waiter.want.owner;
                    let seated = self
                        .queue
                        .owner(owner)
                        .is_some_and(|o| o.is_idle() && o.seat.is_some_and(|seat| seat.asked.is_some()));
                    assert!(!seated || hears(Some(owner)), "{owner} sleeps and does not listen");
                }
            }
            Discipline::Line | Discipline::Readers => {
                let sleeps = self.queue.line.iter().any(|w| asks(&w));
                let listens = hears(None) || self.queue.turn.is_some() || self.queue.closed;
                assert!(!sleeps || listens, "a sleeper who does not listen");
            }
        }
        let in_line = |w: &Waiter| asks(&w) || matches!(w.state, WaiterState::InFlight);
        let alone = !self.queue.line.iter().any(in_line);
        self.alone_since = alone.then(|| self.alone_since.unwrap_or(self.now));
    }

    // ---- to the end

    /// All that is on its way arrives, and those who were woken look.
    pub(super) fn flush(&mut self) {
        for _ in 0..10_000 {
            let pending = self.channels.iter().any(|(_, heard)| !heard.live || heard.coming > 0);
            let woken = self.waiters.iter().any(|w| w.woken.0.load(Ordering::Relaxed));
            if !pending && !woken && self.in_flight.is_empty() {
                return;
            }
            self.confirm(0);
            self.run_one(1);
            self.answer_one(0);
            self.hear(0);
            self.poll_all(false);
        }
        panic!("no end of commands: {:?}", self.queue);
    }

    /// Time passes, and everything happens when it is due.
    pub(super) fn wait(&mut self, time: Duration) {
        let end = self.now.plus(time);
        loop {
            self.flush();
            let renewal = self.watchdog.next_due().map(|tick| Moment::from_nanos(tick * 1_000_000));
            let next = self.queue.next_deadline(self.now).into_iter().chain(renewal).min();
            let Some(next) = next.filter(|at| *at < end) else { break };
            self.pass(next.since(self.now).max(MS / 100));
        }
        self.pass(end.since(self.now));
        self.flush();
    }

    /// Nothing comes from outside for a while: those who wait do not ask all the time.
    pub(super) fn rest(&mut self) {
        self.flush();
        let (before, waiting) = (self.attempts, self.waiters.len());
        let time = 3 * SECOND;
        self.wait(time);
        // In a queue each one looks again when its own time is over, and one looks on behalf of all.
        let who_looks = if R::DISCIPLINE == Discipline::Fair { waiting as u64 + 1 } else { 1 };
        let looks = (time.as_millis() / R::LOOKS.as_millis()) as u64;
        let most = 8 + 4 * waiting as u64 + who_looks * looks;
        let asked = self.attempts - before;
        assert!(asked <= most, "{waiting} waiters asked {asked} times in {time:?}: {:?}", self.queue);
    }

    /// Lets everything run its course: every waiter gets the lock, every guard is released.
    pub(super) fn settle(&mut self, dies: bool) {
        self.run_strays();
        self.flush();
        let live = |owner| self.queue.owner(owner).map_or(0, |o| o.live.len() as u64);
        let lapsed = self.redis.holds().into_iter().filter(|found| found.count > live(found.owner));
        let lapsed: Vec<Moment> = lapsed.map(|found| found.end).collect();
        let mut free_at = self.redis.end_foreign(self.now, dies);
        self.deliver_told();
        free_at = lapsed.into_iter().chain([free_at]).max().unwrap_or(free_at);
        let (waiting, mut served) = (self.waiters.len(), None);
        for _ in 0..10_000 {
            self.flush();
            self.redis.foreign_turn(self.now);
            self.deliver_told();
            if !self.guards.is_empty() {
                self.release_guard(0);
                continue;
            }
            self.flush();
            if !self.guards.is_empty() {
                continue;
            }
            if self.waiters.is_empty() {
                served.get_or_insert(self.now);
                if self.queue.is_idle() {
                    break;
                }
            }
            let next = self.queue.next_deadline(self.now).expect("somebody waits and nothing is planned");
            self.pass(next.since(self.now));
        }
        assert!(self.waiters.is_empty(), "never granted\n{:?}\n{:?}", self.redis, self.queue);
        assert!(self.queue.is_idle(), "left behind: {:?}", self.queue);
        assert!(self.channels.is_empty() && self.watchdog.len() == 0);
        for reply in &mut self.replies {
            assert!(reply.try_recv().is_ok(), "a release that is never answered");
        }
        let took = served.unwrap_or(self.now).since(free_at);
        let most = 100 * MS + self.slowest + R::PACE * (waiting as u32 + 1);
        // Others who are not told, or stand in a queue though they are gone, hold up everybody.
        let held_up = (self.gave_up || self.mute) && R::DISCIPLINE == Discipline::Fair;
        assert!(took <= most || self.unbarred || held_up, "waited for {took:?} though nothing was in the way");
    }
}
