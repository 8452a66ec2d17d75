//! What a run says about its scenarios.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::rules::{Rule, Table, TableRule};

/// What became of a scenario.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Passed,
    /// Passed with these rules.
    Difference(BTreeSet<Rule>),
    Failed(String),
    /// Uses these kinds, which are not built yet.
    Skipped(Vec<String>),
}

impl Verdict {
    /// Of a scenario that was replayed without a failure: a rule it is listed under must have been needed.
    pub(crate) fn of(scenario: &str, needed: BTreeSet<Rule>, table: &Table) -> Self {
        let idle: Vec<&str> =
            table.listed(scenario).into_iter().filter(|rule| !needed.contains(rule)).map(Rule::id).collect();
        if !idle.is_empty() {
            return Self::Failed(format!("listed under a rule it did not need: {}", idle.join(", ")));
        }
        if needed.is_empty() { Self::Passed } else { Self::Difference(needed) }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("pass"),
            Self::Difference(rules) => {
                let ids: Vec<&str> = rules.iter().map(|rule| rule.id()).collect();
                write!(f, "difference ({})", ids.join(", "))
            }
            // Names and values may contain anything; the line stays one.
            Self::Failed(text) => write!(f, "FAIL {}", text.replace('\n', "\\n")),
            Self::Skipped(kinds) => write!(f, "skip {}", kinds.join(", ")),
        }
    }
}

/// Counts, and who needed which rule.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: usize,
    skipped: usize,
    differences: BTreeMap<Rule, Vec<String>>,
}

impl Tally {
    pub(crate) fn count(&mut self, scenario: &str, verdict: &Verdict) {
        match verdict {
            Verdict::Passed => self.passed += 1,
            Verdict::Difference(rules) => {
                self.passed += 1;
                for rule in rules {
                    self.differences.entry(*rule).or_default().push(scenario.to_owned());
                }
            }
            Verdict::Failed(_) => self.failed += 1,
            Verdict::Skipped(_) => self.skipped += 1,
        }
    }

    pub(crate) fn all_well(&self) -> bool {
        self.failed == 0
    }

    /// The lines behind those of the scenarios: the rules that were needed, and the counts.
    pub(crate) fn closing(&self, table: &Table) -> Vec<String> {
        let mut lines = Vec::new();
        for (rule, scenarios) in &self.differences {
            let entry = table.rules.iter().find(|entry| entry.id == rule.id());
            lines.push(format!("rule {}: {}", rule.id(), scenarios.join(", ")));
            lines.extend(
                entry.into_iter().flat_map(|TableRule { reason, design, .. }| {
                    [format!("  {}", reason.trim()), format!("  {design}")]
                }),
            );
        }
        lines.push(format!("{} passed, {} failed, {} skipped", self.passed, self.failed, self.skipped));
        lines
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table() -> Table {
        Table::own().expect("valid")
    }

    #[test]
    fn a_listed_rule_that_was_not_needed_fails_the_scenario() {
        let verdict = Verdict::of("lock-name-empty", BTreeSet::new(), &table());
        assert!(matches!(&verdict, Verdict::Failed(text) if text.contains("lock-name-empty")), "{verdict}");
        assert_eq!(Verdict::of("lock-other", BTreeSet::new(), &table()), Verdict::Passed);
    }

    #[test]
    fn a_needed_rule_is_a_difference_listed_or_not() {
        for scenario in ["lock-reenter-with-lease", "lock-never-seen-before"] {
            let verdict = Verdict::of(scenario, BTreeSet::from([Rule::Reentry]), &table());
            assert_eq!(verdict.to_string(), "difference (1.6)");
        }
    }

    #[test]
    fn the_counts_stand_alone_on_the_last_line() {
        let mut tally = Tally::default();
        tally.count("a", &Verdict::Passed);
        tally.count("b", &Verdict::Difference(BTreeSet::from([Rule::EmptyName])));
        tally.count("c", &Verdict::Skipped(vec!["fair".to_owned()]));
        assert!(tally.all_well());
        tally.count("d", &Verdict::Failed("step 1".to_owned()));
        assert!(!tally.all_well());
        let lines = tally.closing(&table());
        assert_eq!(lines.first().map(String::as_str), Some("rule lock-name-empty: b"));
        assert_eq!(lines.last().map(String::as_str), Some("2 passed, 1 failed, 1 skipped"));
    }

    #[test]
    fn a_failure_stays_on_one_line() {
        assert_eq!(Verdict::Failed("a\nb".to_owned()).to_string(), "FAIL a\\nb");
    }
}
