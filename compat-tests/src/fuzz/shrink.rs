//! Makes a mismatch short: as few steps as still show it.

use super::call::Step;
use super::lockstep::{Bench, Course, Mismatch};
use super::plan::{Round, Settings, renamed, without};
use super::report::Found;
use super::run::in_time;
use crate::Outcome;

/// How often a mismatch is looked for again before it counts as one that comes and goes.
const TRIES: usize = 3;

/// Runs parts of the round, at most so many times.
pub(crate) async fn shrink(
    bench: &mut Bench,
    round: &Round,
    first: Mismatch,
    settings: &Settings,
    runs: usize,
) -> Outcome<Found> {
    let mut search = Search { bench, settings, left: runs, runs: 0 };
    let prefix = prefix(round, first.step.number);
    let mut best = Found { mismatch: first, steps: prefix.steps.clone(), seen_again: false };
    for _ in 0..TRIES {
        if let Some(mismatch) = search.shows(&prefix).await? {
            best = Found { mismatch, steps: prefix.steps.clone(), seen_again: true };
            break;
        }
    }
    if !best.seen_again {
        return Ok(best);
    }
    let mut round = prefix;
    let name = best.mismatch.step.name().map(str::to_owned);
    if let Some(name) = name {
        search.narrow(&mut round, &mut best, |step| step.name().is_none_or(|other| other == name)).await?;
    }
    let mut size = round.steps.len().div_ceil(2);
    while size > 0 && search.left > 0 {
        let mut end = round.steps.len();
        while end > 0 && search.left > 0 {
            let from = end.saturating_sub(size);
            let dropped: Vec<usize> = round.steps[from..end].iter().map(|step| step.number).collect();
            search.narrow(&mut round, &mut best, |step| !dropped.contains(&step.number)).await?;
            end = from.min(round.steps.len());
        }
        size /= 2;
    }
    Ok(best)
}

struct Search<'a> {
    bench: &'a mut Bench,
    settings: &'a Settings,
    left: usize,
    runs: usize,
}

impl Search<'_> {
    /// Keeps only these steps, if the rest still shows a mismatch on the same side.
    async fn narrow(&mut self, round: &mut Round, best: &mut Found, keep: impl Fn(&Step) -> bool) -> Outcome {
        let Some(fewer) = without(round, self.settings, keep) else { return Ok(()) };
        if self.left == 0 || fewer.steps.len() >= round.steps.len() || fewer.steps.is_empty() {
            return Ok(());
        }
        if let Some(mismatch) = self.shows(&fewer).await?.filter(|mismatch| mismatch.side == best.mismatch.side) {
            *round = prefix(&fewer, mismatch.step.number);
            *best = Found { mismatch, steps: round.steps.clone(), seen_again: true };
        }
        Ok(())
    }

    async fn shows(&mut self, round: &Round) -> Outcome<Option<Mismatch>> {
        self.left = self.left.saturating_sub(1);
        self.runs += 1;
        // What a process remembers of the names of one run must not reach into the next.
        match in_time(self.bench, &renamed(round, self.runs)).await? {
            (Course::Differs(mismatch), _) => Ok(Some(*mismatch)),
            _ => Ok(None),
        }
    }
}

/// Up to this step.
fn prefix(round: &Round, number: usize) -> Round {
    let steps = round.steps.iter().filter(|step| step.number <= number).cloned().collect();
    Round { steps, must_restart: true, ..round.clone() }
}
