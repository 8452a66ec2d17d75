//! A round on every side at once: each step is done at the same time on all of them, and then they are compared.

use std::collections::BTreeMap;

use futures_util::future::try_join_all;

use super::call::Step;
use super::fault::Fault;
use super::judge::{Judge, Verdict, described};
use super::plan::Round;
use super::record::View;
use super::side::{ALL_JAVA, Answer, Clock, Observed, Plan, Side};
use crate::Outcome;
use crate::replay::rules::Rule;

/// A side may be behind its time by so much. The planner's times leave more room than this.
const LATE: i64 = 90;
/// A round begins so long after everybody knows that it does.
const LEAD_IN: i64 = 30;

/// What is needed to start the sides of a run.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    /// The sides that are compared with the one where all is Java.
    pub(crate) plans: Vec<Plan>,
    pub(crate) kinds: Vec<&'static str>,
    pub(crate) fault: Option<Fault>,
    pub(crate) verbose: bool,
}

/// Sides at work; the first is all Java.
pub(crate) struct Bench {
    stage: Stage,
    sides: Vec<Side>,
    /// Nothing is left of the round before.
    clean: bool,
}

/// How often a rule was needed.
pub(crate) type Used = BTreeMap<Rule, usize>;

/// What became of a round.
pub(crate) enum Course {
    Fits(Used),
    Late(Lateness),
    Differs(Box<Mismatch>),
}

/// Who was behind its time, so that nothing can be told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lateness {
    pub(crate) step: usize,
    pub(crate) side: &'static str,
    pub(crate) ms: i64,
    /// The step itself took too long, while the side was in time before and after.
    pub(crate) slow: bool,
}

/// The first step that is not as in Java, on one side.
#[derive(Clone, Debug)]
pub(crate) struct Mismatch {
    pub(crate) round: usize,
    pub(crate) step: Step,
    pub(crate) side: &'static str,
    pub(crate) differences: Vec<String>,
    pub(crate) java: Vec<String>,
    pub(crate) here: Vec<String>,
}

impl Stage {
    pub(crate) async fn start(&self) -> Outcome<Bench> {
        let plans = [ALL_JAVA].into_iter().chain(self.plans.iter().copied());
        let sides = try_join_all(plans.map(|plan| Side::start(plan, self.fault, &self.kinds))).await?;
        Ok(Bench { stage: self.clone(), sides, clean: true })
    }
}

impl Bench {
    /// Runs the round, with new processes if the last one did not end well. Clients that went away in it are there again
    /// afterwards.
    pub(crate) async fn run(&mut self, round: &Round) -> Outcome<Course> {
        if !std::mem::take(&mut self.clean) {
            self.restart().await?;
        }
        try_join_all(self.sides.iter_mut().map(Side::clean)).await?;
        let mut judges = Vec::new();
        for side in &self.sides[1..] {
            judges.push(Judge::new(side.plan, round.stretch)?);
        }
        let clock = Clock::start_in(LEAD_IN);
        let (mut used, mut late, mut lost) = (Used::new(), None, false);
        for step in &round.steps {
            let observed = try_join_all(self.sides.iter_mut().map(|side| side.step(step, &clock))).await?;
            lost |= observed.iter().any(|observed| observed.answer.as_ref().is_some_and(Answer::is_missing));
            late = late.or_else(|| self.lateness(step, &observed, LATE * round.stretch));
            if late.is_some() {
                // Nothing can be told any more, but the end of the round leaves its clients fit for the next.
                continue;
            }
            for (judge, here) in judges.iter_mut().zip(1..) {
                let (java, other) = (self.view(0, &observed), self.view(here, &observed));
                match judge.judge(step, java, other, &clock)? {
                    Verdict::Fits(rules) => rules.into_iter().for_each(|rule| *used.entry(rule).or_default() += 1),
                    Verdict::Differs(differences) => {
                        return Ok(Course::Differs(Box::new(Mismatch {
                            round: round.number,
                            step: step.clone(),
                            side: self.sides[here].plan.name,
                            differences,
                            java: described(java.observed, java.names),
                            here: described(other.observed, other.names),
                        })));
                    }
                }
            }
        }
        self.clean = !round.must_restart && !lost && !self.sides.iter().any(Side::is_busy);
        if self.clean {
            let (kinds, sides) = (self.stage.kinds.clone(), self.sides.iter_mut());
            try_join_all(sides.map(|side| side.restore(&kinds))).await?;
        }
        Ok(late.map_or(Course::Fits(used), Course::Late))
    }

    /// Tells whoever wants to know of a round that was late.
    pub(crate) fn tell(&self, round: &Round, lateness: &Lateness) {
        if self.stage.verbose {
            let Lateness { step, side, ms, slow } = lateness;
            eprintln!(
                "late: round {} step {step}: {side} by {ms} ms{}",
                round.number,
                if *slow { ", slow" } else { "" }
            );
        }
    }

    /// New sides instead of these.
    async fn restart(&mut self) -> Outcome {
        let sides = std::mem::take(&mut self.sides);
        for side in sides {
            side.end().await?;
        }
        self.sides = self.stage.start().await?.sides;
        Ok(())
    }

    pub(crate) async fn end(self) -> Outcome {
        for side in self.sides {
            side.end().await?;
        }
        Ok(())
    }

    fn view<'a>(&'a self, side: usize, observed: &'a [Observed]) -> View<'a> {
        View { observed: &observed[side], names: &self.sides[side].names }
    }

    fn lateness(&self, step: &Step, observed: &[Observed], limit: i64) -> Option<Lateness> {
        // That is no lateness.
        if observed.iter().any(|observed| observed.answer.as_ref().is_some_and(Answer::is_missing)) {
            return None;
        }
        let late = |side: &Side, observed: &Observed| {
            let answered = observed.done - step.ends;
            let (begun, read) = (observed.begun - step.at, observed.read.hi - step.reads);
            let ms = begun.max(answered).max(read);
            let slow = begun <= limit && answered > limit;
            (ms > limit).then_some(Lateness { step: step.number, side: side.plan.name, ms, slow })
        };
        self.sides.iter().zip(observed).find_map(|(side, observed)| late(side, observed))
    }
}

/// The rules that were needed anywhere.
pub(crate) fn sum(all: &mut Used, more: &Used) {
    for (rule, count) in more {
        *all.entry(*rule).or_default() += count;
    }
}
