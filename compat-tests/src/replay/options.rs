//! The command line.

use std::path::PathBuf;

use crate::{Failure, Outcome};

pub(crate) const USAGE: &str = "\
Usage: replay [OPTION]... DIR...

Replays the recorded vectors in the .json files of each DIR (format: compat-tests/vectors/README.md).

      --redis URL   use this Redis instead of private ones; its database is flushed before every scenario
      --flush       with --redis: go on although the database is not empty
      --jobs N      so many scenarios side by side, each on a private Redis of its own (default 4)
      --only TEXT   only scenarios whose name contains TEXT
  -h, --help        print this

One line a scenario: pass, FAIL, difference (rules), or skip with the kinds that are not built yet. The last line counts.
Exit code: 0 nothing failed, 1 something did, 2 the replay could not run.";

/// What was asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Options {
    pub(crate) redis: Option<String>,
    pub(crate) flush: bool,
    pub(crate) jobs: usize,
    pub(crate) only: Option<String>,
    pub(crate) directories: Vec<PathBuf>,
}

impl Options {
    /// `None` when help was asked for.
    pub(crate) fn parse(args: impl IntoIterator<Item = String>) -> Outcome<Option<Self>> {
        let mut options = Self { redis: None, flush: false, jobs: 4, only: None, directories: Vec::new() };
        let mut args = args.into_iter();
        while let Some(arg) = args.next() {
            let (name, inline) = match arg.split_once('=') {
                Some((name, value)) if name.starts_with("--") => (name, Some(value.to_owned())),
                _ => (arg.as_str(), None),
            };
            let mut value =
                || inline.clone().or_else(|| args.next()).ok_or_else(|| Failure::new(format!("{name} needs a value")));
            match name {
                "-h" | "--help" => return Ok(None),
                "--redis" => options.redis = Some(value()?),
                "--only" => options.only = Some(value()?),
                "--jobs" => options.jobs = jobs(&value()?)?,
                "--flush" => options.flush = true,
                option if option.starts_with('-') => return Err(Failure::new(format!("unknown option {option}"))),
                _ => options.directories.push(PathBuf::from(&arg)),
            }
        }
        if options.directories.is_empty() {
            return Err(Failure::new("no directory of vectors given"));
        }
        if options.flush && options.redis.is_none() {
            return Err(Failure::new("--flush goes with --redis; private databases are empty"));
        }
        Ok(Some(options))
    }
}

fn jobs(text: &str) -> Outcome<usize> {
    text.parse()
        .ok()
        .filter(|jobs| *jobs > 0)
        .ok_or_else(|| Failure::new(format!("--jobs {text}: not a number above 0")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Outcome<Option<Options>> {
        Options::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn options_and_directories_may_be_mixed() {
        let options = parse("a --redis redis://h/3 --flush --jobs=2 b --only lock-").expect("valid").expect("no help");
        let expected = Options {
            redis: Some("redis://h/3".to_owned()),
            flush: true,
            jobs: 2,
            only: Some("lock-".to_owned()),
            directories: vec![PathBuf::from("a"), PathBuf::from("b")],
        };
        assert_eq!(options, expected);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for line in ["", "--redis", "--jobs 0 d", "--jobs x d", "--nonsense d", "--flush d"] {
            assert!(parse(line).is_err(), "{line:?}");
        }
        assert_eq!(parse("--help").expect("valid"), None);
    }
}
