//! `cargo xtask VERB`: everything that is done to this repository, by one command each.

mod cargo;
mod demo;
mod fuzz;
mod lint;
mod matrix;
mod peer;
mod process;
mod server;
mod setup;
mod summary;
mod test;

use std::{process::ExitCode, time::Duration};

use anyhow::Result;
use clap::{Parser, Subcommand};

#[derive(Debug, Parser)]
#[command(
    name = "cargo xtask",
    bin_name = "cargo xtask",
    about = "What can be done to this repository, by one command each"
)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

#[derive(Debug, Subcommand)]
enum Verb {
    /// Show Java Redisson and Rust taking turns on one lock
    Demo(demo::Args),
    /// Run every test
    Test(test::Args),
    /// Check format, clippy, documentation and the rules of this repository
    Lint,
    /// Run the tests beside Java Redisson
    Compat {
        /// A Redisson version; may be given again. Default: all that are supported
        #[arg(long = "redisson", value_name = "VERSION", default_values = peer::VERSIONS)]
        versions: Vec<String>,
    },
    /// Replay recorded vectors through the crate
    Replay {
        /// Options of the replay, such as `--redis URL`, and folders with vectors
        #[arg(
            value_name = "ARG",
            trailing_var_arg = true,
            allow_hyphen_values = true,
            default_value = "compat-tests/vectors"
        )]
        args: Vec<String>,
    },
    /// Run random sequences on Java Redisson and on the crate, side by side, and compare them step by step
    FuzzDiff(fuzz::Args),
    /// Run the tests of the library and the tool in their long form
    Torture {
        /// Names of test files; all when none is given
        #[arg(value_name = "FILE")]
        files: Vec<String>,
    },
    /// Run the tests beside Java Redisson in their long form, again and again
    Soak {
        /// How long
        #[arg(long, default_value_t = 60)]
        minutes: u64,
    },
    /// Run the tests of the library on every server that is supported
    Matrix(matrix::Args),
    /// Run the benchmarks
    Bench {
        /// Passed on to the benchmarks, such as a part of a name
        #[arg(value_name = "ARG", trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<String>,
    },
    /// Build the documentation
    Docs {
        /// Show it in a browser
        #[arg(long)]
        open: bool,
    },
    /// Find, and where that is safe install, what the other verbs need
    Setup,
}

fn main() -> ExitCode {
    let cli = Cli::parse();
    let outcome = process::catch_signals().and_then(|()| run(&cli.verb));
    let Err(error) = outcome else {
        return ExitCode::SUCCESS;
    };
    // The sum stays the last line.
    if !error.is::<test::Failed>() {
        eprintln!("xtask: {error:#}");
    }
    if process::check_interrupt().is_err() {
        return ExitCode::from(130);
    }
    ExitCode::from(if error.is::<setup::Missing>() { 2 } else { 1 })
}

fn run(verb: &Verb) -> Result<()> {
    match verb {
        Verb::Demo(args) => demo::run(args),
        Verb::Test(args) => test::run(args),
        Verb::Lint => lint::run(),
        Verb::Compat { versions } => test::compat(versions),
        Verb::Replay { args } => replay(args),
        Verb::FuzzDiff(args) => fuzz::run(args),
        Verb::Torture { files } => test::torture(files),
        Verb::Soak { minutes } => test::soak(Duration::from_secs(minutes * 60)),
        Verb::Matrix(args) => matrix::run(args),
        Verb::Bench { args } => bench(args),
        Verb::Docs { open } => process::run(&mut lint::documentation(*open)),
        Verb::Setup => prepare(),
    }
}

fn replay(args: &[String]) -> Result<()> {
    setup::ensure(&[setup::Tool::RedisServer])?;
    let mut command =
        cargo::cargo(&["run", "--quiet", "--locked", "--package", "compat-tests", "--bin", "replay", "--"]);
    // Folders are meant as the caller sees them.
    process::run(command.current_dir(std::env::current_dir()?).args(args))
}

fn bench(args: &[String]) -> Result<()> {
    setup::ensure(&[setup::Tool::RedisServer])?;
    let mut command = cargo::cargo(&["bench", "--locked", "--package", "redlatch", "--all-features", "--bench", "*"]);
    if !args.is_empty() {
        command.arg("--").args(args);
    }
    process::run(&mut command)
}

fn prepare() -> Result<()> {
    setup::ensure(setup::ALL)?;
    for version in peer::VERSIONS {
        peer::build(version)?;
    }
    println!("Everything that the tests and the demo need is here.");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Verb {
        Cli::try_parse_from(std::iter::once("xtask").chain(line.split(' '))).unwrap().verb
    }

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn compat_runs_all_versions_unless_some_are_named() {
        assert!(matches!(parse("compat"), Verb::Compat { versions } if versions == peer::VERSIONS));
        assert!(matches!(parse("compat --redisson 3.17.7"), Verb::Compat { versions } if versions == ["3.17.7"]));
    }

    #[test]
    fn replay_passes_its_arguments_on_as_they_are() {
        assert!(matches!(parse("replay"), Verb::Replay { args } if args == ["compat-tests/vectors"]));
        let line = "replay --redis redis://localhost:1 a b";
        assert!(matches!(parse(line), Verb::Replay { args } if args == ["--redis", "redis://localhost:1", "a", "b"]));
    }

    #[test]
    fn fuzz_diff_takes_seeds_and_passes_them_on() {
        let Verb::FuzzDiff(args) =
            parse("fuzz-diff --seed 7 --seed 8 --seeds 20..30 --steps 300 --redisson 3.52.0 --mixed")
        else {
            panic!("another verb");
        };
        assert_eq!(args.redisson, "3.52.0");
        let words = ["--seed", "7", "--seed", "8", "--seeds", "20..30", "--steps", "300", "--mixed"];
        assert_eq!(args.words(), words);
        assert!(Cli::try_parse_from(["xtask", "fuzz-diff", "--mixed", "--pure"]).is_err());
    }

    #[test]
    fn a_verb_that_does_not_exist_is_refused() {
        assert!(Cli::try_parse_from(["xtask", "frobnicate"]).is_err());
        assert!(Cli::try_parse_from(["xtask", "test", "--repeat", "0"]).is_err());
        assert!(Cli::try_parse_from(["xtask", "demo", "--seconds", "0"]).is_err());
    }
}
