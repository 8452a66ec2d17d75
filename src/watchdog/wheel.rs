//! A hashed timer wheel: insert and cancel in constant time. It has no clock and no task; time is a tick passed in.

/// A wheel of entries, each due at a tick.
#[derive(Debug)]
pub(crate) struct Wheel<T> {
    /// First entry of each slot's list.
    slots: Vec<u32>,
    entries: Vec<Entry<T>>,
    /// First of the list of unused entries.
    free: u32,
    /// The last tick that was handled.
    now: u64,
    length: usize,
    /// What new places begin with: above every generation that was ever handed out.
    first_generation: u32,
}

/// Names an entry for [`Wheel::cancel`]; worthless once the entry has come due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    index: u32,
    generation: u32,
}

#[derive(Debug)]
struct Entry<T> {
    due: u64,
    previous: u32,
    next: u32,
    generation: u32,
    value: Option<T>,
}

/// End of a list.
const NONE: u32 = u32::MAX;

impl<T> Wheel<T> {
    /// A wheel with this many slots that starts at tick `now`.
    pub(crate) fn new(slots: usize, now: u64) -> Self {
        Self { slots: vec![NONE; slots], entries: Vec::new(), free: NONE, now, length: 0, first_generation: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.length
    }

    /// Adds an entry. One that is due already comes due at the next tick.
    pub(crate) fn insert(&mut self, due: u64, value: T) -> Token {
        let due = due.max(self.now + 1);
        let index = self.take_free();
        let slot = self.slot(due);
        let first = self.slots[slot];
        let entry = &mut self.entries[index as usize];
        (entry.due, entry.previous, entry.next, entry.value) = (due, NONE, first, Some(value));
        let generation = entry.generation;
        if first != NONE {
            self.entries[first as usize].previous = index;
        }
        self.slots[slot] = index;
        self.length += 1;
        Token { index, generation }
    }

    /// Takes an entry out before it is due.
    pub(crate) fn cancel(&mut self, token: Token) -> Option<T> {
        let entry = self.entries.get(token.index as usize)?;
        if entry.generation != token.generation || entry.value.is_none() {
            return None;
        }
        self.unlink(token.index)
    }

    /// Moves time on to `to` and appends what has come due.
    pub(crate) fn advance(&mut self, to: u64, due: &mut Vec<T>) {
        if to <= self.now {
            return;
        }
        let rounds = (to - self.now).min(self.slots.len() as u64);
        for tick in to - rounds + 1..=to {
            let mut index = self.slots[self.slot(tick)];
            while index != NONE {
                let next = self.entries[index as usize].next;
                if self.entries[index as usize].due <= to {
                    due.extend(self.unlink(index));
                }
                index = next;
            }
        }
        self.now = to;
    }

    /// A tick before which nothing comes due; it may be early by whole turns of the wheel.
    pub(crate) fn next_due(&self) -> Option<u64> {
        if self.length == 0 {
            return None;
        }
        (self.now + 1..=self.now + self.slots.len() as u64).find(|&tick| self.slots[self.slot(tick)] != NONE)
    }

    fn slot(&self, tick: u64) -> usize {
        (tick % self.slots.len() as u64) as usize
    }

    fn take_free(&mut self) -> u32 {
        if self.free == NONE {
            let generation = self.first_generation;
            self.entries.push(Entry { due: 0, previous: NONE, next: NONE, generation, value: None });
            return (self.entries.len() - 1) as u32;
        }
        let index = self.free;
        self.free = self.entries[index as usize].next;
        index
    }

    fn unlink(&mut self, index: u32) -> Option<T> {
        let entry = &mut self.entries[index as usize];
        let (due, previous, next) = (entry.due, entry.previous, entry.next);
        let value = entry.value.take();
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = self.free;
        self.free = index;
        self.length -= 1;
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
        if previous == NONE {
            let slot = self.slot(due);
            self.slots[slot] = next;
        } else {
            self.entries[previous as usize].next = next;
        }
        if self.length == 0 && self.entries.len() > 1024 {
            self.give_memory_back();
        }
        value
    }

    /// Old tokens stay worthless: no place begins with a generation that was handed out before.
    fn give_memory_back(&mut self) {
        let newest = self.entries.iter().map(|e| e.generation).max().unwrap_or(0);
        self.first_generation = newest.wrapping_add(1);
        self.entries = Vec::new();
        self.free = NONE;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn advance(wheel: &mut Wheel<u64>, to: u64) -> Vec<u64> {
        let mut due = Vec::new();
        wheel.advance(to, &mut due);
        due.sort_unstable();
        due
    }

    #[test]
    fn entries_come_due_at_their_tick_and_not_before() {
        let mut wheel = Wheel::new(8, 100);
        for due in [101, 103, 108, 109, 150] {
            wheel.insert(due, due);
        }
        assert_eq!(advance(&mut wheel, 102), [101]);
        assert_eq!(wheel.next_due(), Some(103));
        assert_eq!(advance(&mut wheel, 108), [103, 108]);
        assert_eq!(advance(&mut wheel, 149), [109]);
        assert_eq!(advance(&mut wheel, 150), [150]);
        assert_eq!(wheel.next_due(), None);
    }

    #[test]
    fn what_is_overdue_comes_at_the_next_tick() {
        let mut wheel = Wheel::new(8, 100);
        wheel.insert(3, 3);
        assert_eq!(wheel.next_due(), Some(101));
        assert_eq!(advance(&mut wheel, 101), [3]);
    }

    #[test]
    fn a_cancelled_entry_never_comes_due_and_its_token_dies() {
        let mut wheel = Wheel::new(4, 0);
        let tokens: Vec<Token> = [5, 5, 5, 9].into_iter().map(|due| wheel.insert(due, due)).collect();
        assert_eq!(wheel.cancel(tokens[1]), Some(5));
        assert_eq!(wheel.cancel(tokens[1]), None);
        let reused = wheel.insert(6, 6);
        assert_eq!(wheel.cancel(tokens[1]), None, "the place was taken by another entry");
        assert_eq!(wheel.len(), 4);
        assert_eq!(advance(&mut wheel, 9), [5, 5, 6, 9]);
        assert_eq!(wheel.cancel(reused), None);
        assert_eq!(wheel.len(), 0);
    }

    #[test]
    fn memory_is_given_back_when_the_wheel_runs_empty() {
        let mut wheel = Wheel::new(16, 0);
        let old: Vec<Token> = (0..5000).map(|i| wheel.insert(i, i)).collect();
        assert_eq!(advance(&mut wheel, 5000).len(), 5000);
        assert!(wheel.entries.len() <= 1);
        for i in 0..2000 {
            wheel.insert(6000 + i, i);
        }
        assert!(old.iter().all(|&token| wheel.cancel(token).is_none()));
    }

    #[test]
    fn random_use_agrees_with_a_sorted_list() {
        let mut wheel = Wheel::new(16, 0);
        let (mut model, mut now, mut seed): (Vec<(u64, u64, Token)>, u64, u64) = (Vec::new(), 0, 42);
        for id in 0..20_000u64 {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            match (seed >> 33) % 4 {
                0 | 1 => {
                    let due = now + 1 + (seed >> 40) % 60;
                    model.push((due, id, wheel.insert(due, id)));
                }
                2 if !model.is_empty() => {
                    let (_, id, token) = model.swap_remove((seed >> 40) as usize % model.len());
                    assert_eq!(wheel.cancel(token), Some(id));
                }
                _ => {
                    now += (seed >> 40) % 25;
                    let mut expected: Vec<u64> = model.iter().filter(|e| e.0 <= now).map(|e| e.1).collect();
                    expected.sort_unstable();
                    model.retain(|e| e.0 > now);
                    assert_eq!(advance(&mut wheel, now), expected);
                }
            }
            assert_eq!(wheel.len(), model.len());
        }
    }
}
