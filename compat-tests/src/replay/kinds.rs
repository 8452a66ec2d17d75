//! The one table of object kinds: which of them this replay can run.

/// Every kind the format knows.
const KINDS: [(&str, Status); 14] = [
    ("lock", Status::Built),
    ("fair", Status::Built),
    ("read", Status::Built),
    ("write", Status::Built),
    ("fenced", Status::Built),
    ("spin", Status::Built),
    ("nonreentrant", Status::Built),
    ("nonreentrant_fair", Status::Built),
    ("multi", Status::NotYet),
    ("red", Status::NotYet),
    ("faster_multi", Status::NotYet),
    ("semaphore", Status::NotYet),
    ("permit", Status::NotYet),
    ("latch", Status::NotYet),
];

/// Whether a kind can be replayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Status {
    /// `child` runs its operations.
    Built,
    /// The crate does not have it yet: scenarios that use it are skipped.
    NotYet,
    /// Not a kind of the format.
    Unknown,
}

/// Of this kind.
pub(crate) fn status(kind: &str) -> Status {
    KINDS.iter().find(|(name, _)| *name == kind).map_or(Status::Unknown, |(_, status)| *status)
}
