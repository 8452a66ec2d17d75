//! The command line.

use std::{ffi::OsString, time::Duration};

use clap::{Args, Parser, Subcommand};

use crate::{exit, url::RedisUrl};

/// Locks in Redis, shared with Java Redisson, for scripts and cron jobs.
#[derive(Debug, Parser)]
#[command(name = "redlatch", version, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every sub-command.
#[derive(Debug, Args)]
#[command(next_help_heading = "Global options")]
pub(crate) struct Global {
    // As `help`, not as a comment: rustdoc would take the brackets for links.
    #[arg(
        long,
        global = true,
        env = "REDIS_URL",
        hide_env_values = true,
        default_value = "redis://127.0.0.1:6379",
        help = "Redis to use: redis://[user[:password]@]host[:port][/db] or unix:///path. A password is better given in \
                REDIS_URL, because arguments can be seen by every user of the machine"
    )]
    pub(crate) url: RedisUrl,

    /// Report as JSON on stderr, one object a line
    #[arg(long, global = true)]
    pub(crate) json: bool,

    /// Report every step on stderr, not only what went wrong
    #[arg(short, long, global = true)]
    pub(crate) verbose: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    Run(Run),
}

/// Run a command while holding a lock
///
/// Takes the lock NAME, runs the command, and releases the lock when the command has ended. The command runs in a
/// process group of its own; signals sent to redlatch are passed on to that whole group. If the lock is lost, the
/// group is stopped. Its environment has REDLATCH_NAME and REDLATCH_OWNER.
#[derive(Debug, Args)]
#[command(after_help = exit::HELP)]
pub(crate) struct Run {
    /// Wait at most this long for the lock [default: without limit]
    #[arg(long, value_name = "DURATION", value_parser = duration, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,

    /// Try once, do not wait
    #[arg(long)]
    pub(crate) no_wait: bool,

    /// Hold the lock for at most this long: it is not renewed, and lost when the time is over [default: renewed
    /// until the command has ended]
    #[arg(long, value_name = "DURATION", value_parser = positive_duration, conflicts_with = "watchdog")]
    pub(crate) lease: Option<Duration>,

    /// Without --lease: how long Redis keeps the lock after the last renewal, and so how long others wait after a
    /// crash of redlatch. Renewed three times in this time.
    // Shorter than the library's 30 s: the usual end of a job that hangs is kill -9, and then everybody else waits
    // that long. Not much shorter: a pause or an outage beyond two thirds of it costs the job its lock.
    #[arg(long, value_name = "DURATION", value_parser = positive_duration, default_value = "10s")]
    pub(crate) watchdog: Duration,

    /// After the loss of the lock: time between TERM and KILL to the command's process group; 0 sends KILL at once
    #[arg(long, value_name = "DURATION", value_parser = duration, default_value = "5s")]
    pub(crate) kill_after: Duration,

    /// Name of the lock; in Redis, its key
    pub(crate) name: String,

    /// The command and its arguments, after --
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<OsString>,
}

/// `500ms`, `10s`, `2m 30s`, or a plain number of seconds such as `10` or `0.5`.
fn duration(text: &str) -> Result<Duration, String> {
    if let Ok(seconds) = text.parse::<f64>() {
        return Duration::try_from_secs_f64(seconds).map_err(|error| error.to_string());
    }
    humantime::parse_duration(text).map_err(|error| format!("{error}; examples: 500ms, 10s, 2m, or seconds: 10, 0.5"))
}

fn positive_duration(text: &str) -> Result<Duration, String> {
    match duration(text)? {
        short if short < Duration::from_millis(1) => Err("must be at least 1ms".to_owned()),
        enough => Ok(enough),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use clap::CommandFactory;

    use super::{Cli, duration, positive_duration};

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_have_units_or_are_seconds() {
        for (text, millis) in [
            ("500ms", 500),
            ("10s", 10_000),
            ("2m", 120_000),
            ("1m 30s", 90_000),
            ("10", 10_000),
            ("0.5", 500),
            ("0", 0),
        ] {
            assert_eq!(duration(text), Ok(Duration::from_millis(millis)), "{text}");
        }
    }

    #[test]
    fn what_is_no_duration_is_refused() {
        for text in ["", "abc", "-1", "inf", "nan", "1e300", "10 parsecs", "10s extra"] {
            assert!(duration(text).is_err(), "{text}");
        }
        for text in ["0", "0s", "1us"] {
            assert!(positive_duration(text).is_err(), "{text}");
        }
    }
}
