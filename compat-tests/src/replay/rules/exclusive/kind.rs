use super::super::super::format::Step;

/// The kinds of one owner at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    Lock,
    Fair,
    Fenced,
    Spin,
    NonReentrant,
    NonReentrantFair,
}

impl Kind {
    /// Of the object the step acts on.
    pub(super) fn of(step: &Step) -> Option<Self> {
        Some(match step.object.as_deref()? {
            "lock" => Self::Lock,
            "fair" => Self::Fair,
            "fenced" => Self::Fenced,
            "spin" => Self::Spin,
            "nonreentrant" => Self::NonReentrant,
            "nonreentrant_fair" => Self::NonReentrantFair,
            _ => return None,
        })
    }

    pub(super) fn is_fair(self) -> bool {
        matches!(self, Self::Fair | Self::NonReentrantFair)
    }

    pub(super) fn reenters(self) -> bool {
        !matches!(self, Self::NonReentrant | Self::NonReentrantFair)
    }
}
