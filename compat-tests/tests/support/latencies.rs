//! How long it takes from a release to the grant that it makes possible.

/// In microseconds.
#[derive(Default)]
pub(crate) struct Latencies(Vec<u64>);

impl Latencies {
    pub(crate) fn add(&mut self, released: u64, granted: u64) {
        self.0.push(granted.saturating_sub(released));
    }

    /// Whoever is woken is so within a second, and as a rule within 20 ms.
    pub(crate) fn check(mut self, what: &str) {
        self.0.sort_unstable();
        let (count, median, worst) = (self.0.len(), self.0[self.0.len() / 2], self.0[self.0.len() - 1]);
        println!("{what}: {count} wake-ups, median {median} us, longest {worst} us");
        assert!(median <= 20_000, "{what}: the median of {count} wake-ups is {median} us");
        assert!(worst <= 1_000_000, "{what}: the longest of {count} wake-ups took {worst} us");
    }
}
