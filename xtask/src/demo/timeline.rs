//! Draws who held the lock when: some holds as lines and as bars, then the whole run, then the counts.

use std::fmt::{self, Write};

use super::holds::{Hold, Language, PAIRS, Tally, in_order};

/// Holds that are listed one by one, and where the close view begins.
const LISTED: usize = 12;
/// Columns of a bar.
const COLUMNS: usize = 72;
/// Time in one column of the close view.
const CLOSE_COLUMN_US: u64 = 1_000;

/// The picture of one run, as text. Workers are numbered by their place in `names`.
pub(crate) fn render(names: &[(String, Language)], holds: &[Hold], tally: &Tally) -> String {
    let holds = in_order(holds);
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write(&mut text, names, &holds, tally);
    text
}

fn write(out: &mut String, names: &[(String, Language)], holds: &[Hold], tally: &Tally) -> fmt::Result {
    let start = holds.first().map_or(0, |hold| hold.start_us);
    let end = holds.iter().map(|hold| hold.end_us).max().unwrap_or(start);

    // The JVMs have warmed up by the middle.
    let middle = &holds[holds.len().saturating_sub(LISTED) / 2..];
    let listed = &middle[..LISTED.min(middle.len())];
    writeln!(out, "{} of the {} holds, from the middle of the run", listed.len(), holds.len())?;
    for hold in listed {
        let (from, to) = (millis(hold.start_us - start), millis(hold.end_us - start));
        writeln!(out, "  {from:>9.3} ms .. {to:>9.3} ms  {}", names[hold.worker].0)?;
    }

    writeln!(out, "\nFrom the first of these on, one column a millisecond")?;
    bars(out, names, middle, middle.first().map_or(0, |hold| hold.start_us), CLOSE_COLUMN_US)?;

    let column = (end - start).div_ceil(COLUMNS as u64).max(1);
    writeln!(out, "\nThe whole run, one column {:.0} ms: the fuller, the longer held", millis(column))?;
    bars(out, names, holds, start, column)?;

    writeln!(out, "\nHolds")?;
    for (number, (name, _)) in names.iter().enumerate() {
        writeln!(out, "  {name}  {:>6}", tally.holds.get(&number).copied().unwrap_or(0))?;
    }
    writeln!(out, "\nHand-offs")?;
    for (from, to) in PAIRS {
        writeln!(out, "  {from} -> {to}  {:>6}", tally.pair((from, to)))?;
    }
    writeln!(out, "  the same worker again  {:>6}", tally.again)?;
    writeln!(out, "\nOverlapping holds: {}", tally.overlaps)
}

/// One bar a worker: how much of each column's time it held the lock.
fn bars(out: &mut String, names: &[(String, Language)], holds: &[Hold], start: u64, column: u64) -> fmt::Result {
    for (number, (name, _)) in names.iter().enumerate() {
        let mine: Vec<Hold> = holds.iter().filter(|hold| hold.worker == number).copied().collect();
        let bar: String = held(&mine, start, column).iter().map(|held| shade(*held, column)).collect();
        writeln!(out, "  {name}  |{bar}|")?;
    }
    Ok(())
}

/// Microseconds held in each column.
fn held(holds: &[Hold], start: u64, column: u64) -> [u64; COLUMNS] {
    let mut columns = [0; COLUMNS];
    for hold in holds {
        let first = usize::try_from((hold.start_us - start) / column).unwrap_or(COLUMNS);
        for (number, held) in columns.iter_mut().enumerate().skip(first) {
            let from = start + number as u64 * column;
            if from >= hold.end_us {
                break;
            }
            *held += hold.end_us.min(from + column) - hold.start_us.max(from);
        }
    }
    columns
}

/// From blank, never held, to full.
fn shade(held: u64, column: u64) -> char {
    const SHADES: [char; 5] = [' ', '░', '▒', '▓', '█'];
    let quarters = (held * 4).div_ceil(column);
    SHADES[usize::try_from(quarters).unwrap_or(4).min(4)]
}

#[expect(clippy::cast_precision_loss, reason = "times of one run, for people")]
fn millis(us: u64) -> f64 {
    us as f64 / 1_000.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::holds::tests::hold;

    #[test]
    fn a_hold_is_spread_over_the_columns_it_touches() {
        let columns = held(&[hold(0, 1_500, 3_250)], 1_000, 1_000);
        assert_eq!(columns[..4], [500, 1_000, 250, 0]);
        assert_eq!(columns[4..], [0; COLUMNS - 4]);
    }

    #[test]
    fn holds_after_the_last_column_are_not_drawn() {
        assert_eq!(held(&[hold(0, 1_000_000, 1_002_000)], 0, 1_000), [0; COLUMNS]);
    }

    #[test]
    fn any_held_time_is_visible_and_more_of_it_is_fuller() {
        let shades: Vec<char> = [0, 1, 250, 251, 500, 750, 751, 1_000].iter().map(|held| shade(*held, 1_000)).collect();
        assert_eq!(shades, [' ', '░', '░', '▒', '▒', '▓', '█', '█']);
    }

    #[test]
    fn the_picture_is_short_and_tells_times_names_and_counts() {
        let names = [("java-1".to_owned(), Language::Java), ("rust-1".to_owned(), Language::Rust)];
        let holds: Vec<Hold> = (0..1_000_u64)
            .map(|number| {
                let worker = if number % 2 == 0 { 0 } else { 1 };
                let language = names[worker].1;
                Hold { worker, language, start_us: 10 + number * 3_000, end_us: 10 + number * 3_000 + 2_000 }
            })
            .collect();
        let text = render(&names, &holds, &Tally::of(&holds));
        assert!(text.lines().count() < 40, "{text}");
        assert!(text.contains("   1482.000 ms ..  1484.000 ms  java-1\n   1485.000 ms"), "{text}");
        assert!(text.contains("java-1  |██    ██    ██"), "{text}");
        assert!(text.contains("rust-1  |   ██    ██    "), "{text}");
        assert!(text.contains("java -> rust     500") && text.contains("rust -> java     499"), "{text}");
        assert!(text.contains("rust -> rust       0") && text.ends_with("Overlapping holds: 0\n"), "{text}");
    }

    #[test]
    fn a_run_without_holds_is_drawn_too() {
        let names = [("java-1".to_owned(), Language::Java)];
        assert!(render(&names, &[], &Tally::of(&[])).contains("0 of the 0 holds"));
    }
}
