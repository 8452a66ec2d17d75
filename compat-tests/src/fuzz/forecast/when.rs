/// An instant that is known to lie between these two, in milliseconds since the round began.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct When {
    pub(crate) lo: i64,
    pub(crate) hi: i64,
}

impl When {
    pub(crate) fn at(ms: i64) -> Self {
        Self { lo: ms, hi: ms }
    }

    pub(crate) fn plus(self, ms: i64) -> Self {
        Self { lo: self.lo.saturating_add(ms), hi: self.hi.saturating_add(ms) }
    }

    /// Up to so much later.
    pub(crate) fn delayed(self, ms: i64) -> Self {
        Self { lo: self.lo, hi: self.hi.saturating_add(ms) }
    }

    pub(crate) fn later(self, other: Self) -> Self {
        Self { lo: self.lo.max(other.lo), hi: self.hi.max(other.hi) }
    }

    /// Whether nobody could tell the two apart by looking at Redis.
    pub(crate) fn is_close_to(self, other: Self) -> bool {
        const GRAIN: i64 = 5;
        (self.lo - other.lo).abs() <= GRAIN && (self.hi - other.hi).abs() <= GRAIN
    }
}
