//! The exit codes, in one place.

/// The table of exit codes, shown by `--help`.
pub(crate) const HELP: &str = "\
Exit codes:
  CODE   the command's own exit code
  128+N  the command was ended by signal N, or redlatch got it before the command was started
  2      usage: an option, a name or the URL is not valid; nothing was run
  115    the lock was not obtained: held by another, and --no-wait or the --wait time was over
  116    the lock was lost before the command had ended; the command was stopped,
         or had ended by itself a moment too late
  117    Redis failed: not reachable, access refused, foreign data under NAME, or the
         release at the end could not be confirmed
  125    redlatch itself failed: out of a system resource
  126    the command was found but could not be run
  127    the command was not found";

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Exit {
    /// The command ended with this code while the lock was held.
    Code(u8),
    /// The command, or redlatch while it waited, was ended by this signal.
    Signal(i32),
    /// An argument is not valid.
    Usage,
    /// Somebody else holds the lock and the time to wait is over.
    NotObtained,
    /// The lock was lost before the command had ended.
    Lost,
    /// Redis, or the way to it, failed.
    Redis,
    /// The system refused something redlatch cannot do without.
    Internal,
    /// The command exists but cannot be run.
    NotExecutable,
    /// There is no such command.
    NotFound,
}

impl Exit {
    /// The number the process ends with.
    pub(crate) fn code(self) -> u8 {
        match self {
            Exit::Code(code) => code,
            Exit::Signal(number) => u8::try_from(number).map_or(u8::MAX, |n| n.saturating_add(128)),
            Exit::Usage => 2,
            // 115 to 117: clear of the codes of timeout, env and xargs (123 to 127), of sysexits (64 to 78) and of
            // curl (up to 99), so that a script can tell them from the command's own. 125 to 127 mean what they
            // mean there.
            Exit::NotObtained => 115,
            Exit::Lost => 116,
            Exit::Redis => 117,
            Exit::Internal => 125,
            Exit::NotExecutable => 126,
            Exit::NotFound => 127,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Exit, HELP};

    #[test]
    fn every_own_code_is_in_the_help_and_none_is_used_twice() {
        let own = [
            Exit::Usage,
            Exit::NotObtained,
            Exit::Lost,
            Exit::Redis,
            Exit::Internal,
            Exit::NotExecutable,
            Exit::NotFound,
        ];
        let mut codes: Vec<u8> = own.into_iter().map(Exit::code).collect();
        for code in &codes {
            assert!(HELP.lines().any(|line| line.starts_with(&format!("  {code} "))), "{code} is not in the help");
        }
        codes.sort_unstable();
        codes.dedup();
        assert_eq!(codes.len(), own.len());
    }

    #[test]
    fn a_signal_is_128_and_its_number() {
        for (number, code) in [(1, 129), (15, 143), (9, 137), (64, 192), (127, 255), (-1, 255), (300, 255)] {
            assert_eq!(Exit::Signal(number).code(), code, "signal {number}");
        }
    }
}
