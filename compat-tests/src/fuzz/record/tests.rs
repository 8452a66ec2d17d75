use serde_json::json;

use super::super::call::{Args, Call, Owner};
use super::*;
use crate::replay::compare::{Context, Scope, differences};
use crate::replay::expect::{Expectation, Seen};
use crate::replay::names::Bindings;
use crate::replay::rules::Span;

/// What a side showed: a hold of `$A:1` with so much time left.
fn observed(begun: i64, answered: i64, pttl: i64, read: i64) -> Observed {
    let fields = BTreeMap::from([(b"id:1".to_vec(), b"1".to_vec())]);
    Observed {
        begun,
        done: answered,
        answer: Some(Answer { result: Ok(json!(true)), at: answered }),
        ended: Vec::new(),
        read: Span { lo: read, hi: read + 1 },
        snapshot: BTreeMap::from([(b"k".to_vec(), Found { content: FoundContent::Hash(fields), pttl })]),
        heard: Vec::new(),
    }
}

fn step(number: usize) -> Step {
    let owner = Owner { client: 0, thread: 1 };
    let args = Args::default().with("wait_ms", 0).with("lease_ms", 5_000);
    let call = Call { owner, kind: "lock", name: "k".to_owned(), op: "tryLock", args, in_background: false };
    Step { number, op: super::super::call::Op::Call(call), at: 0, ends: 0, reads: 25 }
}

/// The differences between the sides after each of these steps.
fn compared(steps: &[(Observed, Observed)]) -> Vec<Vec<String>> {
    let (clock, mut times) = (Clock::start_in(0), Times::default());
    let names = Names::new([("A".to_owned(), "id".to_owned())]);
    let compare = |(number, (java, other)): (usize, &(Observed, Observed))| {
        let step = step(number);
        let view = |observed| View { observed, names: &names };
        let (java, other_view) = (view(java), view(other));
        let recording = Recording { step: &step, begun: None, java, other: other_view, clock: &clock, stretch: 1 };
        let recorded = recording.step(&mut times).expect("a step of the format");
        let result = other.answer.as_ref().map(|answer| answer.result.clone());
        let seen = Seen { result, took: None, snapshot: other.snapshot.clone(), heard: Vec::new() };
        let context = Context { names: &names, behind: 0, clock: clock.wall(other.begun) };
        let expected = Expectation::recorded(&recorded, &recorded);
        differences(&expected, &seen, &context, Scope::Everything, &mut Bindings::default())
    };
    steps.iter().enumerate().map(compare).collect()
}

#[test]
fn a_ttl_may_be_off_by_what_the_sides_were_apart_and_by_no_more() {
    let java = || observed(0, 3, 4_975, 25);
    assert_eq!(compared(&[(java(), observed(0, 4, 4_975, 25))]), [Vec::<String>::new()]);
    // Begun 30 ms later, so that it ends 30 ms later.
    assert_eq!(compared(&[(java(), observed(30, 34, 4_990, 40))]), [Vec::<String>::new()]);
    // Begun at the same time and answered at once, but the time is 60 ms too long.
    let [found] = &compared(&[(java(), observed(0, 4, 5_035, 25))])[..] else { panic!("one step") };
    assert!(found[0].contains("pttl 5035 outside"), "{found:?}");
}

#[test]
fn a_time_that_was_not_set_anew_keeps_its_own_tolerance() {
    let first = (observed(0, 3, 4_975, 25), observed(80, 84, 5_000, 80));
    // Everybody was quick this time, and the key is as old as it was.
    let second = (observed(100, 101, 4_875, 125), observed(100, 101, 4_955, 125));
    assert_eq!(compared(&[first.clone(), second]), [Vec::<String>::new(), Vec::new()]);
    // The same difference in a step that set the time anew is one.
    let second = (observed(100, 101, 4_975, 125), observed(100, 101, 5_055, 125));
    assert_eq!(compared(&[first, second])[1].len(), 1);
}

#[test]
fn another_result_and_a_missing_key_are_told() {
    let mut other = observed(0, 4, 4_975, 25);
    other.answer = Some(Answer { result: Ok(json!(false)), at: 4 });
    other.snapshot.clear();
    let found = compared(&[(observed(0, 3, 4_975, 25), other)]).concat();
    assert!(found.iter().any(|text| text.contains("returned false, expected true")), "{found:?}");
    assert!(found.iter().any(|text| text.contains("key \"k\" is missing")), "{found:?}");
}
