//! A list that is nearly always empty or of one: the first entry needs no allocation.

use std::ops::{Deref, DerefMut};

/// See the module. Order is kept.
#[derive(Debug, Default)]
pub(crate) enum Few<T> {
    Many(Vec<T>),
    #[default]
    None,
    One(T),
}

impl<T> Few<T> {
    pub(crate) const fn new() -> Self {
        Self::None
    }

    pub(crate) fn push(&mut self, value: T) {
        *self = match std::mem::replace(self, Self::None) {
            Self::None => Self::One(value),
            Self::One(first) => Self::Many(vec![first, value]),
            Self::Many(mut all) => {
                all.push(value);
                Self::Many(all)
            }
        };
    }

    /// Puts a value before the entry at `index`, which may be the end.
    pub(crate) fn insert(&mut self, index: usize, value: T) {
        match self {
            Self::Many(all) => all.insert(index, value),
            _ if index == self.len() => self.push(value),
            _ => {
                let Self::One(last) = std::mem::replace(self, Self::None) else { unreachable!("shorter than one") };
                *self = Self::Many(vec![value, last]);
            }
        }
    }

    /// Takes the entry at `index` out, which must exist.
    pub(crate) fn remove(&mut self, index: usize) -> T {
        match std::mem::replace(self, Self::None) {
            Self::One(only) if index == 0 => only,
            Self::Many(mut all) => {
                let taken = all.remove(index);
                if !all.is_empty() {
                    *self = Self::Many(all);
                }
                taken
            }
            _ => panic!("no entry at {index}"),
        }
    }

    pub(crate) fn retain_mut(&mut self, mut keep: impl FnMut(&mut T) -> bool) {
        match self {
            Self::None => {}
            Self::One(only) => {
                if !keep(only) {
                    *self = Self::None;
                }
            }
            Self::Many(all) => {
                all.retain_mut(keep);
                if all.is_empty() {
                    *self = Self::None;
                }
            }
        }
    }
}

impl<T> Deref for Few<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        match self {
            Self::None => &[],
            Self::One(only) => std::slice::from_ref(only),
            Self::Many(all) => all,
        }
    }
}

impl<T> DerefMut for Few<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        match self {
            Self::None => &mut [],
            Self::One(only) => std::slice::from_mut(only),
            Self::Many(all) => all,
        }
    }
}

impl<T> Extend<T> for Few<T> {
    fn extend<I: IntoIterator<Item = T>>(&mut self, values: I) {
        values.into_iter().for_each(|value| self.push(value));
    }
}

impl<T> IntoIterator for Few<T> {
    type Item = T;
    type IntoIter = std::iter::Chain<std::option::IntoIter<T>, std::vec::IntoIter<T>>;

    fn into_iter(self) -> Self::IntoIter {
        let (one, many) = match self {
            Self::None => (None, Vec::new()),
            Self::One(only) => (Some(only), Vec::new()),
            Self::Many(all) => (None, all),
        };
        one.into_iter().chain(many)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_behaves_as_a_vec() {
        let (mut few, mut vec, mut seed) = (Few::new(), Vec::new(), 7u64);
        for i in 0..5_000u64 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            let pick = (seed >> 33) as usize;
            match pick % 4 {
                0 | 1 => {
                    few.push(i);
                    vec.push(i);
                }
                2 if !vec.is_empty() => assert_eq!(few.remove(pick % vec.len()), vec.remove(pick % vec.len())),
                _ => {
                    few.retain_mut(|v| !v.is_multiple_of(3));
                    vec.retain(|v| !v.is_multiple_of(3));
                }
            }
            assert_eq!(&few[..], &vec[..]);
            if pick.is_multiple_of(97) {
                few = few.into_iter().take(1).fold(Few::new(), |mut few, v| {
                    few.extend([v]);
                    few
                });
                vec.truncate(1);
            }
        }
    }
}
