//! `cargo xtask fuzz-diff`: the sequences themselves are the business of `compat-tests`.

use std::process::Command;

use anyhow::Result;

use crate::{
    cargo, peer, process,
    setup::{self, Tool},
};

#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A seed; may be given again
    #[arg(long = "seed", value_name = "N")]
    seeds: Vec<u64>,
    /// The seeds from A on, below B; may be given again
    #[arg(long = "seeds", value_name = "A..B")]
    ranges: Vec<String>,
    /// Steps of each sequence
    #[arg(long, value_name = "N", default_value_t = 300)]
    steps: usize,
    /// The Redisson to run beside
    #[arg(long, value_name = "VERSION", default_value = peer::VERSIONS[0])]
    pub(crate) redisson: String,
    /// Only sequences whose sides speak one language each. Default: these and the mixed ones
    #[arg(long, conflicts_with = "mixed")]
    pure: bool,
    /// Only sequences whose owners are split between the languages
    #[arg(long)]
    mixed: bool,
    /// Only these kinds, between commas
    #[arg(long, value_name = "KINDS")]
    kinds: Option<String>,
    /// Sequences side by side
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Print the sequences, run nothing
    #[arg(long)]
    list: bool,
}

impl Args {
    /// As the program takes them.
    pub(crate) fn words(&self) -> Vec<String> {
        let mut words = Vec::new();
        let mut option = |name: &str, value: String| words.extend([name.to_owned(), value]);
        self.seeds.iter().for_each(|seed| option("--seed", seed.to_string()));
        self.ranges.iter().for_each(|range| option("--seeds", range.clone()));
        option("--steps", self.steps.to_string());
        if let Some(kinds) = &self.kinds {
            option("--kinds", kinds.clone());
        }
        if let Some(jobs) = self.jobs {
            option("--jobs", jobs.to_string());
        }
        let flags = [("--pure", self.pure), ("--mixed", self.mixed), ("--list", self.list)];
        words.extend(flags.iter().filter(|(_, given)| *given).map(|(flag, _)| (*flag).to_owned()));
        words
    }
}

/// Runs the sequences.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::ensure(&[Tool::RedisServer, Tool::Jdk, Tool::Maven])?;
    peer::build(&args.redisson)?;
    let built = cargo::build(&["build", "--package", "compat-tests", "--bin", "fuzz_diff"])?;
    let mut command = Command::new(cargo::program(&built, "fuzz_diff")?);
    process::run(command.args(args.words()).env("REDISSON_VERSION", &args.redisson))
}
