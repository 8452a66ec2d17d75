use std::collections::BTreeSet;

use super::*;

fn settings(departures: bool) -> Settings {
    let casts = vec![[Language::Rust; CLIENTS.len()]];
    Settings { families: families(&[], |_| true), casts, departures }
}

fn mixed() -> Settings {
    Settings { casts: vec![[Language::Java, Language::Rust, Language::Java]], ..settings(false) }
}

fn all_rounds() -> Vec<Round> {
    let of = |settings: &Settings| (1..=8).flat_map(|seed| rounds(seed, 300, settings)).collect::<Vec<_>>();
    [of(&settings(true)), of(&mixed())].concat()
}

#[test]
fn steps_follow_each_other_and_are_read_before_the_next() {
    for round in all_rounds() {
        for pair in round.steps.windows(2) {
            assert!(pair[0].at <= pair[0].ends && pair[0].ends <= pair[0].reads, "{}", pair[0]);
            assert!(pair[0].reads < pair[1].at && pair[0].number < pair[1].number, "{}\n{}", pair[0], pair[1]);
        }
        assert!(round.steps.last().is_none_or(|last| last.reads < LONG_MS), "a long lease may end in it");
    }
}

#[test]
fn a_sequence_has_about_as_many_steps_as_were_asked_for() {
    for seed in 1..=8 {
        let count: usize = rounds(seed, 300, &settings(true)).iter().map(|round| round.steps.len()).sum();
        assert!((300..320).contains(&count), "{count}");
    }
}

#[test]
fn every_kind_and_every_operation_is_met_in_a_few_seeds() {
    let mut met = BTreeSet::new();
    for step in all_rounds().iter().flat_map(|round| &round.steps) {
        match &step.op {
            Op::Call(call) => {
                met.insert(call.kind);
                met.insert(call.op);
                if call.in_background {
                    met.insert("in the background");
                }
            }
            Op::Await(_) => drop(met.insert("await")),
            Op::Cancel(_) => drop(met.insert("cancel")),
            Op::Sleep => {}
            Op::Raw { command, .. } => drop(met.insert(if command[0] == "DEL" { "DEL" } else { "PEXPIRE" })),
            Op::Kill(_) => drop(met.insert("kill")),
        }
    }
    let kinds = FAMILIES.iter().flat_map(|family| family.kinds).copied();
    let ops = ["lock", "tryLock", "unlock", "forceUnlock", "isLocked", "isHeldByCurrentThread", "getHoldCount"];
    let others = ["remainTimeToLive", "getToken", "tryLockAndGetToken", "in the background"];
    let rest = ["await", "cancel", "DEL", "PEXPIRE", "kill"];
    for wanted in kinds.chain(ops).chain(others).chain(rest) {
        assert!(met.contains(wanted), "{wanted} in {met:?}");
    }
}

#[test]
fn a_name_belongs_to_one_family_and_to_one_round() {
    let mut names = BTreeSet::new();
    for round in rounds(3, 300, &settings(true)) {
        for (name, family) in &round.names {
            assert!(names.insert(name.clone()), "{name}");
            let calls = round.steps.iter().filter_map(|step| match &step.op {
                Op::Call(call) if call.name == *name => Some(call),
                _ => None,
            });
            assert!(calls.into_iter().all(|call| family.kinds.contains(&call.kind)));
        }
    }
}

#[test]
fn what_was_begun_is_awaited_at_most_once_and_not_when_its_client_is_gone() {
    for round in all_rounds() {
        let mut open = BTreeMap::new();
        for step in &round.steps {
            match &step.op {
                Op::Call(call) if call.in_background => drop(open.insert(step.number, call.owner.client)),
                Op::Await(started) | Op::Cancel(started) => assert!(open.remove(started).is_some(), "{step}"),
                Op::Kill(client) => open.retain(|_, owner| owner != client),
                _ => {}
            }
        }
        assert!(round.must_restart || open.is_empty(), "{open:?} in round {}", round.number);
    }
}

#[test]
fn without_its_beginning_a_wait_is_not_awaited_either() {
    let settings = settings(true);
    let all = (1..=8).flat_map(|seed| rounds(seed, 300, &settings));
    let mut tried = 0;
    for round in all {
        let Some(begins) = round.steps.iter().find(|step| step.starts_handle()).map(|step| step.number) else {
            continue;
        };
        let Some(fewer) = without(&round, &settings, |step| step.number != begins) else { continue };
        tried += 1;
        assert!(fewer.steps.len() < round.steps.len());
        assert!(fewer.steps.iter().all(|step| step.op != Op::Await(begins) && step.number != begins));
    }
    assert!(tried > 5, "{tried}");
}

#[test]
fn a_slower_round_keeps_its_order_with_longer_leases_on_new_names() {
    let settings = settings(true);
    let Some(round) = rounds(1, 300, &settings)
        .into_iter()
        .find(|round| round.steps.iter().any(|step| matches!(&step.op, Op::Call(call) if call.lease_ms().is_some())))
    else {
        panic!("no lease in a whole sequence");
    };
    let slower = renamed(&stretched(&round, 3), 2);
    assert_eq!(slower.stretch, 3);
    for (step, slow) in round.steps.iter().zip(&slower.steps) {
        assert_eq!((slow.at, slow.ends, slow.reads), (3 * step.at, 3 * step.ends, 3 * step.reads));
        if let (Op::Call(call), Op::Call(slow)) = (&step.op, &slow.op) {
            assert_eq!(slow.lease_ms(), call.lease_ms().map(|ms| 3 * ms));
            assert_eq!(slow.wait_ms(), call.wait_ms().map(|ms| 3 * ms));
            assert_eq!(slow.name, format!("{}~2", call.name));
        }
    }
    let twice = renamed(&slower, 5);
    assert!(twice.names.iter().all(|(name, _)| name.ends_with("~2~5")));
    assert!(twice.steps.iter().filter_map(Step::name).all(|name| name.ends_with("~2~5")));
}
