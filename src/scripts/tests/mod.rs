//! The scripts against a server of their own.

mod fair;
mod fenced;
mod lock;
mod server;

use super::*;

#[test]
fn every_script_says_what_it_takes_and_returns() {
    for script in ALL {
        assert!(script.source.starts_with(&format!("-- {}: ", script.name)), "{}", script.name);
        for part in ["KEYS[", "ARGV[", "Returns ", "Publishes ", "Retry: ", "Mirrors "] {
            assert!(script.source.contains(part), "{} lacks `{part}`", script.name);
        }
        assert_eq!(script.digest.len(), 40);
    }
}
