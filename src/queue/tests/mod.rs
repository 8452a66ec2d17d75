//! The queue against models of Redis, in random orders of everything that can happen.
//!
//! A file or folder for each discipline has what Redis does there. Around it is a client without I/O: `world.rs` has its
//! callers, channels and time, `wire.rs` the way to Redis and back, `ends.rs` what must hold.

mod ends;
mod fair;
mod line;
mod readers;
mod spin;
mod wire;
mod world;

use std::{collections::HashMap, fmt::Debug, time::Duration};

use proptest::{prelude::*, sample::select, test_runner::RngSeed};
use uuid::Uuid;

use super::*;
use crate::{
    answers::Released,
    owner::{Owners, Role},
    watchdog::wheel::Wheel,
};
use wire::InFlight;
use world::World;

const WATCHDOG: Duration = Duration::from_millis(900);
const PERIOD: Duration = Duration::from_millis(300);
const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// What others hold for if they say nothing more.
const FOREIGN_LEASE: Duration = SECOND;

/// What Redis has at a key, and what the scripts of a discipline do with it.
trait Redis: Debug {
    const DISCIPLINE: Discipline;
    /// Whether the release of a lock that nobody holds is told.
    const TELLS_WHEN_FREE: bool = false;
    /// How long it may take until a free lock is taken, for each one before.
    const PACE: Duration = Duration::from_millis(20);
    /// How often a waiter may look while nothing happens.
    const LOOKS: Duration = Duration::from_millis(200);

    fn acquire(&mut self, now: Moment, ask: &Attempt) -> AttemptReply;
    fn release(&mut self, now: Moment, ask: &Release) -> Released;
    fn transfer(&mut self, _now: Moment, _ask: &Transfer) -> bool {
        unreachable!("this discipline hands nothing over")
    }
    /// The count found. `rank` and `holds` are of readers.
    fn renew(&mut self, now: Moment, owner: Holder, rank: u64, holds: Duration, ttl: Duration) -> u64;
    /// Whether there was something to free.
    fn force(&mut self, now: Moment, role: Role) -> bool;
    /// What has ended goes.
    fn expire(&mut self, now: Moment);
    fn holds(&self) -> Vec<Found>;
    fn found(&self, owner: Holder) -> u64 {
        self.holds().iter().find(|found| found.owner == owner).map_or(0, |found| found.count)
    }
    /// Takes what was published: on the key's channel, or on that of an owner.
    fn take_told(&mut self) -> Vec<Option<Holder>>;
    /// How often holds were taken away by force.
    fn forced(&self) -> u64;

    /// Others do something.
    fn foreign(&mut self, now: Moment, pick: usize);
    /// Others end, or die. Returns when nothing of theirs is in the way any more.
    fn end_foreign(&mut self, now: Moment, dies: bool) -> Moment;
    /// Others who live and wait do what they do next.
    fn foreign_turn(&mut self, _now: Moment) {}

    fn role(_pick: usize) -> Role {
        Role::Sole
    }
    /// Whether both cannot be held at once.
    fn excludes(one: Holder, other: Holder) -> bool {
        one != other
    }
    /// An attempt was sent: whether that was right.
    fn sent(_queue: &Queue, _now: Moment, _attempt: &Attempt) {}
    /// What must hold at any moment; `quiet`: nothing is on its way.
    fn check(&self, _now: Moment, _queue: &Queue, _quiet: bool) {}
}

/// A hold in Redis.
struct Found {
    owner: Holder,
    count: u64,
    /// When nobody is kept out by it any more.
    end: Moment,
    /// When it is worth nothing any more. It may stay for longer if others share the key.
    worth: Moment,
}

#[derive(Clone, Copy, Debug)]
enum Event {
    Answer,
    BreakLink,
    BreakLinkForLong,
    Confirm,
    Expire,
    Extend,
    Force,
    Foreign,
    Hear,
    Join,
    JoinOwned,
    Leave,
    LoseBarrier,
    LoseChannels,
    Message,
    Pass,
    Poll,
    Refuse,
    Release,
    ReleaseAny,
    Run,
    Sleep,
    Step,
    Stray,
    Try,
    TryOwned,
}

impl Event {
    /// Each as often as it is likely.
    const ALL: &[Self] = {
        use Event::*;
        &[
            Run,
            Run,
            Run,
            Run,
            Run,
            Answer,
            Answer,
            Answer,
            Answer,
            Answer,
            Join,
            Join,
            JoinOwned,
            Try,
            TryOwned,
            Poll,
            Poll,
            Poll,
            Release,
            Release,
            Release,
            Hear,
            Hear,
            Confirm,
            Confirm,
            Foreign,
            Foreign,
            Foreign,
            Step,
            Step,
            Pass,
            Sleep,
            Leave,
            Expire,
            Extend,
            ReleaseAny,
            LoseChannels,
            Message,
            Force,
            BreakLink,
            BreakLinkForLong,
            Refuse,
            Stray,
            LoseBarrier,
        ]
    };

    fn happen<R: Redis>(self, world: &mut World<R>, pick: usize) {
        match self {
            Self::Answer => world.answer_one(pick),
            Self::BreakLink => world.break_link(false),
            Self::BreakLinkForLong => world.break_link(true),
            Self::Confirm => world.confirm(pick),
            Self::Expire => world.expire(pick),
            Self::Extend => world.extend(pick),
            Self::Force if pick.is_multiple_of(4) => world.force(R::role(pick / 4)),
            Self::Force => {}
            Self::Foreign => world.foreign(pick),
            Self::Hear => world.hear(pick),
            Self::Join => world.join_some(pick, false, false),
            Self::JoinOwned => world.join_some(pick, true, false),
            Self::Leave => world.leave(pick),
            Self::LoseBarrier if pick.is_multiple_of(8) => world.lose_barrier(),
            Self::LoseBarrier => {}
            Self::LoseChannels => world.lose_channels(),
            // Somebody said something that means nothing.
            Self::Message => {
                if let Some((_, heard)) = world.channels.iter_mut().find(|(_, heard)| heard.live) {
                    heard.coming += 1;
                }
            }
            Self::Pass => world.pass(MS * (20 + pick as u32 % 200)),
            Self::Poll => world.poll_all(!pick.is_multiple_of(4)),
            Self::Refuse => world.refuse_one(pick),
            Self::Release => world.release_guard(pick),
            Self::ReleaseAny => world.release_any(pick),
            Self::Run => world.run_one(pick),
            Self::Sleep => world.pass(MS * (200 + pick as u32)),
            Self::Step => world.pass(MS * (1 + pick as u32 % 7)),
            Self::Stray => world.run_stray(pick),
            Self::Try => world.join_some(pick, false, true),
            Self::TryOwned => world.join_some(pick, true, true),
        }
    }
}

#[derive(Clone, Copy, Debug)]
enum Ending {
    Close,
    OthersDie,
    OthersEnd,
}

impl Ending {
    const ALL: &[Self] = &[Self::OthersEnd, Self::OthersDie, Self::OthersEnd, Self::OthersDie, Self::Close];
}

/// What happens, and to whom.
struct Events(Vec<(Event, usize)>);

/// In one line: it is long.
impl Debug for Events {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.iter().try_for_each(|(event, pick)| write!(f, "({event:?}, {pick}), "))
    }
}

fn events() -> impl Strategy<Value = Events> {
    prop::collection::vec((select(Event::ALL), 0usize..1000), 0..120).prop_map(Events)
}

fn in_order<R: Redis>(mut world: World<R>, events: Events, rests: bool, ending: Ending) {
    for (event, pick) in events.0 {
        event.happen(&mut world, pick);
    }
    match ending {
        Ending::Close => world.close(),
        _ if rests => world.rest(),
        _ => {}
    }
    world.settle(matches!(ending, Ending::OthersDie));
}

/// How many orders of events are tried.
fn cases(short: u32, full: u32) -> ProptestConfig {
    let is_full = std::env::var_os("REDLATCH_FULL").is_some();
    // The short form walks the same ways each time; the long one looks for new ones.
    let rng_seed = if is_full { RngSeed::Random } else { RngSeed::Fixed(4) };
    let cases = if is_full { full } else { short };
    ProptestConfig { cases, rng_seed, max_shrink_iters: 200_000, ..ProptestConfig::default() }
}
