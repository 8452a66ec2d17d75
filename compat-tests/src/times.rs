use std::env;
use std::future::IntoFuture;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::time::{Instant, sleep, timeout};

use crate::{Failure, Outcome};

/// One hold of a lock by anybody, by the wall clock in microseconds since the epoch.
///
/// Both times lie inside the hold: read after the grant and before the release was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hold {
    /// After the grant.
    pub start_us: u64,
    /// Before the release.
    pub end_us: u64,
}

/// The first two holds of these that were held at one time.
pub fn first_overlap(holds: impl IntoIterator<Item = Hold>) -> Option<(Hold, Hold)> {
    let mut holds: Vec<Hold> = holds.into_iter().collect();
    holds.sort_by_key(|hold| (hold.start_us, hold.end_us));
    holds.windows(2).map(|pair| (pair[0], pair[1])).find(|(earlier, later)| later.start_us < earlier.end_us)
}

/// The wall clock, in microseconds since the epoch; the Java peer reads the same one.
pub fn now_us() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since_epoch.as_micros()).unwrap_or(u64::MAX)
}

/// Waits for the future, but not longer than the limit.
pub async fn within<F: IntoFuture>(limit: Duration, what: &str, future: F) -> Outcome<F::Output> {
    timeout(limit, future).await.map_err(|_| Failure::new(format!("not within {limit:?}: {what}")))
}

/// Looks again every millisecond until the condition holds, but not longer than the limit.
pub async fn eventually<F>(limit: Duration, what: &str, mut condition: F) -> Outcome
where
    F: AsyncFnMut() -> Outcome<bool>,
{
    let deadline = Instant::now() + limit;
    while !condition().await? {
        if Instant::now() > deadline {
            return Err(Failure::new(format!("not within {limit:?}: {what}")));
        }
        sleep(Duration::from_millis(1)).await;
    }
    Ok(())
}

/// Whether the long form of the suite was asked for (`REDLATCH_FULL=1`).
pub fn full_run() -> bool {
    env::var("REDLATCH_FULL").is_ok_and(|value| value == "1")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hold(start_us: u64, end_us: u64) -> Hold {
        Hold { start_us, end_us }
    }

    #[test]
    fn holds_that_touch_do_not_overlap() {
        assert_eq!(first_overlap([hold(5, 9), hold(1, 5), hold(9, 9)]), None);
    }

    #[test]
    fn a_hold_inside_another_is_found() {
        assert_eq!(first_overlap([hold(20, 30), hold(1, 10), hold(4, 5)]), Some((hold(1, 10), hold(4, 5))));
    }
}
