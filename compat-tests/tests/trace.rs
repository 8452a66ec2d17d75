//! The same call on both sides leaves the same behind: keys, fields, values, TTLs, messages, channels listened on.
//!
//! What differs on purpose is listed in `differences.toml`, each entry with the effects that only one side has. An effect
//! that is not listed fails the run, and so does a listed one that does not occur.

#[path = "trace/stage.rs"]
mod stage;
mod support;

use std::collections::BTreeSet;
use std::time::Duration;

use compat_tests::{Outcome, Source, Trace, differences, redisson_version};
use stage::Stage;
use support::Pair;

/// One call, on a lock that earlier calls have brought into some state.
struct Case {
    name: &'static str,
    before: &'static [Call],
    call: Call,
}

/// Numbers are thread ids, of the acting client.
#[derive(Clone, Copy, Debug)]
enum Call {
    ForceRelease,
    /// An owner of neither side takes it, for 30 s.
    HeldByStranger,
    Lock(i64),
    LockFor(i64, Duration),
    Release(i64),
    TryLock(i64),
    /// Waits a little, in vain if somebody holds it.
    TryLockWithin(i64, Duration),
}

use Call::{ForceRelease, HeldByStranger, Lock, LockFor, Release, TryLock, TryLockWithin};

const SHORT: Duration = Duration::from_secs(5);
const LONG: Duration = Duration::from_secs(50);
const MOMENT: Duration = Duration::from_millis(200);

const CASES: &[Case] = &[
    Case { name: "lock-free", before: &[], call: Lock(1) },
    Case { name: "lock-free-leased", before: &[], call: LockFor(1, SHORT) },
    Case { name: "try-free", before: &[], call: TryLock(1) },
    Case { name: "try-own", before: &[Lock(1)], call: TryLock(1) },
    Case { name: "try-own-longer", before: &[LockFor(1, SHORT)], call: LockFor(1, LONG) },
    Case { name: "try-own-shorter", before: &[Lock(1)], call: LockFor(1, SHORT) },
    Case { name: "try-other-thread", before: &[Lock(1)], call: TryLock(2) },
    Case { name: "try-stranger", before: &[HeldByStranger], call: TryLock(1) },
    Case { name: "wait-stranger", before: &[HeldByStranger], call: TryLockWithin(1, MOMENT) },
    Case { name: "release-last", before: &[Lock(1)], call: Release(1) },
    Case { name: "release-partial", before: &[Lock(1), Lock(1)], call: Release(1) },
    Case { name: "release-partial-longer-first", before: &[LockFor(1, LONG), LockFor(1, SHORT)], call: Release(1) },
    Case { name: "release-partial-shorter-first", before: &[LockFor(1, SHORT), LockFor(1, LONG)], call: Release(1) },
    Case { name: "release-partial-watchdog-first", before: &[Lock(1), LockFor(1, LONG)], call: Release(1) },
    Case { name: "release-free", before: &[], call: Release(1) },
    Case { name: "release-other-thread", before: &[Lock(1)], call: Release(2) },
    Case { name: "release-stranger", before: &[HeldByStranger], call: Release(1) },
    Case { name: "force-own", before: &[Lock(1), Lock(1)], call: ForceRelease },
    Case { name: "force-stranger", before: &[HeldByStranger], call: ForceRelease },
    Case { name: "force-free", before: &[], call: ForceRelease },
];

#[tokio::test]
async fn every_call_leaves_what_redissons_leaves_but_for_the_listed_differences() -> Outcome {
    let pair = Pair::start().await?;
    let mut stage = Stage { trace: Trace::start(&pair.redis).await?, pair };
    // Scripts get loaded; that is not part of any case.
    for side in [Source::Java, Source::Rust] {
        for case in CASES {
            stage.play(side, case, "warm-up").await?;
        }
    }
    let mut wrong = Vec::new();
    for case in CASES {
        let java = stage.play(Source::Java, case, "java").await?;
        let rust = stage.play(Source::Rust, case, "rust").await?;
        let (mut java_listed, mut rust_listed) = (BTreeSet::new(), BTreeSet::new());
        for difference in differences()? {
            if difference.cases.iter().any(|name| name == case.name)
                && difference.redisson.contains(&redisson_version())
            {
                java_listed.extend(difference.java);
                rust_listed.extend(difference.rust);
            }
        }
        wrong.extend(mismatches(case.name, "Java", &java, &rust, &java_listed));
        wrong.extend(mismatches(case.name, "Rust", &rust, &java, &rust_listed));
    }
    assert!(wrong.is_empty(), "with Redisson {}:\n{}", redisson_version(), wrong.join("\n"));
    Ok(())
}

#[test]
fn the_list_names_only_cases_and_versions_there_are() -> Outcome {
    for difference in differences()? {
        let reason = &difference.reason;
        assert!(!reason.is_empty() && difference.source.contains(".java:"), "reason or source: {difference:?}");
        assert!(!difference.java.is_empty() || !difference.rust.is_empty(), "no effect named: {reason}");
        assert!(!difference.cases.is_empty() && !difference.redisson.is_empty(), "applies to nothing: {reason}");
        for case in &difference.cases {
            assert!(CASES.iter().any(|known| known.name == case), "no case {case}: {reason}");
        }
        for version in &difference.redisson {
            assert!(["4.7.0", "3.52.0", "3.17.7"].contains(&version.as_str()), "version {version}: {reason}");
        }
    }
    Ok(())
}

/// Effects of one side that the other has not and the list does not name, and named ones that did not occur.
fn mismatches(
    case: &str,
    side: &str,
    ours: &BTreeSet<String>,
    theirs: &BTreeSet<String>,
    listed: &BTreeSet<String>,
) -> Vec<String> {
    let alone: BTreeSet<String> = ours.difference(theirs).cloned().collect();
    let unlisted = alone.difference(listed).map(|effect| format!("{case}: only {side}: {effect}"));
    let absent = listed.difference(&alone).map(|effect| format!("{case}: listed for {side}, did not occur: {effect}"));
    unlisted.chain(absent).collect()
}
