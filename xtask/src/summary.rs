//! Adds up what test runs say about themselves.

use std::{fmt, ops::AddAssign};

/// Counted tests.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Tally {
    /// Reads a line that closes a run: of libtest, or the plain `N passed, N failed, N skipped` of the replay.
    pub(crate) fn of_line(line: &str) -> Option<Tally> {
        let line = line.trim();
        match line.strip_prefix("test result: ") {
            Some(result) => {
                let counts = result.split_once(". ").map(|(_verdict, counts)| counts)?;
                Tally::of_counts(counts.split(';'))
            }
            None => Tally::of_counts(line.split(',')),
        }
    }

    /// From `5 passed`, `0 failed` and so on; only with both of these, and with nothing that is no count.
    fn of_counts<'a>(counts: impl Iterator<Item = &'a str>) -> Option<Tally> {
        let mut tally = Tally::default();
        let (mut has_passed, mut has_failed) = (false, false);
        for count in counts {
            // libtest's last part is `finished in 0.00s`.
            if count.trim_start().starts_with("finished in ") {
                continue;
            }
            let (number, what) = count.trim().split_once(' ')?;
            let number = number.parse().ok()?;
            match what {
                "passed" => (tally.passed, has_passed) = (number, true),
                "failed" => (tally.failed, has_failed) = (number, true),
                "ignored" | "skipped" => tally.skipped = number,
                "measured" | "filtered out" => {}
                _ => return None,
            }
        }
        (has_passed && has_failed).then_some(tally)
    }
}

impl AddAssign for Tally {
    fn add_assign(&mut self, other: Tally) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} passed, {} failed", self.passed, self.failed)?;
        if self.skipped > 0 {
            write!(f, ", {} skipped", self.skipped)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_closing_lines_of_libtest_are_read() {
        let line = "test result: ok. 5 passed; 0 failed; 1 ignored; 0 measured; 2 filtered out; finished in 0.00s";
        assert_eq!(Tally::of_line(line), Some(Tally { passed: 5, failed: 0, skipped: 1 }));
        let line = "test result: FAILED. 5 passed; 3 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1.20s";
        assert_eq!(Tally::of_line(line), Some(Tally { passed: 5, failed: 3, skipped: 0 }));
    }

    #[test]
    fn the_plain_closing_line_is_read() {
        assert_eq!(Tally::of_line("31 passed, 1 failed"), Some(Tally { passed: 31, failed: 1, skipped: 0 }));
        assert_eq!(Tally::of_line("31 passed, 1 failed, 9 skipped"), Some(Tally { passed: 31, failed: 1, skipped: 9 }));
    }

    #[test]
    fn other_lines_are_not_counted() {
        for line in [
            "",
            "running 3 tests",
            "test 5 passed, 3 failed ... ok",
            "5 passed",
            "x passed, 1 failed",
            "test result: ok",
        ] {
            assert_eq!(Tally::of_line(line), None, "{line}");
        }
    }

    #[test]
    fn the_sum_is_printed_in_the_plain_form() {
        let mut tally = Tally { passed: 5, failed: 0, skipped: 0 };
        tally += Tally { passed: 2, failed: 1, skipped: 0 };
        assert_eq!(tally.to_string(), "7 passed, 1 failed");
        tally += Tally { passed: 0, failed: 0, skipped: 4 };
        assert_eq!(tally.to_string(), "7 passed, 1 failed, 4 skipped");
    }
}
