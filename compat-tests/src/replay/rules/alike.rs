//! Whether a part of the database is as recorded.

use super::super::compare::{Context, Scope, differences};
use super::super::expect::{Expectation, ExpectedResult, Seen};
use super::super::format::PublishedMatch;
use super::super::names::Bindings;
use super::Facts;

/// Whether the keys whose name `belongs` are as they were recorded after this step.
pub(super) fn alike(facts: &Facts<'_>, belongs: impl Fn(&str) -> bool) -> bool {
    let recorded = facts.step.keyspace.iter().filter(|(name, _)| belongs(name));
    let found = facts.seen.snapshot.iter().filter(|(name, _)| belongs(&facts.names.contract(name)));
    let expected = Expectation {
        result: ExpectedResult::None,
        elapsed: None,
        patience: None,
        keyspace: recorded.map(|(name, entry)| (name.clone(), entry.clone())).collect(),
        published: Vec::new(),
        matching: PublishedMatch::Exact,
    };
    let seen = Seen {
        result: None,
        took: None,
        snapshot: found.map(|(name, found)| (name.clone(), found.clone())).collect(),
        heard: Vec::new(),
    };
    let context = Context { names: facts.names, behind: facts.behind, clock: facts.clock };
    differences(&expected, &seen, &context, Scope::Everything, &mut Bindings::default()).is_empty()
}
