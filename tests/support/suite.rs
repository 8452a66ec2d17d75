//! One suite over every kind of lock: what all of them promise, asked in the same words.
//!
//! A case is a function over a [`Subject`]; `suite!` makes a named test of every case for one kind. A kind that does not keep
//! to a case opts out of it by name and with a reason. The case is run all the same and must fail: an opt-out that is not
//! needed fails the test. `tests/suite_complete.rs` sees to it that no kind is missing.
#![allow(
    dead_code,
    unused_macros,
    missing_docs,
    unreachable_pub,
    clippy::unwrap_used,
    clippy::expect_used,
    reason = "test support"
)]

#[path = "suite/cancel.rs"]
pub mod cancel;
#[path = "suite/ends.rs"]
pub mod ends;
#[path = "suite/exclusion.rs"]
pub mod exclusion;
#[path = "suite/lease.rs"]
pub mod lease;
#[path = "suite/loss.rs"]
pub mod loss;
#[path = "suite/messages.rs"]
pub mod messages;
#[path = "suite/outcome.rs"]
pub mod outcome;
#[path = "suite/reentry.rs"]
pub mod reentry;
#[path = "suite/refusal.rs"]
pub mod refusal;
#[path = "suite/scene.rs"]
pub mod scene;
#[path = "suite/wait.rs"]
pub mod wait;

use std::{future::Future, io::Write, time::Duration};

use redlatch::{AnyLock, Client, Kind};

use crate::support::within;

/// A case that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// A kind of lock, as the suite sees it.
#[derive(Debug)]
pub struct Subject {
    pub kind: Kind,
    /// The test file that runs the suite for this kind.
    pub file: &'static str,
    /// A handle of this kind.
    pub lock: fn(&Client, &str) -> AnyLock,
    /// A handle whose holds and those of `lock` keep each other out: the kind itself, but for readers the writer.
    pub rival: fn(&Client, &str) -> AnyLock,
    /// Cases that the kind does not keep to, each with the reason.
    pub opts_out: &'static [(&'static str, &'static str)],
}

/// Why the kinds that refuse re-entry opt out of what re-entry is for.
const REFUSES_REENTRY: &str = "an owner that holds it gets a typed error; tests/non_reentrant.rs has that";

pub static LOCK: Subject = Subject {
    kind: Kind::Lock,
    file: "kinds",
    lock: |client, name| client.lock(name).into_any(),
    rival: |client, name| client.lock(name).into_any(),
    opts_out: &[],
};

pub static FAIR: Subject = Subject {
    kind: Kind::Fair,
    file: "fair",
    lock: |client, name| client.fair_lock(name).into_any(),
    rival: |client, name| client.fair_lock(name).into_any(),
    opts_out: &[],
};

pub static READ: Subject = Subject {
    kind: Kind::Read,
    file: "read_write",
    lock: |client, name| client.read_write_lock(name).read().into_any(),
    rival: |client, name| client.read_write_lock(name).write().into_any(),
    opts_out: &[],
};

pub static WRITE: Subject = Subject {
    kind: Kind::Write,
    file: "read_write",
    lock: |client, name| client.read_write_lock(name).write().into_any(),
    rival: |client, name| client.read_write_lock(name).write().into_any(),
    opts_out: &[],
};

pub static FENCED: Subject = Subject {
    kind: Kind::Fenced,
    file: "fenced",
    lock: |client, name| client.fenced_lock(name).into_any(),
    rival: |client, name| client.fenced_lock(name).into_any(),
    opts_out: &[],
};

pub static SPIN: Subject = Subject {
    kind: Kind::Spin,
    file: "spin",
    lock: |client, name| client.spin_lock(name).into_any(),
    rival: |client, name| client.spin_lock(name).into_any(),
    opts_out: &[(
        "without_the_right_to_a_channel_a_wait_is_an_error_and_leaves_nothing_behind",
        "it listens to nothing, so it needs no such right",
    )],
};

pub static NON_REENTRANT: Subject = Subject {
    kind: Kind::NonReentrant,
    file: "non_reentrant",
    lock: |client, name| client.non_reentrant_lock(name).into_any(),
    rival: |client, name| client.non_reentrant_lock(name).into_any(),
    opts_out: &[
        ("an_owner_takes_it_again_and_has_to_give_it_back_as_often", REFUSES_REENTRY),
        ("guards_of_one_owner_go_in_any_order_and_never_shorten_each_other", REFUSES_REENTRY),
        ("a_fixed_hold_beside_a_renewed_one_ends_alone", REFUSES_REENTRY),
    ],
};

pub static NON_REENTRANT_FAIR: Subject = Subject {
    kind: Kind::NonReentrantFair,
    file: "non_reentrant",
    lock: |client, name| client.non_reentrant_fair_lock(name).into_any(),
    rival: |client, name| client.non_reentrant_fair_lock(name).into_any(),
    opts_out: NON_REENTRANT.opts_out,
};

pub static ALL: [&Subject; 8] = [&LOCK, &FAIR, &READ, &WRITE, &FENCED, &SPIN, &NON_REENTRANT, &NON_REENTRANT_FAIR];

impl Subject {
    /// Several owners can hold it together.
    pub fn is_shared(&self) -> bool {
        self.kind == Kind::Read
    }

    /// An owner that holds it can take it again.
    pub fn is_reentrant(&self) -> bool {
        !matches!(self.kind, Kind::NonReentrant | Kind::NonReentrantFair)
    }

    /// Waiters stand in a queue in Redis.
    pub fn is_fair(&self) -> bool {
        matches!(self.kind, Kind::Fair | Kind::NonReentrantFair)
    }

    /// Shares its key between readers and writers.
    pub fn is_read_write(&self) -> bool {
        matches!(self.kind, Kind::Read | Kind::Write)
    }

    /// Where a release is told, but for fair kinds: there it is the beginning of that of each waiter. `None`: nowhere.
    pub fn channel(&self, name: &str) -> Option<String> {
        match self.kind {
            Kind::Spin => None,
            Kind::Read | Kind::Write => Some(prefixed("redisson_rwlock", name)),
            _ => Some(prefixed("redisson_lock__channel", name)),
        }
    }
}

/// `p:{N}`, or `p:N` when the name has a `{` anywhere.
pub fn prefixed(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

/// `{N}:s`, or `N:s` when the name has a `{` anywhere.
pub fn suffixed(name: &str, suffix: &str) -> String {
    if name.contains('{') { format!("{name}:{suffix}") } else { format!("{{{name}}}:{suffix}") }
}

/// Runs a case, or makes sure that the kind is right to opt out of it.
pub async fn run(subject: &'static Subject, case: &str, work: impl Future<Output = ()> + Send + 'static) {
    let Some((_, reason)) = subject.opts_out.iter().find(|(name, _)| *name == case) else {
        return within(LIMIT, case, work).await;
    };
    // Past the harness, which shows the output of failed tests only.
    let _ = writeln!(std::io::stderr(), "{:?} opts out of {case}: {reason}", subject.kind);
    let outcome = tokio::spawn(async move { within(LIMIT, "the case", work).await }).await;
    let has_failed = outcome.is_err_and(|e| e.is_panic());
    assert!(has_failed, "{:?} keeps to {case}, so it need not opt out ({reason})", subject.kind);
}

/// Gives the list of cases to another macro.
macro_rules! with_cases {
    ($($then:ident)::+! $($args:tt)*) => {
        $($then)::+! {
            ($($args)*)
            exclusion: a_hold_keeps_the_others_out;
            exclusion: those_who_come_and_go_never_meet on_two_threads;
            wait: a_release_wakes_a_waiter_of_another_client;
            wait: a_release_wakes_a_waiter_of_the_same_client;
            wait: a_wait_that_ends_says_so_in_time_and_leaves_nothing_behind;
            wait: a_try_without_a_wait_asks_once_and_changes_nothing;
            wait: the_end_of_a_lease_ends_the_wait;
            lease: a_fixed_lease_ends_on_time_and_is_not_renewed;
            lease: an_extension_makes_a_hold_last_longer_and_never_shorter;
            lease: a_lease_or_a_name_that_cannot_be_is_refused;
            lease: a_watched_hold_outlives_its_lease_and_renewal_ends_with_it;
            cancel: an_acquire_dropped_at_every_await_point_leaves_nothing_behind;
            cancel: an_acquire_dropped_at_random_times_leaves_nothing_behind on_two_threads;
            cancel: a_cancelled_waiter_passes_its_turn_on;
            cancel: a_cancelled_release_is_finished_by_the_client;
            cancel: a_waiter_that_is_never_polled_again_holds_nobody_up;
            outcome: an_acquire_whose_outcome_is_unknown_is_undone;
            outcome: an_owner_never_gets_two_holds_from_one_whose_outcome_is_unknown;
            outcome: a_release_whose_outcome_is_unknown_is_finished;
            outcome: a_hand_over_whose_outcome_is_unknown_grants_at_most_once;
            outcome: a_renewal_whose_outcome_is_unknown_is_tried_again;
            outcome: a_link_that_is_cut_doubles_and_loses_nothing;
            loss: a_deleted_hold_is_lost_by_the_next_renewal_and_not_made_anew;
            loss: a_hold_that_was_taken_over_is_lost_and_the_next_holder_left_alone;
            loss: a_forced_hold_is_lost_at_once_here_and_by_the_next_renewal_elsewhere;
            loss: a_hold_that_ends_in_silence_is_given_up_before;
            loss: a_key_that_became_something_else_is_left_alone;
            ends: a_dropped_guard_frees_the_lock_for_whoever_waits;
            ends: a_guard_dropped_by_a_panic_is_released;
            ends: shutdown_leaves_holds_to_their_leases_and_ends_waits;
            reentry: an_owner_takes_it_again_and_has_to_give_it_back_as_often;
            reentry: guards_of_one_owner_go_in_any_order_and_never_shorten_each_other;
            reentry: a_fixed_hold_beside_a_renewed_one_ends_alone;
            reentry: a_release_without_a_guard_is_for_the_owner_only;
            refusal: odd_names_are_names_like_any_other;
            refusal: keys_of_another_type_are_refused_and_left_as_they_were;
            refusal: fields_of_other_kinds_are_refused_and_left_as_they_were;
            refusal: with_a_full_server_every_hold_can_be_released;
            refusal: without_the_right_to_publish_a_hold_can_be_released;
            refusal: without_the_right_to_a_channel_a_wait_is_an_error_and_leaves_nothing_behind;
        }
    };
}

/// Tests of one kind: `suite!(fair, FAIR);` makes a module `fair` with a test for every case.
macro_rules! suite {
    ($module:ident, $subject:ident) => {
        mod $module {
            $crate::suite::with_cases! { crate::suite::tests! $subject }
        }
    };
}

macro_rules! tests {
    (($subject:ident) $($group:ident: $case:ident $($flavour:ident)?;)+) => {
        $($crate::suite::test! { $subject $group $case $($flavour)? })+
    };
}

macro_rules! test {
    ($subject:ident $group:ident $case:ident) => {
        #[tokio::test]
        async fn $case() {
            use $crate::suite;
            suite::run(&suite::$subject, stringify!($case), suite::$group::$case(&suite::$subject)).await;
        }
    };
    ($subject:ident $group:ident $case:ident on_two_threads) => {
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            use $crate::suite;
            suite::run(&suite::$subject, stringify!($case), suite::$group::$case(&suite::$subject)).await;
        }
    };
}

macro_rules! names {
    (() $($group:ident: $case:ident $($flavour:ident)?;)+) => {
        &[$(stringify!($case)),+]
    };
}

#[allow(unused_imports, reason = "not every file makes tests of a kind")]
pub(crate) use {names, suite, test, tests, with_cases};

/// The names of all cases.
pub static CASES: &[&str] = with_cases! { names! };
