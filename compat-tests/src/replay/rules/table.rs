//! `replay-differences.toml`: every rule, why it is there, and the known scenarios that need it.

use serde::Deserialize;

use super::Rule;
use crate::{Failure, Outcome};

/// The table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Table {
    #[serde(rename = "rule")]
    pub(crate) rules: Vec<TableRule>,
}

/// A rule of the table.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TableRule {
    pub(crate) id: String,
    pub(crate) reason: String,
    pub(crate) design: String,
    /// Scenarios that must need it, when they are replayed.
    pub(crate) scenarios: Vec<String>,
}

impl Table {
    /// The project's own.
    pub(crate) fn own() -> Outcome<Self> {
        Self::parse(include_str!("../../../replay-differences.toml"))
    }

    fn parse(text: &str) -> Outcome<Self> {
        let table: Self = toml::from_str(text)?;
        for rule in &table.rules {
            if Rule::ALL.iter().all(|known| known.id() != rule.id) {
                return Err(Failure::new(format!("replay-differences.toml: no rule is called {:?}", rule.id)));
            }
        }
        for known in Rule::ALL {
            if table.rules.iter().filter(|rule| rule.id == known.id()).count() != 1 {
                return Err(Failure::new(format!("replay-differences.toml: {:?} must be there once", known.id())));
            }
        }
        Ok(table)
    }

    /// Rules this scenario is listed under.
    pub(crate) fn listed(&self, scenario: &str) -> Vec<Rule> {
        let listed = |rule: &Rule| {
            let entry = self.rules.iter().find(|entry| entry.id == rule.id());
            entry.is_some_and(|entry| entry.scenarios.iter().any(|name| name == scenario))
        };
        Rule::ALL.into_iter().filter(listed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_table_names_every_rule_once() {
        let table = Table::own().expect("valid");
        assert_eq!(table.listed("lock-name-empty"), [Rule::EmptyName]);
        assert!(table.rules.iter().all(|rule| !rule.reason.is_empty() && rule.design.contains("docs/wire.md")));
    }

    #[test]
    fn a_rule_nobody_wrote_is_refused() {
        let text = "[[rule]]\nid = 'magic'\nreason = 'r'\ndesign = 'd'\nscenarios = []\n";
        assert!(Table::parse(text).is_err());
    }
}
