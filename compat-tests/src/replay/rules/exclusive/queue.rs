//! The queue of a fair lock during a step.

use std::collections::BTreeMap;

use super::super::super::format::{Content, Entry, Ttl};
use super::super::holds::Span;
use super::super::keys;
use super::super::view::View;
use super::line::{Expected, Line, Moves};
use super::set;

#[derive(Debug, Default)]
pub(super) struct Queue {
    /// As seen after the step before.
    before: Line,
    /// What is known so far of the step last observed.
    pub(super) moves: Moves,
    expected: Expected,
}

impl Queue {
    pub(super) fn read(key: &str, view: &View<'_>) -> Self {
        Self { before: line(key, view), ..Self::default() }
    }

    pub(super) fn begin(&mut self) {
        self.moves = Moves::default();
        self.expected = Expected::default();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.before.is_empty()
    }

    pub(super) fn before(&self) -> &Line {
        &self.before
    }

    /// Who is to have the lock if it is free at this time.
    pub(super) fn head(&self, now: i64) -> Option<String> {
        let gone = |owner: &str| self.moves.entered.iter().chain(&self.moves.left).any(|(other, _)| other == owner);
        self.before.living(now).find(|owner| !gone(owner)).map(str::to_owned)
    }

    /// The owner has taken the lock.
    pub(super) fn enter(&mut self, owner: String, patience: i64) {
        self.moves.entered.push((owner, patience));
    }

    /// The owner waits no more.
    pub(super) fn leave(&mut self, owner: String, patience: i64) {
        self.moves.left.push((owner, patience));
    }

    /// The holder's lease ends at this time, by the wall clock.
    pub(super) fn lease_ends(&mut self, end: Span) {
        self.moves.lease_ends.push(end);
    }

    /// The step is over; this is what is there now.
    pub(super) fn moved(&mut self, key: &str, view: &View<'_>) -> &Expected {
        self.expected = self.before.moved(&line(key, view), &self.moves);
        &self.expected
    }

    /// Somebody else changed it: what is there now is right.
    pub(super) fn changed(&mut self, key: &str, view: &View<'_>) {
        self.expected = line(key, view).as_it_is();
    }

    /// It was deleted.
    pub(super) fn delete(&mut self) {
        self.before = Line::default();
    }

    pub(super) fn adjust(&self, key: &str, keyspace: &mut BTreeMap<String, Entry>) {
        let places = &self.expected.places;
        let owners: Vec<String> = places.iter().map(|(owner, _)| owner.clone()).collect();
        let scores: BTreeMap<_, _> =
            places.iter().filter_map(|(owner, score)| Some((owner.clone(), score.clone()?))).collect();
        let queue = (!owners.is_empty()).then_some(Content::List(owners));
        let timeouts = (!scores.is_empty()).then_some(Content::Zset(scores));
        for (name, value) in [(keys::queue(key), queue), (keys::timeouts(key), timeouts)] {
            let ttl = keyspace.get(&name).map_or(Ttl::Never, |entry| entry.ttl);
            set(keyspace, &name, value.map(|value| Entry { value, ttl }));
        }
    }

    pub(super) fn passed(&mut self, key: &str, view: &View<'_>) {
        self.before = line(key, view);
    }
}

fn line(key: &str, view: &View<'_>) -> Line {
    let scores = view.scores(&keys::timeouts(key));
    Line::new(view.list(&keys::queue(key)), |owner| scores.get(owner).and_then(|score| score.parse().ok()))
}
