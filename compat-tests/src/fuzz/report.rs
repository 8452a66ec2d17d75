//! What a run says.

use super::call::Step;
use super::lockstep::{Mismatch, Used};
use super::options::Mode;
use super::plan::Round;
use super::run::Outturn;
use crate::Outcome;
use crate::replay::rules::Table;

/// A mismatch, and the steps that show it.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) mismatch: Mismatch,
    pub(crate) steps: Vec<Step>,
    /// It was there again when these steps were run alone.
    pub(crate) seen_again: bool,
}

/// The sequences themselves.
pub(crate) fn list(mode: Mode, seed: u64, rounds: &[Round]) {
    for round in rounds {
        let names: Vec<String> =
            round.names.iter().map(|(name, family)| format!("{name:?} ({})", family.name)).collect();
        let restart = if round.must_restart { ", ends with its processes" } else { "" };
        println!("seed {seed}, {}, round {}{restart}: {}", mode.word(), round.number, names.join(", "));
        round.steps.iter().for_each(|step| println!("  {step}"));
    }
}

/// The line of a sequence, and what was found in it.
pub(crate) fn outturn(outturn: &Outturn, redisson: &str, asked: usize) {
    let Outturn { mode, seed, rounds, steps, again, used, found, took } = outturn;
    let rules: Vec<String> = used.iter().map(|(rule, count)| format!("{} x{count}", rule.id())).collect();
    let rules = if rules.is_empty() { "none".to_owned() } else { rules.join(", ") };
    let verdict = if found.is_some() { "MISMATCH" } else { "as Java" };
    println!(
        "seed {seed}, {}: {verdict}; {steps} steps in {rounds} rounds, {again} run again for lateness, {:.0} s; differences: {rules}",
        mode.word(),
        took.as_secs_f64()
    );
    let Some(Found { mismatch, steps, seen_again }) = found else { return };
    let Mismatch { round, step, side, differences, java, here } = mismatch;
    println!("  round {round}, step {}, side {side}, Redisson {redisson}:", step.number);
    differences.iter().for_each(|difference| println!("    {difference}"));
    println!("  after {step}");
    println!("  Java:");
    java.iter().for_each(|line| println!("    {line}"));
    println!("  {side}:");
    here.iter().for_each(|line| println!("    {line}"));
    if *seen_again {
        println!("  the shortest row of steps that shows it:");
    } else {
        println!("  it did not show again when the round was run alone; the round up to it:");
    }
    steps.iter().for_each(|step| println!("    {step}"));
    println!("  again: cargo xtask fuzz-diff --seed {seed} --steps {asked} --{} --redisson {redisson}", mode.word());
}

/// The rules that were used, and the counts.
pub(crate) fn closing(used: &Used, sequences: usize, mismatches: usize) -> Outcome {
    let table = Table::own()?;
    for (rule, count) in used {
        println!("rule {}: {count} steps", rule.id());
        if let Some(entry) = table.rules.iter().find(|entry| entry.id == rule.id()) {
            println!("  {}", entry.reason.trim());
            println!("  {}", entry.design);
        }
    }
    println!("{sequences} sequences, {mismatches} mismatches");
    Ok(())
}
