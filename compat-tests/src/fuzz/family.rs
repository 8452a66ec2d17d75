//! What can stand under a name, and what is done to it.
//!
//! A new kind is a line in [`FAMILIES`], a shape in the forecast if none of those there fits, and a function that proposes
//! calls. The rest does not know kinds: calls go to both languages by their words, and what they leave is compared as it is.

use super::call::{Args, CLIENTS, Call, Op, Owner};
use super::forecast::View;
use super::rng::Rng;

/// Kinds that share one name, and how they behave.
#[derive(Debug)]
pub(crate) struct Family {
    pub(crate) name: &'static str,
    pub(crate) kinds: &'static [&'static str],
    /// The first Redisson that has it.
    pub(crate) since: (u32, u32),
    pub(crate) shape: Shape,
    /// Whether it is left to the rules of the replay what this crate does otherwise than Redisson with holds of different
    /// lengths (`1.6`). Where no rule reckons that, sequences keep clear of it.
    pub(crate) departs: bool,
    /// Whether a wait that is given up leaves nothing behind in Java either.
    pub(crate) can_cancel: bool,
    propose: fn(&mut Rng, &Scene<'_>) -> Option<Op>,
}

/// How the forecast follows it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Shape {
    Exclusive(ExclusiveShape),
    ReadWrite,
}

/// What the locks of one holder differ in.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExclusiveShape {
    pub(crate) fair: bool,
    pub(crate) reentrant: bool,
    /// Waiters sleep until they are told; otherwise they ask again and again.
    pub(crate) listens: bool,
    /// Redisson's object remembers the lease of every attempt, not only that of a grant.
    pub(crate) remembers_attempts: bool,
}

const PLAIN: ExclusiveShape = ExclusiveShape { fair: false, reentrant: true, listens: true, remembers_attempts: false };

/// Every family there is.
pub(crate) static FAMILIES: [Family; 7] = [
    Family {
        name: "lock",
        kinds: &["lock"],
        since: (0, 0),
        shape: Shape::Exclusive(PLAIN),
        departs: true,
        can_cancel: true,
        propose: exclusive,
    },
    Family {
        name: "fair",
        kinds: &["fair"],
        since: (0, 0),
        shape: Shape::Exclusive(ExclusiveShape { fair: true, ..PLAIN }),
        departs: true,
        can_cancel: false,
        propose: exclusive,
    },
    Family {
        name: "read_write",
        kinds: &["read", "write"],
        since: (0, 0),
        shape: Shape::ReadWrite,
        departs: true,
        can_cancel: true,
        propose: read_write,
    },
    Family {
        name: "fenced",
        kinds: &["fenced"],
        since: (3, 19),
        shape: Shape::Exclusive(PLAIN),
        departs: true,
        can_cancel: true,
        propose: fenced,
    },
    Family {
        name: "spin",
        kinds: &["spin"],
        since: (0, 0),
        shape: Shape::Exclusive(ExclusiveShape { listens: false, remembers_attempts: true, ..PLAIN }),
        departs: true,
        can_cancel: true,
        propose: exclusive,
    },
    Family {
        name: "nonreentrant",
        kinds: &["nonreentrant"],
        since: (4, 4),
        shape: Shape::Exclusive(ExclusiveShape { reentrant: false, ..PLAIN }),
        departs: true,
        can_cancel: true,
        propose: exclusive,
    },
    Family {
        name: "nonreentrant_fair",
        kinds: &["nonreentrant_fair"],
        since: (4, 4),
        shape: Shape::Exclusive(ExclusiveShape { fair: true, reentrant: false, ..PLAIN }),
        departs: true,
        can_cancel: false,
        propose: exclusive,
    },
];

/// A name, and who can act on it.
#[derive(Clone, Debug)]
pub(crate) struct Scene<'a> {
    pub(crate) family: &'a Family,
    pub(crate) name: &'a str,
    pub(crate) view: View,
    /// Owners whose client lives and who wait for nothing.
    pub(crate) idle: &'a [Owner],
}

impl Family {
    /// Something that could be done now. The planner still looks whether it can be told in advance what comes of it.
    pub(crate) fn propose(&self, rng: &mut Rng, scene: &Scene<'_>) -> Option<Op> {
        (self.propose)(rng, scene)
    }
}

/// Everybody who acts.
pub(crate) fn owners() -> Vec<Owner> {
    (0..CLIENTS.len()).flat_map(|client| (1..=2).map(move |thread| Owner { client, thread })).collect()
}

#[derive(Clone, Copy, Debug)]
enum Deed {
    TryLock,
    TryWithWait,
    WaitInBackground,
    LockInBackground,
    Reenter,
    Unlock,
    UnlockByAnother,
    Force,
    Status,
    Expire,
    Delete,
}

const DEEDS: [(usize, Deed); 11] = [
    (20, Deed::TryLock),
    (8, Deed::TryWithWait),
    (10, Deed::WaitInBackground),
    (11, Deed::LockInBackground),
    (12, Deed::Reenter),
    (22, Deed::Unlock),
    (4, Deed::UnlockByAnother),
    (4, Deed::Force),
    (12, Deed::Status),
    (3, Deed::Expire),
    (1, Deed::Delete),
];

fn exclusive(rng: &mut Rng, scene: &Scene<'_>) -> Option<Op> {
    lock_like(rng, scene, scene.family.kinds[0])
}

fn read_write(rng: &mut Rng, scene: &Scene<'_>) -> Option<Op> {
    let kind = if rng.chance(60) { "read" } else { "write" };
    lock_like(rng, scene, kind)
}

fn fenced(rng: &mut Rng, scene: &Scene<'_>) -> Option<Op> {
    if rng.chance(10) {
        let call = Call { op: "getToken", ..blank(scene, "fenced", *rng.pick(scene.idle)?) };
        return Some(Op::Call(call));
    }
    let op = lock_like(rng, scene, "fenced")?;
    Some(match op {
        // Without a wait Redisson's form with a token waits for ever.
        Op::Call(mut call) if call.op == "tryLock" && call.wait_ms().is_some() && rng.chance(40) => {
            call.op = "tryLockAndGetToken";
            Op::Call(call)
        }
        op => op,
    })
}

fn lock_like(rng: &mut Rng, scene: &Scene<'_>, kind: &'static str) -> Option<Op> {
    let View { holders, writers, .. } = &scene.view;
    let holding = if kind == "read" {
        holders.iter().filter(|owner| holders.len() > writers.len() || !writers.contains(owner)).copied().collect()
    } else {
        writers.clone()
    };
    let holders: Vec<Owner> = holding.into_iter().filter(|owner| scene.idle.contains(owner)).collect();
    let others: Vec<Owner> = scene.idle.iter().filter(|owner| !scene.view.holders.contains(owner)).copied().collect();
    let (free, anybody) = (scene.view.holders.is_empty(), scene.idle);
    let call = |owner: &Owner| blank(scene, kind, *owner);
    let acquire = |rng: &mut Rng, owner: &Owner| {
        let lease_ms = lease(rng);
        // One attempt; without a lease both forms of it are asked.
        let wait_ms = (lease_ms.is_some() || rng.chance(30)).then_some(0);
        Call { op: "tryLock", args: times(wait_ms, lease_ms), ..call(owner) }
    };
    Some(match rng.weighted(&DEEDS)? {
        Deed::TryLock => {
            let owner = rng.pick(anybody)?.to_owned();
            Op::Call(acquire(rng, &owner))
        }
        Deed::TryWithWait => {
            let owner = rng.pick(&others)?.to_owned();
            let wait_ms = Some(rng.between(50, 400));
            Op::Call(Call { op: "tryLock", args: times(wait_ms, lease(rng)), ..call(&owner) })
        }
        Deed::WaitInBackground => {
            let owner = rng.pick(&others)?.to_owned();
            let wait_ms = Some(rng.between(200, 1_500));
            let args = times(wait_ms, lease(rng));
            Op::Call(Call { op: "tryLock", args, in_background: !free, ..call(&owner) })
        }
        Deed::LockInBackground => {
            let owner = rng.pick(&others)?.to_owned();
            Op::Call(Call { op: "lock", args: times(None, lease(rng)), in_background: !free, ..call(&owner) })
        }
        Deed::Reenter => {
            let owner = rng.pick(&holders)?.to_owned();
            if rng.chance(50) {
                Op::Call(acquire(rng, &owner))
            } else {
                Op::Call(Call { op: "lock", args: times(None, lease(rng)), ..call(&owner) })
            }
        }
        Deed::Unlock => Op::Call(Call { op: "unlock", ..call(rng.pick(&holders)?) }),
        Deed::UnlockByAnother => Op::Call(Call { op: "unlock", ..call(rng.pick(&others)?) }),
        Deed::Force => Op::Call(Call { op: "forceUnlock", ..call(rng.pick(anybody)?) }),
        Deed::Status => {
            let ops = ["isLocked", "isHeldByCurrentThread", "getHoldCount", "remainTimeToLive"];
            Op::Call(Call { op: rng.pick(&ops)?, ..call(rng.pick(anybody)?) })
        }
        Deed::Expire => {
            let ms = if rng.chance(60) { rng.between(100, 500) } else { rng.between(12_000, 40_000) };
            raw(scene.name, &["PEXPIRE", scene.name, &ms.to_string()])
        }
        Deed::Delete => raw(scene.name, &["DEL", scene.name]),
    })
}

fn blank(scene: &Scene<'_>, kind: &'static str, owner: Owner) -> Call {
    Call { owner, kind, name: scene.name.to_owned(), op: "", args: Args::default(), in_background: false }
}

fn times(wait_ms: Option<i64>, lease_ms: Option<i64>) -> Args {
    Args::default().with("wait_ms", wait_ms).with("lease_ms", lease_ms)
}

/// A command on this name.
pub(crate) fn raw(name: &str, command: &[&str]) -> Op {
    Op::Raw { name: name.to_owned(), command: command.iter().map(|word| (*word).to_owned()).collect() }
}

fn lease(rng: &mut Rng) -> Option<i64> {
    match rng.below(100) {
        0..35 => None,
        35..75 => Some(rng.between(50, 400)),
        _ => Some(rng.between(12_000, 30_000)),
    }
}
