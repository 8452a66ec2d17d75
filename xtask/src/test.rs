//! `cargo xtask test` and its relatives: builds all tests once, then runs them one executable after the other.

use std::{
    fmt,
    path::Path,
    process::Command,
    time::{Duration, Instant},
};

use anyhow::Result;

use crate::{
    cargo::{self, Artifact, Kind},
    peer, process, setup,
    summary::Tally,
};

/// Turns the long form of the tests on.
pub(crate) const FULL: &str = "REDLATCH_FULL";
/// Which Redisson the compat tests start.
const REDISSON: &str = "REDISSON_VERSION";
/// The package of the compat tests.
const COMPAT: &str = "compat-tests";
/// Compat tests that run against the older versions too in `cargo xtask test`.
const COMPAT_SHORT: [&str; 3] = ["crash", "lock", "wakeup"];
/// Redisson before 3.28.0 loses wake-ups by itself, with Java on both sides too: how often depends on the machine's load, so
/// a run that must not fail by chance leaves them out. `compat` has them.
const LOSES_WAKEUPS: &str = "3.17.7";
/// No executable of the short form needs nearly as long: beyond it something hangs.
const SHORT_LIMIT: Duration = Duration::from_secs(20 * 60);
const FULL_LIMIT: Duration = Duration::from_secs(6 * 60 * 60);

/// Tests have failed, and which ones has been printed.
#[derive(Debug)]
pub(crate) struct Failed;

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("tests have failed")
    }
}

impl std::error::Error for Failed {}

/// Which tests, and how often.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Run the selected tests this many times in a row; the first failing round ends it.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    repeat: u32,
    /// Names of test files, or parts of the names of tests; everything when none is given.
    #[arg(value_name = "FILTER")]
    filters: Vec<String>,
}

/// `test`: everything in its short form, or what the filters select.
pub(crate) fn run(args: &Args) -> Result<()> {
    setup::ensure(setup::ALL)?;
    let mut runner = Runner::build(false)?;
    for round in 1..=args.repeat {
        if args.repeat > 1 {
            println!("\n=== round {round} of {}", args.repeat);
        }
        let outcome = if args.filters.is_empty() { runner.everything() } else { runner.selected(&args.filters) };
        runner.note(outcome)?;
        if !runner.failures.is_empty() {
            break;
        }
    }
    runner.close()
}

/// `compat`: all compat tests beside each of the versions.
pub(crate) fn compat(versions: &[String]) -> Result<()> {
    setup::ensure(setup::ALL)?;
    let mut runner = Runner::build(false)?;
    for version in versions {
        let outcome = runner.beside(version, |test| test.package == COMPAT, &[]);
        runner.note(outcome)?;
    }
    runner.close()
}

/// `torture`: the tests of the library in their long form.
pub(crate) fn torture(filters: &[String]) -> Result<()> {
    setup::ensure(setup::LIBRARY)?;
    let mut runner = Runner::build(true)?;
    let is_chosen = |test: &Artifact| test.package != COMPAT && (filters.is_empty() || filters.contains(&test.target));
    runner.tests(is_chosen, &[(FULL, "1")])?;
    runner.close()
}

/// `soak`: the compat tests in their long form, beside the newest Redisson, again and again until the time is over.
pub(crate) fn soak(time: Duration) -> Result<()> {
    setup::ensure(setup::ALL)?;
    let mut runner = Runner::build(true)?;
    let start = Instant::now();
    while runner.failures.is_empty() {
        let outcome = runner.beside(peer::VERSIONS[0], |test| test.package == COMPAT, &[(FULL, "1")]);
        runner.note(outcome)?;
        println!("\n=== {} minutes of {}", start.elapsed().as_secs() / 60, time.as_secs() / 60);
        if start.elapsed() >= time {
            break;
        }
    }
    runner.close()
}

/// The tests of the library on another server; adds to what is counted so far.
pub(crate) fn library_on(runner: &mut Runner, server: &Path) -> Result<()> {
    let server = server.to_string_lossy();
    runner.tests(|test| test.package == "redlatch" && test.kind == Kind::Test, &[("REDLATCH_REDIS_SERVER", &server)])
}

/// Built tests, and what has come out so far.
#[derive(Debug)]
pub(crate) struct Runner {
    built: Vec<Artifact>,
    limit: Duration,
    tally: Tally,
    failures: Vec<String>,
    start: Instant,
}

impl Runner {
    /// Builds every test of the workspace.
    pub(crate) fn build(is_full: bool) -> Result<Runner> {
        eprintln!("building the tests");
        let mut built = cargo::build(&["test", "--workspace", "--all-features", "--no-run"])?;
        built.sort_by_key(order);
        let limit = if is_full { FULL_LIMIT } else { SHORT_LIMIT };
        Ok(Runner { built, limit, tally: Tally::default(), failures: Vec::new(), start: Instant::now() })
    }

    /// Says what came out; an error unless all is well. The sum is the last line.
    pub(crate) fn close(mut self) -> Result<()> {
        if self.tally == Tally::default() && self.failures.is_empty() {
            self.fail("no test ran".to_owned());
        }
        println!("\nall tests: {} s", self.start.elapsed().as_secs());
        for failure in &self.failures {
            println!("FAILED  {failure}");
        }
        println!("{}", self.tally);
        if self.failures.is_empty() { Ok(()) } else { Err(Failed.into()) }
    }

    /// Counts a failure of something that could not even be started.
    pub(crate) fn fail(&mut self, why: String) {
        self.tally.failed += 1;
        self.failures.push(why);
    }

    /// Takes an error of the run itself as a failure, so that the sum is printed all the same.
    fn note(&mut self, outcome: Result<()>) -> Result<()> {
        if let Err(error) = outcome {
            process::check_interrupt()?;
            self.fail(format!("{error:#}"));
        }
        Ok(())
    }

    fn everything(&mut self) -> Result<()> {
        let [newest, older @ ..] = &peer::VERSIONS;
        self.tests(|test| test.package != COMPAT, &[])?;
        self.step("documentation", &mut cargo::cargo(&["test", "--workspace", "--all-features", "--doc", "--locked"]))?;
        self.beside(newest, |test| test.package == COMPAT, &[])?;
        for version in older {
            let is_short = |test: &Artifact| {
                let target = test.target.as_str();
                let is_fair = *version != LOSES_WAKEUPS || target != "wakeup";
                test.package == COMPAT && test.kind == Kind::Test && COMPAT_SHORT.contains(&target) && is_fair
            };
            self.beside(version, is_short, &[])?;
        }
        let mut replay = Command::new(cargo::program(&self.built, "replay")?);
        replay.current_dir(cargo::root()).arg("compat-tests/vectors");
        self.step("replay compat-tests/vectors", &mut replay)
    }

    /// Whole test files whose name contains a filter, and of the others the tests whose name does.
    fn selected(&mut self, filters: &[String]) -> Result<()> {
        peer::build(peer::VERSIONS[0])?;
        for test in tests(&self.built) {
            let mut command = command_of(&test, &[]);
            if !is_file_chosen(&test, filters) {
                command.args(filters);
                // Not to print an empty run for every file that has none of them.
                let listed = process::output_of(command_of(&test, &[]).args(filters).arg("--list"))?;
                if !listed.lines().any(|line| line.ends_with(": test")) {
                    continue;
                }
            }
            self.step(&title(&test, &[]), &mut command)?;
        }
        Ok(())
    }

    /// As [`Runner::tests`], beside that Redisson.
    fn beside(&mut self, version: &str, is_chosen: impl Fn(&Artifact) -> bool, env: &[(&str, &str)]) -> Result<()> {
        peer::build(version)?;
        self.tests(is_chosen, &[env, &[(REDISSON, version)]].concat())
    }

    fn tests(&mut self, is_chosen: impl Fn(&Artifact) -> bool, env: &[(&str, &str)]) -> Result<()> {
        for test in tests(&self.built).iter().filter(|test| is_chosen(test)) {
            self.step(&title(test, env), &mut command_of(test, env))?;
        }
        Ok(())
    }

    /// Runs one command, shows what it prints and counts what it tells.
    fn step(&mut self, title: &str, command: &mut Command) -> Result<()> {
        println!("\n=== {title}");
        let start = Instant::now();
        let mut tally = Tally::default();
        let ended = process::run_lines(command, self.limit, |line| {
            println!("{line}");
            if let Some(told) = Tally::of_line(line) {
                tally += told;
            }
        })?;
        println!("=== {title}: {:.1} s", start.elapsed().as_secs_f64());
        if !ended.is_success() {
            // A run that was killed, or ended before it told its count, has failed whatever it told.
            tally.failed = tally.failed.max(1);
            self.failures.push(format!("{title}: {ended}"));
        } else if tally.failed > 0 {
            self.failures.push(format!("{title}: tells failures and yet succeeds"));
        }
        self.tally += tally;
        Ok(())
    }
}

fn tests(built: &[Artifact]) -> Vec<Artifact> {
    built.iter().filter(|artifact| artifact.kind != Kind::Program).cloned().collect()
}

/// The library first, what stands on it later; unit tests before the files in `tests/`.
fn order(artifact: &Artifact) -> (usize, Kind, String) {
    const PACKAGES: [&str; 3] = ["redlatch", "redlatch-cli", "xtask"];
    let package = PACKAGES.iter().position(|name| *name == artifact.package).unwrap_or(PACKAGES.len());
    (package, artifact.kind, artifact.target.clone())
}

fn is_file_chosen(test: &Artifact, filters: &[String]) -> bool {
    test.kind == Kind::Test && filters.iter().any(|filter| test.target.contains(filter.as_str()))
}

fn title(test: &Artifact, env: &[(&str, &str)]) -> String {
    let target = match test.kind {
        Kind::Unit | Kind::Program => format!("{}, unit tests", test.target),
        Kind::Test => format!("tests/{}.rs", test.target),
    };
    let env: String = env.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    format!("{} {target}{env}", test.package)
}

/// As `cargo test` would start it.
fn command_of(test: &Artifact, env: &[(&str, &str)]) -> Command {
    let mut command = Command::new(&test.executable);
    command.current_dir(&test.folder).env("CARGO_MANIFEST_DIR", &test.folder).envs(env.iter().copied());
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    fn artifact(package: &str, kind: Kind, target: &str) -> Artifact {
        Artifact {
            package: package.to_owned(),
            folder: ".".into(),
            target: target.to_owned(),
            kind,
            executable: "/bin/sh".into(),
        }
    }

    fn runner(built: Vec<Artifact>) -> Runner {
        Runner { built, limit: SHORT_LIMIT, tally: Tally::default(), failures: Vec::new(), start: Instant::now() }
    }

    fn sh(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]);
        command
    }

    #[test]
    fn the_library_runs_first_and_the_compat_tests_last() {
        let mut all = [
            artifact("compat-tests", Kind::Test, "lock"),
            artifact("redlatch", Kind::Test, "wakeup"),
            artifact("redlatch-cli", Kind::Test, "run"),
            artifact("redlatch", Kind::Test, "cancel"),
            artifact("redlatch", Kind::Unit, "redlatch"),
        ];
        all.sort_by_key(order);
        let titles: Vec<String> = all.iter().map(|test| title(test, &[])).collect();
        assert_eq!(
            titles,
            [
                "redlatch redlatch, unit tests",
                "redlatch tests/cancel.rs",
                "redlatch tests/wakeup.rs",
                "redlatch-cli tests/run.rs",
                "compat-tests tests/lock.rs"
            ]
        );
    }

    #[test]
    fn a_filter_chooses_a_whole_file_by_a_part_of_its_name() {
        let filters = ["wakeup".to_owned(), "cancel".to_owned()];
        assert!(is_file_chosen(&artifact("redlatch", Kind::Test, "wakeups"), &filters));
        assert!(!is_file_chosen(&artifact("redlatch", Kind::Test, "lock"), &filters));
        assert!(!is_file_chosen(&artifact("redlatch", Kind::Unit, "cancel"), &filters));
    }

    #[test]
    fn counts_of_all_steps_are_added_up() {
        let mut runner = runner(Vec::new());
        runner.step("one", &mut sh("echo 'test result: ok. 5 passed; 0 failed; 0 ignored'")).unwrap();
        runner.step("two", &mut sh("echo '7 passed, 0 failed, 2 skipped'")).unwrap();
        assert_eq!(runner.tally, Tally { passed: 12, failed: 0, skipped: 2 });
        assert!(runner.close().is_ok());
    }

    #[test]
    fn a_step_that_dies_before_it_tells_its_count_is_a_failure() {
        let mut runner = runner(Vec::new());
        runner.step("one", &mut sh("echo '7 passed, 0 failed'; kill -9 $$")).unwrap();
        assert_eq!(runner.tally, Tally { passed: 7, failed: 1, skipped: 0 });
        assert!(runner.close().is_err());
    }

    #[test]
    fn a_step_that_tells_failures_is_a_failure_whatever_its_exit_code() {
        let mut runner = runner(Vec::new());
        runner.step("one", &mut sh("echo '7 passed, 2 failed'")).unwrap();
        assert_eq!(runner.tally.failed, 2);
        assert!(runner.close().is_err());
    }

    #[test]
    fn a_run_of_nothing_is_a_failure() {
        assert!(runner(Vec::new()).close().is_err());
    }
}
