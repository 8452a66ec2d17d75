//! The database as the vectors would write it.

use std::collections::BTreeMap;

use super::super::format::{Content, Entry, Field};
use super::super::names::Names;
use super::super::snapshot::{Found, FoundContent, Snapshot};

/// A snapshot in which the ids of clients are placeholders.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    snapshot: &'a Snapshot,
    names: &'a Names,
}

impl<'a> View<'a> {
    pub(super) fn new(snapshot: &'a Snapshot, names: &'a Names) -> Self {
        Self { snapshot, names }
    }

    /// How often the owner holds the lock under this key.
    pub(super) fn count(&self, key: &str, field: &str) -> usize {
        self.fields(key).get(field).and_then(|count| count.parse().ok()).unwrap_or(0)
    }

    pub(super) fn fields(&self, key: &str) -> BTreeMap<String, String> {
        match self.content(key) {
            Some(FoundContent::Hash(fields)) => self.pairs(fields),
            _ => BTreeMap::new(),
        }
    }

    pub(super) fn scores(&self, key: &str) -> BTreeMap<String, String> {
        match self.content(key) {
            Some(FoundContent::Zset(scores)) => self.pairs(scores),
            _ => BTreeMap::new(),
        }
    }

    pub(super) fn list(&self, key: &str) -> Vec<String> {
        match self.content(key) {
            Some(FoundContent::List(members)) => members.iter().map(|member| self.names.contract(member)).collect(),
            _ => Vec::new(),
        }
    }

    pub(super) fn text(&self, key: &str) -> Option<String> {
        match self.content(key) {
            Some(FoundContent::Text(text)) => Some(self.names.contract(text)),
            _ => None,
        }
    }

    /// The names of all keys.
    pub(super) fn names(&self) -> Vec<String> {
        self.snapshot.keys().map(|name| self.names.contract(name)).collect()
    }

    /// `None` for no key, -1 for no expiry.
    pub(super) fn pttl(&self, key: &str) -> Option<i64> {
        self.found(key).map(|found| found.pttl)
    }

    fn content(&self, key: &str) -> Option<&'a FoundContent> {
        self.found(key).map(|found| &found.content)
    }

    fn found(&self, key: &str) -> Option<&'a Found> {
        self.names.literal(key).and_then(|key| self.snapshot.get(key.as_bytes()))
    }

    fn pairs(&self, map: &BTreeMap<Vec<u8>, Vec<u8>>) -> BTreeMap<String, String> {
        map.iter().map(|(name, value)| (self.names.contract(name), self.names.contract(value))).collect()
    }
}

/// How often the owner holds the lock under this key in a recorded keyspace.
pub(super) fn recorded_count(keyspace: &BTreeMap<String, Entry>, key: &str, field: &str) -> usize {
    let Some(Content::Hash(fields)) = keyspace.get(key).map(|entry| &entry.value) else { return 0 };
    match fields.get(field) {
        Some(Field::Text(count)) => count.parse().unwrap_or(0),
        _ => 0,
    }
}
