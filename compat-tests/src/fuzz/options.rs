//! The command line of `fuzz_diff`.

use std::thread::available_parallelism;

use super::fault::Fault;
use crate::{Failure, Outcome};

pub(crate) const USAGE: &str = "\
usage: fuzz_diff [OPTION]...

Runs random sequences of lock operations on Java Redisson and on this crate, side by side, and compares after each step
the keyspace, the messages and the results. REDISSON_VERSION names the Redisson.

  --seed N        a seed; may be given again (default: 1)
  --seeds A..B    the seeds from A on, below B
  --steps N       steps of each sequence (default: 300)
  --pure          all clients of one side are Java's, all of the other this crate's
  --mixed         the clients of one side are Java's and this crate's
                  (default: both, one after the other)
  --kinds A,B     only these kinds
  --jobs N        sequences side by side (default: 3 for each 2 processors)
  --list          print the sequences, run nothing
  --verbose       tell on stderr of rounds that are run again
  --shrink N      at most so many runs to make a mismatch short (default: 60)
  --fault NAME    give the sides of this crate a fault that must be found: lost-expiry, told-twice, counted-twice

Exit codes: 0 no mismatch, 1 mismatches, 2 it could not run.";

/// What to run.
#[derive(Clone, Debug)]
pub(crate) struct Options {
    pub(crate) seeds: Vec<u64>,
    pub(crate) steps: usize,
    pub(crate) modes: Vec<Mode>,
    pub(crate) kinds: Vec<String>,
    pub(crate) jobs: usize,
    pub(crate) list: bool,
    pub(crate) verbose: bool,
    pub(crate) shrink: usize,
    pub(crate) fault: Option<Fault>,
}

/// Who speaks what.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mode {
    Pure,
    Mixed,
}

impl Mode {
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Pure => "pure",
            Self::Mixed => "mixed",
        }
    }
}

impl Options {
    /// `None` when help was asked for.
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Outcome<Option<Self>> {
        let processors = available_parallelism().map_or(2, usize::from);
        let mut options = Self {
            seeds: Vec::new(),
            steps: 300,
            modes: Vec::new(),
            kinds: Vec::new(),
            jobs: (processors * 3 / 2).max(1),
            list: false,
            verbose: false,
            shrink: 60,
            fault: None,
        };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().ok_or_else(|| Failure::new(format!("{arg} without a value")));
            match arg.as_str() {
                "-h" | "--help" => return Ok(None),
                "--seed" => options.seeds.push(number(&value()?)?),
                "--seeds" => options.seeds.extend(seeds(&value()?)?),
                "--steps" => options.steps = number(&value()?)?,
                "--pure" => options.modes.push(Mode::Pure),
                "--mixed" => options.modes.push(Mode::Mixed),
                "--both" => options.modes.extend([Mode::Pure, Mode::Mixed]),
                "--kinds" => options.kinds.extend(value()?.split(',').map(str::to_owned)),
                "--jobs" => options.jobs = number::<usize>(&value()?)?.max(1),
                "--list" => options.list = true,
                "--verbose" => options.verbose = true,
                "--shrink" => options.shrink = number(&value()?)?,
                "--fault" => options.fault = Some(Fault::named(&value()?)?),
                _ => return Err(Failure::new(format!("unknown option {arg}"))),
            }
        }
        if options.seeds.is_empty() {
            options.seeds.push(1);
        }
        if options.modes.is_empty() {
            options.modes = vec![Mode::Pure, Mode::Mixed];
        }
        options.modes.sort_unstable();
        options.modes.dedup();
        Ok(Some(options))
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Outcome<T> {
    text.parse().map_err(|_| Failure::new(format!("not a number: {text}")))
}

fn seeds(text: &str) -> Outcome<std::ops::Range<u64>> {
    let (from, to) = text.split_once("..").ok_or_else(|| Failure::new(format!("not a range A..B: {text}")))?;
    let range = number(from)?..number(to)?;
    if range.is_empty() { Err(Failure::new(format!("no seed is in {text}"))) } else { Ok(range) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Outcome<Options> {
        let options = Options::parse(line.split_whitespace().map(str::to_owned))?;
        options.ok_or_else(|| Failure::new("help"))
    }

    #[test]
    fn seeds_are_named_one_by_one_and_by_range() -> Outcome {
        assert_eq!(parse("--seed 7 --seed 9 --seeds 20..23")?.seeds, [7, 9, 20, 21, 22]);
        assert_eq!(parse("")?.seeds, [1]);
        assert!(parse("--seeds 5..5").is_err());
        Ok(())
    }

    #[test]
    fn both_modes_are_run_unless_one_is_named() -> Outcome {
        assert_eq!(parse("--steps 20")?.modes, [Mode::Pure, Mode::Mixed]);
        assert_eq!(parse("--mixed --mixed")?.modes, [Mode::Mixed]);
        assert_eq!(parse("--both --pure")?.modes, [Mode::Pure, Mode::Mixed]);
        Ok(())
    }

    #[test]
    fn what_is_not_an_option_is_refused() {
        assert!(parse("--frob").is_err());
        assert!(parse("--steps many").is_err());
        assert!(parse("--fault none-such").is_err());
        assert!(parse("--seed").is_err());
    }
}
