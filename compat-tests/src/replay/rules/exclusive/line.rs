//! The queue of a fair lock: how it may change between two looks at it.
//!
//! What was seen at the first look is known exactly; this module says what must be seen at the second one. Scores are
//! Unix milliseconds. Whoever joins gets the score of the tail plus its own patience, or the end of the holder's lease
//! plus its patience if nobody waits. Whoever enters takes its patience from all others, whoever leaves from those behind.
//! So the sums stay the same whatever the order in which several things happened.

use super::super::super::format::{Range, Score};
use super::super::holds::Span;

/// Milliseconds a reckoned time may be off.
const GRAIN: i64 = 25;

/// The queue as seen.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    places: Vec<Place>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) owner: String,
    /// None if there is no such entry in the sorted set.
    pub(super) score: Option<i64>,
}

/// What happened between the two looks.
#[derive(Clone, Debug, Default)]
pub(super) struct Moves {
    /// The wall clock at the second look, at the earliest and at the latest.
    pub(super) now: (i64, i64),
    /// Who took the lock, and with what patience it had waited.
    pub(super) entered: Vec<(String, i64)>,
    /// Who gave up, and with what patience it had waited.
    pub(super) left: Vec<(String, i64)>,
    /// Who is waiting, and with what patience.
    pub(super) waiting: Vec<(String, i64)>,
    /// One of our own scripts looked at the queue: a head without a score is stale to it.
    pub(super) swept: bool,
    /// Ends of the holder's lease that a newcomer may have met.
    pub(super) lease_ends: Vec<Span>,
}

/// What must be seen at the second look.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Expected {
    pub(super) places: Vec<(String, Option<Score>)>,
    /// Places that were taken away because their time was over.
    pub(super) stale: Vec<Place>,
    /// Who stood at the head at some time since the first look, without having stood there then.
    pub(super) new_heads: Vec<String>,
}

/// Why a place is not there any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gone {
    Entered(i64),
    Left(i64),
    Stale,
}

impl Line {
    pub(super) fn new(owners: Vec<String>, score_of: impl Fn(&str) -> Option<i64>) -> Self {
        let place = |owner: String| Place { score: score_of(&owner), owner };
        Self { places: owners.into_iter().map(place).collect() }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The head without a score, which blocks Redisson for ever.
    pub(super) fn head_has_no_score(&self) -> bool {
        self.places.first().is_some_and(|head| head.score.is_none())
    }

    /// Those whose time is not over at this instant, the head first.
    pub(super) fn living(&self, now: i64) -> impl Iterator<Item = &str> {
        self.places.iter().filter(move |place| !place.is_stale(now)).map(|place| place.owner.as_str())
    }

    /// Whether the head's time is over at this instant.
    pub(super) fn is_stale_at(&self, now: i64) -> bool {
        self.places.first().is_some_and(|head| head.is_stale(now))
    }

    /// Somebody stands behind this owner.
    pub(super) fn has_anybody_behind(&self, owner: &str) -> bool {
        self.places.iter().skip_while(|place| place.owner != owner).nth(1).is_some()
    }

    /// Everything as it is.
    pub(super) fn as_it_is(&self) -> Expected {
        let places = self.places.iter().map(|place| (place.owner.clone(), place.score.map(Score::Exact))).collect();
        Expected { places, ..Expected::default() }
    }

    /// What must be there at the second look. What was `seen` there decides only between things that may both have
    /// happened.
    pub(super) fn moved(&self, seen: &Self, moves: &Moves) -> Expected {
        let mut line = self.places.clone();
        let mut expected = Expected::default();
        // Scores of which a newcomer may have been told as that of the tail.
        let mut tails: Vec<i64> = Vec::new();
        let mut at = 0;
        while let Some(place) = line.get(at) {
            let Some(gone) = moves.why_gone(place, seen, at == 0) else {
                at += 1;
                continue;
            };
            let place = line.remove(at);
            tails.extend(place.score);
            match gone {
                Gone::Entered(patience) => {
                    lower(&mut line, patience);
                    tails.iter_mut().for_each(|tail| *tail -= patience);
                }
                Gone::Left(patience) => {
                    lower(&mut line[at..], patience);
                    tails.iter_mut().for_each(|tail| *tail -= patience);
                }
                Gone::Stale => expected.stale.push(place.clone()),
            }
            if at == 0 {
                expected.new_heads.extend(line.first().map(|head| head.owner.clone()));
            }
        }
        expected.places = Self { places: line.clone() }.as_it_is().places;
        let mut tail = line.last().and_then(|place| place.score);
        for place in seen.places.iter().filter(|place| !line.iter().any(|stays| stays.owner == place.owner)) {
            let Some((_, patience)) = moves.waiting.iter().find(|(owner, _)| *owner == place.owner) else { continue };
            let score = moves.score_of_newcomer(place, *patience, tail, &tails);
            if expected.places.is_empty() {
                expected.new_heads.push(place.owner.clone());
            }
            expected.places.push((place.owner.clone(), Some(score)));
            tail = place.score;
        }
        expected
    }
}

impl Place {
    fn is_stale(&self, now: i64) -> bool {
        self.score.is_none_or(|score| score <= now)
    }
}

impl Moves {
    fn why_gone(&self, place: &Place, seen: &Line, is_head: bool) -> Option<Gone> {
        let patience = |of: &[(String, i64)]| of.iter().find(|(owner, _)| *owner == place.owner).map(|(_, ms)| *ms);
        if let Some(patience) = patience(&self.entered) {
            return Some(Gone::Entered(patience));
        }
        if let Some(patience) = patience(&self.left) {
            return Some(Gone::Left(patience));
        }
        let now = seen.places.iter().find(|seen| seen.owner == place.owner);
        // A score only ever falls: one that has risen belongs to somebody who stood in line anew.
        if now.is_some_and(|now| now.score <= place.score) {
            return None;
        }
        match place.score {
            Some(score) => (score <= self.now.1).then_some(Gone::Stale),
            None => (is_head && self.swept).then_some(Gone::Stale),
        }
    }

    fn score_of_newcomer(&self, place: &Place, patience: i64, tail: Option<i64>, tails: &[i64]) -> Score {
        let behind_somebody = tail.iter().chain(tails).map(|tail| {
            let score = tail + patience;
            (score, score)
        });
        let behind_holder = self.lease_ends.iter().map(|end| (end.lo + patience - GRAIN, end.hi + patience + GRAIN));
        let seen = place.score.unwrap_or_default();
        let off = |(lo, hi): &(i64, i64)| (lo - seen).max(seen - hi).max(0);
        let nearest = behind_somebody.chain(behind_holder).min_by_key(off);
        // Nobody waits and nobody holds: its patience counts from now.
        let (min, max) = nearest.unwrap_or((self.now.0 + patience - GRAIN, self.now.1 + patience + GRAIN));
        if min == max { Score::Exact(min) } else { Score::Reckoned(Range { min, max }) }
    }
}

fn lower(places: &mut [Place], patience: i64) {
    for score in places.iter_mut().filter_map(|place| place.score.as_mut()) {
        *score -= patience;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(places: &[(&str, i64)]) -> Line {
        Line {
            places: places
                .iter()
                .map(|(owner, score)| Place { owner: (*owner).to_owned(), score: Some(*score) })
                .collect(),
        }
    }

    fn named(owner: &str, patience: i64) -> Vec<(String, i64)> {
        vec![(owner.to_owned(), patience)]
    }

    fn at(now: i64) -> Moves {
        Moves { now: (now, now + 5), ..Moves::default() }
    }

    fn exact(expected: &Expected) -> Vec<(&str, i64)> {
        let score = |score: &Option<Score>| match score {
            Some(Score::Exact(score)) => *score,
            other => panic!("{other:?} is not exact"),
        };
        expected.places.iter().map(|(owner, of)| (owner.as_str(), score(of))).collect()
    }

    #[test]
    fn who_enters_takes_its_patience_from_all_others() {
        let before = line(&[("a", 5_000), ("b", 9_000), ("c", 12_000)]);
        let moves = Moves { entered: named("a", 2_000), ..at(1_000) };
        let expected = before.moved(&line(&[("b", 0), ("c", 0)]), &moves);
        assert_eq!(exact(&expected), [("b", 7_000), ("c", 10_000)]);
        assert_eq!(expected.new_heads, ["b"]);
    }

    #[test]
    fn who_leaves_takes_its_patience_from_those_behind_only() {
        let before = line(&[("a", 5_000), ("b", 9_000), ("c", 12_000)]);
        let moves = Moves { left: named("b", 1_500), ..at(1_000) };
        let expected = before.moved(&line(&[("a", 0), ("c", 0)]), &moves);
        assert_eq!(exact(&expected), [("a", 5_000), ("c", 10_500)]);
        assert!(expected.new_heads.is_empty());
    }

    #[test]
    fn a_dead_head_goes_without_a_trace_and_a_living_one_stays() {
        let before = line(&[("a", 900), ("b", 9_000)]);
        assert_eq!(exact(&before.moved(&line(&[("b", 0)]), &at(1_000))), [("b", 9_000)]);
        let expected = line(&[("a", 1_900), ("b", 9_000)]).moved(&line(&[("b", 9_000)]), &at(1_000));
        assert_eq!(exact(&expected), [("a", 1_900), ("b", 9_000)]);
    }

    #[test]
    fn a_head_without_score_goes_only_when_we_looked() {
        let before = Line { places: vec![Place { owner: "a".to_owned(), score: None }] };
        assert!(before.head_has_no_score());
        let swept = Moves { swept: true, ..at(1_000) };
        assert!(before.moved(&Line::default(), &swept).places.is_empty());
        assert_eq!(before.moved(&Line::default(), &at(1_000)).places, [("a".to_owned(), None)]);
    }

    #[test]
    fn a_newcomer_stands_behind_the_tail() {
        let moves = Moves { waiting: named("b", 300), ..at(1_000) };
        let expected = line(&[("a", 5_000)]).moved(&line(&[("a", 5_000), ("b", 5_300)]), &moves);
        assert_eq!(exact(&expected), [("a", 5_000), ("b", 5_300)]);
        let expected = line(&[("a", 5_000)]).moved(&line(&[("a", 5_000), ("b", 5_299)]), &moves);
        assert_eq!(exact(&expected), [("a", 5_000), ("b", 5_300)]);
    }

    #[test]
    fn the_first_newcomer_stands_behind_the_holder() {
        let moves = Moves { waiting: named("b", 300), lease_ends: vec![Span { lo: 4_000, hi: 4_002 }], ..at(1_000) };
        let expected = Line::default().moved(&line(&[("b", 4_301)]), &moves);
        let [(_, Some(Score::Reckoned(range)))] = expected.places.as_slice() else { panic!("{expected:?}") };
        assert!(range.min <= 4_300 && range.max >= 4_302 && range.max - range.min < 60, "{range:?}");
    }

    #[test]
    fn a_newcomer_may_have_met_a_tail_that_is_gone_since() {
        let moves = Moves { entered: named("a", 2_000), waiting: named("b", 300), ..at(1_000) };
        let expected = line(&[("a", 5_000)]).moved(&line(&[("b", 3_300)]), &moves);
        assert_eq!(exact(&expected), [("b", 3_300)]);
    }

    #[test]
    fn a_waiter_whose_time_was_over_stands_at_the_tail() {
        let moves = Moves { waiting: named("a", 1_000), ..at(1_000) };
        let expected = line(&[("a", 900), ("b", 9_000)]).moved(&line(&[("b", 9_000), ("a", 10_000)]), &moves);
        assert_eq!(exact(&expected), [("b", 9_000), ("a", 10_000)]);
        assert_eq!(expected.stale.len(), 1);
    }

    #[test]
    fn nobody_joins_who_does_not_wait() {
        let expected = Line::default().moved(&line(&[("x", 9_000)]), &at(1_000));
        assert!(expected.places.is_empty());
    }
}
