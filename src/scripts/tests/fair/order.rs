//! Random sequences: whatever happens, the queue and its times go together, and its order is the order of the grants.

use super::*;

const OWNERS: i64 = 6;
const STEPS: usize = 1500;

/// As `rand` in C: nothing here needs more.
struct Dice(u64);

impl Dice {
    fn below(&mut self, n: i64) -> i64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        i64::try_from(self.0 >> 33).expect("31 bits") % n
    }
}

/// Every owner has a patience of its own, by which it stands in line.
fn patience(n: i64) -> u64 {
    100_000 + 1000 * n.unsigned_abs()
}

#[test]
fn grants_follow_the_line_and_the_books_add_up() {
    let seeds = if std::env::var_os("REDLATCH_FULL").is_some() { 100 } else { 2 };
    for seed in 0..seeds {
        play(seed);
    }
}

fn play(seed: u64) {
    let mut fair = Fair::start();
    let mut dice = Dice(seed);
    // The line and the holder as they should be.
    let (mut line, mut holder): (Vec<i64>, Option<i64>) = (Vec::new(), None);
    for step in 0..STEPS {
        let n = dice.below(OWNERS) + 1;
        let asked = Acquire { patience: ms(patience(n)), lease: ms(60_000), longest: ms(60_000), ..ask(n) };
        match dice.below(8) {
            0..=3 => {
                let enqueue = dice.below(4) > 0;
                let mine = holder == Some(n);
                let turn = holder.is_none() && line.first().is_none_or(|head| *head == n);
                let answer = fair.acquire(Acquire { enqueue, ..asked });
                match answer {
                    Acquired::Granted(granted) => {
                        assert!(if granted.fresh { turn } else { mine }, "seed {seed}, step {step}: {n} of {line:?}");
                        holder = Some(n);
                        line.retain(|waiter| !(granted.fresh && *waiter == n));
                    }
                    Acquired::Busy(busy) => {
                        assert!(!mine && !turn, "seed {seed}, step {step}: {n} of {line:?}");
                        assert_eq!(busy.place.is_some(), enqueue);
                        if enqueue && !line.contains(&n) {
                            line.push(n);
                        }
                    }
                    other => panic!("seed {seed}, step {step}: {other:?}"),
                }
            }
            4 | 5 => {
                let candidates: Vec<Candidate> =
                    (1..=3).filter(|n| line.contains(n)).map(|n| candidate(n, 60_000, patience(n))).collect();
                let released = fair.release(Release { candidates: &candidates, ..give(n) });
                assert_eq!(released.found > 0, holder == Some(n), "seed {seed}, step {step}");
                if released.found > 0 {
                    let ours = line.first().copied().filter(|head| *head <= 3);
                    let granted = released.granted.map(|i| candidates[i].owner.owner.thread_id());
                    assert_eq!(granted, ours, "seed {seed}, step {step}: {line:?}");
                    holder = granted;
                    line.retain(|waiter| Some(*waiter) != granted);
                }
            }
            6 => {
                fair.release(leave(n, patience(n)));
                line.retain(|waiter| *waiter != n);
                holder = holder.filter(|holder| *holder != n);
            }
            _ if dice.below(3) == 0 => {
                fair.expire();
                holder = None;
            }
            // The head dies.
            _ => {
                if let Some(head) = line.first().copied() {
                    fair.set_score(head, 0);
                    line.remove(0);
                    // Somebody looks at the queue; the lock is not this one's to have.
                    assert_eq!(fair.release(give(OWNERS + 1)).found, 0);
                }
            }
        }
        assert_eq!(fair.line(), line, "seed {seed}, step {step}");
        let holding: Vec<String> = fair.0.ask(&["HKEYS", NAMES.key]);
        assert_eq!(
            holding,
            holder.map(|n| owner(n).to_string()).into_iter().collect::<Vec<_>>(),
            "seed {seed}, step {step}"
        );
        let timed: i64 = fair.0.ask(&["ZCARD", NAMES.timeouts]);
        assert_eq!(timed, i64::try_from(line.len()).expect("few"), "seed {seed}, step {step}");
        let scores: Vec<i64> = line.iter().map(|n| fair.score(*n).expect("a score")).collect();
        assert!(scores.is_sorted(), "seed {seed}, step {step}: {scores:?}");
    }
}
