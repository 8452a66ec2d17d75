//! The fencing token of a lock: every grant draws a new one, so a grant more or less is seen for ever.

use std::collections::{BTreeMap, BTreeSet};

use super::super::super::format::{Content, Entry, Ttl};
use super::super::view::View;
use super::super::{Rule, keys};
use super::set;

#[derive(Debug, Default)]
pub(super) struct Fence {
    /// As it was before the step last observed.
    before: Option<u64>,
    /// Tokens drawn in that step.
    drawn: u64,
    /// Why it is not the one recorded.
    causes: BTreeSet<Rule>,
}

impl Fence {
    pub(super) fn read(key: &str, view: &View<'_>) -> Self {
        let before = view.text(&keys::token(key)).and_then(|token| token.parse().ok());
        Self { before, ..Self::default() }
    }

    pub(super) fn begin(&mut self) {
        self.drawn = 0;
    }

    /// The token that a grant would draw.
    pub(super) fn next(&self) -> u64 {
        self.before.unwrap_or(0) + self.drawn + 1
    }

    /// A grant draws a token, which is this one.
    pub(super) fn draw(&mut self) -> u64 {
        self.drawn += 1;
        self.before.unwrap_or(0) + self.drawn
    }

    /// The token now.
    pub(super) fn token(&self) -> Option<u64> {
        if self.drawn == 0 { self.before } else { Some(self.before.unwrap_or(0) + self.drawn) }
    }

    /// The key was deleted.
    pub(super) fn forget(&mut self) {
        (self.before, self.drawn) = (None, 0);
    }

    pub(super) fn causes(&self) -> &BTreeSet<Rule> {
        &self.causes
    }

    pub(super) fn departs(&self, without: Option<Rule>) -> bool {
        !self.causes.is_empty() && without.is_none_or(|rule| !self.causes.contains(&rule))
    }

    /// Compares with what was recorded after the step; what made the lock depart is the reason if they differ.
    pub(super) fn compare(&mut self, key: &str, recorded: &BTreeMap<String, Entry>, causes: &BTreeSet<Rule>) {
        let recorded = match recorded.get(&keys::token(key)).map(|entry| &entry.value) {
            Some(Content::Text(token)) => token.parse().ok(),
            _ => None,
        };
        if recorded == self.token() {
            self.causes.clear();
        } else {
            self.causes.extend(causes);
        }
    }

    pub(super) fn adjust(&self, key: &str, keyspace: &mut BTreeMap<String, Entry>) {
        let name = keys::token(key);
        let ttl = keyspace.get(&name).map_or(Ttl::Never, |entry| entry.ttl);
        let token = self.token().map(|token| Entry { value: Content::Text(token.to_string()), ttl });
        set(keyspace, &name, token);
    }

    pub(super) fn passed(&mut self, key: &str, view: &View<'_>) {
        self.before = Self::read(key, view).before;
    }
}
