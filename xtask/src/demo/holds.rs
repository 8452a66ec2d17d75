//! Judges the holds: who followed whom, and whether two ever held the lock at once.

use std::{collections::BTreeMap, fmt};

use anyhow::{Result, bail};

/// What a worker is written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Language {
    Java,
    Rust,
}

impl fmt::Display for Language {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Language::Java => "java",
            Language::Rust => "rust",
        })
    }
}

/// One hold. Both times are microseconds of this machine's wall clock, read after the grant and before the release.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Hold {
    pub(crate) worker: usize,
    pub(crate) language: Language,
    pub(crate) start_us: u64,
    pub(crate) end_us: u64,
}

/// What all holds together show.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Holds of each worker.
    pub(crate) holds: BTreeMap<usize, usize>,
    /// Hand-offs between two different workers, by their languages.
    pub(crate) pairs: BTreeMap<(Language, Language), usize>,
    /// A worker that took the lock again right after itself.
    pub(crate) again: usize,
    /// Holds that began before an earlier one had ended.
    pub(crate) overlaps: usize,
}

/// All ways in which the lock can go from one language to another.
pub(crate) const PAIRS: [(Language, Language); 4] = [
    (Language::Rust, Language::Rust),
    (Language::Rust, Language::Java),
    (Language::Java, Language::Rust),
    (Language::Java, Language::Java),
];

impl Tally {
    /// Counts over all holds, given in any order.
    pub(crate) fn of(holds: &[Hold]) -> Tally {
        let holds = in_order(holds);
        let mut tally = Tally::default();
        // Not the end of the hold before: a long hold can reach over several that follow.
        let mut latest_end = 0;
        for hold in &holds {
            *tally.holds.entry(hold.worker).or_default() += 1;
            if hold.start_us < latest_end {
                tally.overlaps += 1;
            }
            latest_end = latest_end.max(hold.end_us);
        }
        for pair in holds.windows(2) {
            if pair[0].worker == pair[1].worker {
                tally.again += 1;
            } else {
                *tally.pairs.entry((pair[0].language, pair[1].language)).or_default() += 1;
            }
        }
        tally
    }

    pub(crate) fn pair(&self, pair: (Language, Language)) -> usize {
        self.pairs.get(&pair).copied().unwrap_or(0)
    }

    /// An error unless no two holds overlapped and every pair of languages occurred.
    pub(crate) fn verdict(&self) -> Result<()> {
        if self.overlaps > 0 {
            bail!("{} holds began before an earlier one had ended: the lock did not exclude", self.overlaps);
        }
        for (from, to) in PAIRS {
            if self.pair((from, to)) == 0 {
                bail!("the lock never went from {from} to {to}: too few turns to show anything, or somebody starves");
            }
        }
        Ok(())
    }
}

/// The holds by the time of their grant.
pub(crate) fn in_order(holds: &[Hold]) -> Vec<Hold> {
    let mut holds = holds.to_vec();
    holds.sort_by_key(|hold| (hold.start_us, hold.end_us));
    holds
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use Language::{Java, Rust};

    /// Workers 0 and 1 are Java, 2 and 3 are Rust.
    pub(crate) fn hold(worker: usize, start_us: u64, end_us: u64) -> Hold {
        Hold { worker, language: if worker < 2 { Java } else { Rust }, start_us, end_us }
    }

    #[test]
    fn holds_that_only_touch_do_not_overlap() {
        assert_eq!(Tally::of(&[hold(0, 10, 20), hold(2, 20, 30)]).overlaps, 0);
    }

    #[test]
    fn a_hold_that_begins_inside_another_is_an_overlap() {
        let tally = Tally::of(&[hold(2, 19, 30), hold(0, 10, 20)]);
        assert_eq!(tally.overlaps, 1);
        assert!(tally.verdict().unwrap_err().to_string().contains("did not exclude"));
    }

    #[test]
    fn a_long_hold_overlaps_every_hold_inside_it_and_not_only_the_next() {
        assert_eq!(Tally::of(&[hold(0, 0, 100), hold(1, 10, 20), hold(2, 30, 40), hold(3, 100, 110)]).overlaps, 2);
    }

    #[test]
    fn two_holds_granted_in_the_same_microsecond_overlap() {
        assert_eq!(Tally::of(&[hold(0, 10, 20), hold(2, 10, 12)]).overlaps, 1);
    }

    #[test]
    fn hand_offs_are_counted_by_language_pair_and_taking_again_apart() {
        // java-1, java-2, rust-1, rust-1, rust-2, java-1, given out of order.
        let holds =
            [hold(2, 40, 50), hold(0, 0, 10), hold(1, 20, 30), hold(0, 100, 110), hold(2, 60, 70), hold(3, 80, 90)];
        let tally = Tally::of(&holds);
        let pairs: Vec<usize> = PAIRS.iter().map(|pair| tally.pair(*pair)).collect();
        assert_eq!(pairs, [1, 1, 1, 1]);
        assert_eq!(tally.again, 1);
        assert_eq!(tally.holds, BTreeMap::from([(0, 2), (1, 1), (2, 2), (3, 1)]));
        assert!(tally.verdict().is_ok());
    }

    #[test]
    fn a_missing_language_pair_fails_the_demo() {
        let tally = Tally::of(&[hold(0, 0, 10), hold(1, 20, 30), hold(2, 40, 50), hold(0, 60, 70)]);
        assert!(tally.verdict().unwrap_err().to_string().contains("from rust to rust"));
        assert!(Tally::of(&[]).verdict().is_err());
    }
}
