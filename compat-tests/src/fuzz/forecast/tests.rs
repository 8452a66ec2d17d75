use super::super::call::Args;
use super::super::family::FAMILIES;
use super::*;

const JAVA: Cast = [Language::Java; 3];
const RUST: Cast = [Language::Rust; 3];
const A: Owner = Owner { client: 0, thread: 1 };
const B: Owner = Owner { client: 1, thread: 1 };
const C: Owner = Owner { client: 2, thread: 1 };

/// One name, and the calls on it.
struct Story {
    forecast: Forecast,
    calls: usize,
}

impl Story {
    fn new(family: &str, cast: Cast) -> Self {
        let mut forecast = Forecast::new(cast);
        let family = FAMILIES.iter().find(|other| other.name == family);
        forecast.add("k", family.expect("a family of that name"));
        Self { forecast, calls: 0 }
    }

    /// `wait` and `lease` of 0 are none.
    fn call(&mut self, at: i64, owner: Owner, kind: &'static str, op: &'static str, wait: i64, lease: i64) -> usize {
        self.forecast.advance(at);
        self.calls += 1;
        let some = |ms: i64| (ms > 0).then_some(ms);
        let args = Args::default().with("wait_ms", some(wait)).with("lease_ms", some(lease));
        let call = Call { owner, kind, name: "k".to_owned(), op, args, in_background: false };
        self.forecast.call(self.calls, &call, at);
        self.calls
    }

    fn holders(&mut self, at: i64) -> Vec<Owner> {
        self.forecast.advance(at);
        self.forecast.view("k").holders
    }
}

#[test]
fn a_waiter_holds_when_the_lease_before_it_ends() {
    let mut story = Story::new("lock", JAVA);
    story.call(0, A, "lock", "lock", 0, 300);
    let waits = story.call(50, B, "lock", "tryLock", 900, 400);
    assert_eq!(story.holders(200), [A]);
    assert_eq!(story.holders(600), [B]);
    let ended = story.forecast.ended(waits).expect("the wait is over");
    assert!(ended.granted && ended.when.lo == 300, "{ended:?}");
    assert_eq!(story.forecast.trouble(), None);
}

#[test]
fn a_wait_that_is_too_short_is_given_up_in_time() {
    let mut story = Story::new("fair", RUST);
    story.call(0, A, "fair", "lock", 0, 0);
    let waits = story.call(10, B, "fair", "tryLock", 200, 0);
    assert_eq!(story.holders(1_000), [A]);
    let ended = story.forecast.ended(waits).expect("the wait is over");
    assert!(!ended.granted && ended.when.lo == 210, "{ended:?}");
}

#[test]
fn nobody_can_tell_which_of_two_waiters_comes_first_but_in_a_queue() {
    for (family, trouble) in [("lock", true), ("fair", false)] {
        let mut story = Story::new(family, JAVA);
        story.call(0, A, "lock", "lock", 0, 0);
        story.call(10, B, "lock", "lock", 0, 0);
        story.call(20, C, "lock", "lock", 0, 0);
        assert_eq!(story.forecast.trouble().is_some(), trouble, "{family}");
    }
}

#[test]
fn a_shorter_re_entry_cuts_the_key_in_java_only() {
    for (cast, holders) in [(JAVA, vec![]), (RUST, vec![A])] {
        let mut story = Story::new("lock", cast);
        story.call(0, A, "lock", "lock", 0, 900);
        story.call(10, A, "lock", "lock", 0, 200);
        assert_eq!(story.holders(600), holders, "{cast:?}");
    }
}

#[test]
fn a_lease_that_java_remembers_is_the_next_one_too() {
    for (cast, holders) in [(JAVA, vec![]), (RUST, vec![A])] {
        let mut story = Story::new("nonreentrant", cast);
        story.call(0, A, "nonreentrant", "lock", 0, 100);
        story.call(500, A, "nonreentrant", "lock", 0, 0);
        assert_eq!(story.holders(1_000), holders, "{cast:?}");
    }
}

#[test]
fn a_reader_learns_of_a_downgrade_in_rust_and_waits_for_the_ttl_in_java() {
    for (cast, at) in [(JAVA, 800), (RUST, 300)] {
        let mut story = Story::new("read_write", cast);
        story.call(0, A, "write", "lock", 0, 800);
        story.call(10, A, "read", "lock", 0, 20_000);
        let waits = story.call(100, B, "read", "lock", 0, 0);
        story.call(300, A, "write", "unlock", 0, 0);
        story.forecast.advance(30_000);
        // In Java the reader knew of 20 s when it began to wait.
        let ended = story.forecast.ended(waits).expect("it reads at last");
        if at == 300 {
            assert_eq!(ended.when.lo, at);
        } else {
            assert!(ended.when.lo > at, "{ended:?}");
        }
    }
}

#[test]
fn the_lease_of_a_dead_client_ends_and_its_places_in_the_queue_stay() {
    let mut story = Story::new("fair", RUST);
    story.call(0, A, "fair", "lock", 0, 0);
    story.call(10, B, "fair", "tryLock", 500, 0);
    story.forecast.kill(1);
    assert_eq!(story.forecast.view("k").dead_in_queue, 1);
    assert_eq!(story.forecast.view("k").waiters, 0);
    assert_eq!(story.holders(5_000), [A]);
}

#[test]
fn sides_are_alike_until_one_of_them_does_otherwise() {
    let (mut java, mut rust) = (Story::new("fenced", JAVA), Story::new("fenced", RUST));
    for story in [&mut java, &mut rust] {
        story.call(0, A, "fenced", "lock", 0, 12_000);
    }
    assert!(java.forecast.is_like(&rust.forecast, "k"));
    for story in [&mut java, &mut rust] {
        story.call(1_000, A, "fenced", "lock", 0, 300);
    }
    assert!(!java.forecast.is_like(&rust.forecast, "k"));
    for story in [&mut java, &mut rust] {
        story.call(1_100, B, "fenced", "forceUnlock", 0, 0);
    }
    assert!(java.forecast.is_like(&rust.forecast, "k"));
}
