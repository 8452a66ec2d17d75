//! Random numbers that are the same for the same seed, on every machine and for ever: `SplitMix64`.

/// A stream of numbers.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// The stream of a part of a sequence, which stays the same when other parts change.
    pub(crate) fn part(seed: u64, part: u64) -> Self {
        let mut rng = Self(seed ^ 0x6A09_E667_F3BC_C909);
        let start = rng.next() ^ part.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        Self(start)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `end`; 0 when that is 0.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        // The bias is far below what anybody could notice in a few hundred draws.
        let end = u64::try_from(end).unwrap_or(u64::MAX);
        usize::try_from(self.next() % end.max(1)).unwrap_or(0)
    }

    /// From `least` to `most`, both included.
    pub(crate) fn between(&mut self, least: i64, most: i64) -> i64 {
        let width = usize::try_from(most - least).unwrap_or(0) + 1;
        least + i64::try_from(self.below(width)).unwrap_or(0)
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, among: &'a [T]) -> Option<&'a T> {
        among.get(self.below(among.len()))
    }

    /// One of these, each as often as its weight says.
    pub(crate) fn weighted<T: Copy>(&mut self, among: &[(usize, T)]) -> Option<T> {
        let sum = among.iter().map(|(weight, _)| weight).sum();
        let mut at = self.below(sum);
        for (weight, value) in among {
            if at < *weight {
                return Some(*value);
            }
            at -= weight;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_gives_the_same_numbers_again() {
        let draw = |seed| {
            let mut rng = Rng::part(seed, 0);
            (0..5).map(|_| rng.below(1_000_000)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert_ne!(Rng::part(7, 0).below(1_000_000), Rng::part(7, 1).below(1_000_000));
    }

    #[test]
    fn draws_stay_inside_their_bounds_and_reach_both_ends() {
        let mut rng = Rng::part(1, 0);
        let drawn: Vec<i64> = (0..200).map(|_| rng.between(-2, 2)).collect();
        assert_eq!(drawn.iter().min(), Some(&-2));
        assert_eq!(drawn.iter().max(), Some(&2));
        assert_eq!(rng.below(0), 0);
        assert!(rng.pick::<u8>(&[]).is_none());
    }

    #[test]
    fn a_weight_of_zero_is_never_drawn() {
        let mut rng = Rng::part(1, 0);
        assert!((0..100).all(|_| rng.weighted(&[(0, 'a'), (3, 'b'), (0, 'c')]) == Some('b')));
        assert_eq!(rng.weighted::<char>(&[]), None);
    }
}
