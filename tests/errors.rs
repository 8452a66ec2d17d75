//! Bad input and bad servers: a typed error that names key or setting and says what to do; nothing half taken, nothing changed.
#![allow(clippy::unwrap_used, clippy::expect_used, reason = "a test that cannot go on ends here")]

#[path = "errors/acl.rs"]
mod acl;
#[path = "errors/address.rs"]
mod address;
#[path = "errors/arguments.rs"]
mod arguments;
#[path = "errors/fake.rs"]
mod fake;
#[path = "errors/foreign.rs"]
mod foreign;
#[path = "errors/replies.rs"]
mod replies;
#[path = "errors/server.rs"]
mod server;
mod support;

use std::{error::Error as _, fmt::Debug};

use redlatch::{Action, Error, Fault};

/// The error names what it is about and says what to do about it.
fn advises(error: &Error, name: &str) {
    const ADVICE: [&str; 8] = ["check", "choose", "connect to", "find", "free", "give", "try again", "use "];
    let text = error.to_string();
    assert!(text.contains(name), "does not name `{name}`: {text}");
    assert!(ADVICE.iter().any(|word| text.contains(word)), "does not say what to do: {text}");
}

/// The operation failed because of the server or the way to it, in this manner; the error names `name`.
fn fails<T: Debug>(result: Result<T, Error>, doing: Action, fault: Fault, name: &str) {
    match result {
        Err(error @ Error::Redis { .. }) => {
            let Error::Redis { doing: d, key, fault: f, .. } = &error else { unreachable!("matched above") };
            assert_eq!((*d, *f, key.as_str()), (doing, fault, name), "{error}");
            assert!(error.source().is_some(), "the cause is kept: {error:?}");
            advises(&error, name);
        }
        other => panic!("not {doing:?} {fault:?}: {other:?}"),
    }
}

/// The operation was refused because the key holds something else.
fn is_foreign<T: Debug>(result: Result<T, Error>, name: &str) {
    match result {
        Err(error) if matches!(&error, Error::ForeignData { key, .. } if key == name) => advises(&error, name),
        other => panic!("not refused as foreign: {other:?}"),
    }
}
