//! The differential fuzzer can pass, and it can fail: short sequences, and some with a fault made on purpose.

use std::process::{Command, Output};

use compat_tests::Outcome;

/// What a run printed, and its exit code.
struct Ran {
    text: String,
    complaint: String,
    code: Option<i32>,
}

fn fuzz(options: &[&str]) -> Outcome<Ran> {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_fuzz_diff")).args(options).output()?;
    Ok(Ran { text: String::from_utf8(stdout)?, complaint: String::from_utf8(stderr)?, code: status.code() })
}

impl Ran {
    #[track_caller]
    fn assert_says(&self, words: &[&str]) {
        for word in words {
            assert!(self.text.contains(word), "{word:?} in {} {}", self.text, self.complaint);
        }
    }
}

#[test]
fn short_sequences_are_as_in_java_pure_and_mixed() -> Outcome {
    let ran = fuzz(&["--seeds", "1..3", "--steps", "40"])?;
    ran.assert_says(&["seed 1, pure: as Java", "seed 2, mixed: as Java", "4 sequences, 0 mismatches"]);
    assert_eq!(ran.code, Some(0));
    Ok(())
}

#[test]
fn a_hold_that_lost_its_expiry_is_found_and_made_short() -> Outcome {
    let ran = fuzz(&["--seed", "1", "--steps", "40", "--pure", "--kinds", "lock", "--fault", "lost-expiry"])?;
    ran.assert_says(&["seed 1, pure: MISMATCH", "pttl -1 outside", "the shortest row of steps", "1 mismatches"]);
    ran.assert_says(&["again: cargo xtask fuzz-diff --seed 1 --steps 40 --pure"]);
    assert_eq!(ran.code, Some(1));
    // One grant is all it takes.
    let shortest = ran.text.lines().skip_while(|line| !line.contains("the shortest row")).skip(1);
    let steps = shortest.take_while(|line| !line.contains("again:")).count();
    assert_eq!(steps, 1, "{}", ran.text);
    Ok(())
}

#[test]
fn a_release_that_is_told_twice_is_found_where_languages_are_mixed() -> Outcome {
    let options =
        ["--seed", "2", "--steps", "40", "--mixed", "--kinds", "lock", "--fault", "told-twice", "--shrink", "3"];
    let ran = fuzz(&options)?;
    ran.assert_says(&["seed 2, mixed: MISMATCH", "side mixed", "published ["]);
    assert_eq!(ran.code, Some(1));
    Ok(())
}

#[test]
fn a_seed_gives_the_same_sequence_again() -> Outcome {
    let list = |seed: &str| fuzz(&["--list", "--pure", "--seed", seed, "--steps", "200"]);
    let (once, again, other) = (list("5")?, list("5")?, list("6")?);
    assert_eq!(once.text, again.text);
    assert_ne!(once.text, other.text);
    assert_eq!(once.code, Some(0));
    Ok(())
}

#[test]
fn what_cannot_be_run_is_refused_with_two() -> Outcome {
    let ran = fuzz(&["--kinds", "none-such"])?;
    assert_eq!(ran.code, Some(2));
    assert!(ran.complaint.contains("none-such"), "{}", ran.complaint);
    assert_eq!(fuzz(&["--steps"])?.code, Some(2));
    Ok(())
}
