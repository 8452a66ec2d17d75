//! All sequences, several side by side.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::mpsc;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::Instant;

use super::call::CLIENTS;
use super::family::Family;
use super::forecast::{Cast, Language};
use super::lockstep::{Bench, Course, Lateness, Mismatch, Stage, Used, sum};
use super::options::{Mode, Options};
use super::plan::{Round, Settings, families, renamed, rounds, stretched};
use super::report::{self, Found};
use super::shrink::shrink;
use super::side::Plan;
use crate::{Failure, Outcome, built_peer, redisson_before, redisson_version};

/// How much more time than planned a round is given, attempt by attempt.
const STRETCHES: [i64; 9] = [1, 1, 2, 2, 3, 4, 6, 8, 8];
/// A step that is slow in so many attempts is slow by itself.
const SLOW: usize = 3;

/// A sequence to run.
#[derive(Clone, Copy, Debug)]
struct Task {
    mode: Mode,
    seed: u64,
}

/// What became of a sequence.
#[derive(Debug)]
pub(crate) struct Outturn {
    pub(crate) mode: Mode,
    pub(crate) seed: u64,
    pub(crate) rounds: usize,
    pub(crate) steps: usize,
    /// Rounds that were run again because somebody was late.
    pub(crate) again: usize,
    pub(crate) used: Used,
    pub(crate) found: Option<Found>,
    pub(crate) took: std::time::Duration,
}

/// Runs everything and prints a line a sequence. Says whether all was as in Java.
pub(crate) async fn run(options: Options) -> Outcome<bool> {
    let redisson = redisson_version();
    let families = families(&options.kinds, |since| !redisson_before(since.0, since.1));
    if families.is_empty() {
        return Err(Failure::new(format!("Redisson {redisson} has no such kind: {}", options.kinds.join(", "))));
    }
    let tasks =
        options.modes.iter().flat_map(|mode| options.seeds.iter().map(|seed| Task { mode: *mode, seed: *seed }));
    let tasks: VecDeque<Task> = tasks.collect();
    if options.list {
        for task in tasks {
            let settings = settings(&families, task);
            report::list(task.mode, task.seed, &rounds(task.seed, options.steps, &settings));
        }
        return Ok(true);
    }
    let asked = redisson.clone();
    spawn_blocking(move || built_peer(&asked)).await??;
    let count = tasks.len();
    let (options, families, tasks) = (Arc::new(options), Arc::new(families), Arc::new(Mutex::new(tasks)));
    let (sender, mut outturns) = mpsc::unbounded_channel();
    let mut workers = JoinSet::new();
    for _ in 0..options.jobs.min(count) {
        let (options, families, tasks, sender) = (options.clone(), families.clone(), tasks.clone(), sender.clone());
        workers.spawn(async move {
            loop {
                let Some(task) = tasks.lock().pop_front() else { return };
                let settings = settings(&families, task);
                let outturn = sequence(&options, task, &settings).await;
                if sender.send(outturn).is_err() {
                    return;
                }
            }
        });
    }
    drop(sender);
    let (mut used, mut mismatches) = (Used::new(), 0);
    while let Some(outturn) = outturns.recv().await {
        let outturn = outturn?;
        report::outturn(&outturn, &redisson, options.steps);
        sum(&mut used, &outturn.used);
        mismatches += usize::from(outturn.found.is_some());
    }
    while let Some(worker) = workers.join_next().await {
        worker?;
    }
    report::closing(&used, count, mismatches)?;
    Ok(mismatches == 0)
}

/// The sides that are compared with the one where all is Java.
fn plans(task: Task) -> Vec<Plan> {
    let all_rust: Cast = [Language::Rust; CLIENTS.len()];
    match task.mode {
        Mode::Pure => vec![
            Plan { name: "Rust", cast: all_rust, handoff: false },
            Plan { name: "Rust with local hand-off", cast: all_rust, handoff: true },
        ],
        Mode::Mixed => {
            let third = if task.seed.is_multiple_of(2) { Language::Java } else { Language::Rust };
            vec![Plan { name: "mixed", cast: [Language::Java, Language::Rust, third], handoff: false }]
        }
    }
}

fn settings(families: &[&'static Family], task: Task) -> Settings {
    let mut casts: Vec<Cast> = plans(task).iter().map(|plan| plan.cast).collect();
    casts.dedup();
    Settings { families: families.to_vec(), casts, departures: true }
}

async fn sequence(options: &Options, task: Task, settings: &Settings) -> Outcome<Outturn> {
    let began = Instant::now();
    let rounds = rounds(task.seed, options.steps, settings);
    let mut kinds: Vec<&'static str> = settings.families.iter().flat_map(|family| family.kinds).copied().collect();
    kinds.dedup();
    let stage = Stage { plans: plans(task), kinds, fault: options.fault, verbose: options.verbose };
    let mut bench = stage.start().await?;
    let Task { mode, seed } = task;
    let (mut used, mut again, mut found) = (Used::new(), 0, None);
    let mut steps = 0;
    for round in &rounds {
        let (course, late) = in_time(&mut bench, round).await?;
        again += late;
        steps += round.steps.len();
        match course {
            Course::Fits(rules) => sum(&mut used, &rules),
            Course::Late(_) => return Err(Failure::new("a round is late after its last attempt")),
            Course::Differs(mismatch) => {
                found = Some(shrink(&mut bench, round, *mismatch, settings, options.shrink).await?);
                break;
            }
        }
    }
    bench.end().await?;
    Ok(Outturn { mode, seed, rounds: rounds.len(), steps, again, used, found, took: began.elapsed() })
}

/// Runs the round until it is in time; says how often it was late.
pub(crate) async fn in_time(bench: &mut Bench, round: &Round) -> Outcome<(Course, usize)> {
    let mut slow: Vec<Lateness> = Vec::new();
    for (late, stretch) in STRETCHES.into_iter().enumerate() {
        // The names are new: what a client remembers of the attempt before does not count.
        let again = if late == 0 { round.clone() } else { renamed(round, late) };
        match bench.run(&stretched(&again, stretch)).await? {
            Course::Late(lateness) => {
                bench.tell(round, &lateness);
                if lateness.slow {
                    slow.push(lateness.clone());
                }
                let same = |other: &&Lateness| other.step == lateness.step && other.side == lateness.side;
                if slow.iter().filter(same).count() >= SLOW {
                    return Ok((Course::Differs(Box::new(too_slow(round, &lateness)?)), late));
                }
            }
            course => return Ok((course, late)),
        }
    }
    let attempts = STRETCHES.len();
    Err(Failure::new(format!("round {} came too late {attempts} times: this machine is too busy", round.number)))
}

/// Always the same step takes too long on the same side: that is no accident.
fn too_slow(round: &Round, lateness: &Lateness) -> Outcome<Mismatch> {
    let step = round.steps.iter().find(|step| step.number == lateness.step);
    let step = step.ok_or_else(|| Failure::new("a late step that is not in its round"))?.clone();
    let differences = vec![format!("ended {} ms after its time, in {SLOW} runs", lateness.ms)];
    let (java, here) = (Vec::new(), Vec::new());
    Ok(Mismatch { round: round.number, step, side: lateness.side, differences, java, here })
}
