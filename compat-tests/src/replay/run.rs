//! All scenarios, several side by side.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::format::{self, Scenario};
use super::kinds::{self, Status};
use super::lane::Lane;
use super::options::Options;
use super::report::{Tally, Verdict};
use super::rules::{Rule, Table};
use super::scenario::{Pass, replay};
use crate::{Failure, Outcome};

/// Replays everything and prints a line a scenario, in the order of the files. Says whether nothing failed.
pub(crate) async fn run(options: &Options) -> Outcome<bool> {
    let table = Arc::new(Table::own()?);
    let mut scenarios = format::load(&options.directories)?;
    if let Some(only) = &options.only {
        scenarios.retain(|scenario| scenario.name.contains(only));
    }
    let scenarios = Arc::new(scenarios);
    let mut done: BTreeMap<usize, Verdict> = BTreeMap::new();
    let mut to_do = Vec::new();
    for (index, scenario) in scenarios.iter().enumerate() {
        match without_replay(scenario) {
            Some(verdict) => {
                done.insert(index, verdict);
            }
            None => to_do.push(index),
        }
    }
    let (verdicts, mut incoming) = mpsc::unbounded_channel();
    let mut workers = start_workers(options, &scenarios, to_do, &table, verdicts).await?;

    let mut tally = Tally::default();
    for (index, scenario) in scenarios.iter().enumerate() {
        let verdict = loop {
            if let Some(verdict) = done.remove(&index) {
                break verdict;
            }
            let Some((other, verdict)) = incoming.recv().await else {
                return Err(why_they_ended(&mut workers).await);
            };
            done.insert(other, verdict);
        };
        println!("{}: {verdict}", scenario.name);
        tally.count(&scenario.name, &verdict);
    }
    tally.closing(&table).iter().for_each(|line| println!("{line}"));
    Ok(tally.all_well())
}

/// The verdict over a scenario that needs no replay, or cannot have one.
fn without_replay(scenario: &Scenario) -> Option<Verdict> {
    let kinds: BTreeSet<&str> = scenario.steps.iter().filter_map(|step| step.object.as_deref()).collect();
    let of = |wanted: Status| -> Vec<String> {
        kinds.iter().filter(|kind| kinds::status(kind) == wanted).map(|kind| (*kind).to_owned()).collect()
    };
    let (unknown, not_yet) = (of(Status::Unknown), of(Status::NotYet));
    if !unknown.is_empty() {
        return Some(Verdict::Failed(format!("not a kind of the format: {}", unknown.join(", "))));
    }
    (!not_yet.is_empty()).then_some(Verdict::Skipped(not_yet))
}

/// Workers that take scenarios from one list, each on a Redis of its own.
async fn start_workers(
    options: &Options,
    scenarios: &Arc<Vec<Scenario>>,
    to_do: Vec<usize>,
    table: &Arc<Table>,
    verdicts: mpsc::UnboundedSender<(usize, Verdict)>,
) -> Outcome<JoinSet<()>> {
    let jobs = if options.redis.is_some() { 1 } else { options.jobs };
    let (to_do, next) = (Arc::new(to_do), Arc::new(AtomicUsize::new(0)));
    let mut workers = JoinSet::new();
    for _ in 0..jobs.min(to_do.len()) {
        let mut lane = match &options.redis {
            Some(url) => Lane::shared(url, options.flush).await?,
            None => Lane::private().await?,
        };
        let (scenarios, table, verdicts) = (scenarios.clone(), table.clone(), verdicts.clone());
        let (to_do, next) = (to_do.clone(), next.clone());
        workers.spawn(async move {
            while let Some(index) = to_do.get(next.fetch_add(1, Ordering::Relaxed)) {
                let verdict = judge(&mut lane, &scenarios[*index], &table).await;
                if verdicts.send((*index, verdict)).is_err() {
                    return;
                }
            }
        });
    }
    Ok(workers)
}

async fn judge(lane: &mut Lane, scenario: &Scenario, table: &Table) -> Verdict {
    let mut needed: BTreeSet<Rule> = BTreeSet::new();
    for pass in Pass::ALL {
        match replay(lane, scenario, pass).await {
            Ok(rules) => needed.extend(rules),
            Err(failure) if pass == Pass::Plain => return Verdict::Failed(format!("{failure:?}")),
            Err(failure) => return Verdict::Failed(format!("with local hand-off: {failure:?}")),
        }
    }
    Verdict::of(&scenario.name, needed, table)
}

async fn why_they_ended(workers: &mut JoinSet<()>) -> Failure {
    while let Some(worker) = workers.join_next().await {
        if let Err(error) = worker {
            return Failure::from(error);
        }
    }
    Failure::new("all workers have ended before all scenarios were replayed")
}
