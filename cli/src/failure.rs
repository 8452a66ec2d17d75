//! What ended a run before its time, in words that name the setting to look at.

use std::{error::Error as _, io};

use redlatch::{Action, Error, Fault, Misuse};

use crate::{exit::Exit, url::RedisUrl};

/// Why a run ended without an answer from the command.
#[derive(Debug)]
pub(crate) enum Failure {
    /// The lock could not be taken or given back.
    Lock(Error),
    /// The system refused what redlatch needs; the text says what that is.
    System(&'static str, io::Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Failure::Lock(error)
    }
}

impl Failure {
    pub(crate) fn exit(&self) -> Exit {
        match self {
            Failure::Lock(Error::Misuse(_)) => Exit::Usage,
            Failure::Lock(_) => Exit::Redis,
            Failure::System(..) => Exit::Internal,
        }
    }

    /// One line, without the password.
    pub(crate) fn message(&self, url: &RedisUrl) -> String {
        match self {
            Failure::Lock(error) => explain(error, url),
            Failure::System(what, error) => format!("{what}: {error}"),
        }
    }
}

/// An error of the library in one line, without the password.
pub(crate) fn explain(error: &Error, url: &RedisUrl) -> String {
    let cause = url.scrub(&with_sources(error));
    match error {
        Error::Misuse(Misuse::BadUrl { .. }) => format!("--url (REDIS_URL) is not valid: {cause}"),
        Error::Misuse(Misuse::LeaseOutOfRange { .. }) => format!("--lease is not valid: {cause}"),
        Error::Misuse(Misuse::OptionOutOfRange { option: "watchdog_timeout", reason }) => {
            format!("--watchdog is not valid: {reason}")
        }
        Error::Redis { fault: Fault::AuthFailed, .. } => {
            format!("Redis at {url} refused the user or the password in --url (REDIS_URL): {cause}")
        }
        Error::Redis { doing: Action::Connect, .. } => {
            format!("cannot use Redis at {url}, set by --url (REDIS_URL): {cause}")
        }
        Error::Redis { .. } => format!("Redis at {url}: {cause}"),
        _ => cause,
    }
}

/// The error and its causes; a cause that is quoted already is not repeated.
fn with_sources(error: &Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let more = cause.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        source = cause.source();
    }
    text.replace(['\r', '\n'], " ")
}

#[cfg(test)]
mod tests {
    use std::io;

    use redlatch::{Action, Error, Fault, Misuse};

    use super::{Exit, Failure};
    use crate::url::RedisUrl;

    fn url() -> RedisUrl {
        "redis://ann:geheim@db:6379".parse().unwrap_or_else(|never| match never {})
    }

    fn redis(doing: Action, fault: Fault, source: &str) -> Failure {
        let source = redis::RedisError::from(io::Error::other(source.to_owned()));
        Failure::Lock(Error::Redis { doing, key: "db:6379".to_owned(), fault, source })
    }

    #[test]
    fn connection_errors_name_the_setting_and_the_cause_but_no_password() {
        let failure = redis(Action::Connect, Fault::Unreachable, "no route for ann:geheim");
        let message = failure.message(&url());
        assert!(message.contains("--url (REDIS_URL)"), "{message}");
        assert!(message.contains("redis://***@db:6379"), "{message}");
        assert!(message.contains("no route"), "{message}");
        assert!(!message.contains("geheim"), "{message}");
        assert_eq!(failure.exit(), Exit::Redis);
    }

    #[test]
    fn a_refused_password_is_called_that() {
        let message = redis(Action::Connect, Fault::AuthFailed, "WRONGPASS").message(&url());
        assert!(message.contains("refused the user or the password"), "{message}");
    }

    #[test]
    fn a_setting_out_of_range_is_named_as_on_the_command_line() {
        let reason = "too short".to_owned();
        let misuse = Misuse::OptionOutOfRange { option: "watchdog_timeout", reason };
        let failure = Failure::Lock(Error::Misuse(misuse));
        assert_eq!(failure.message(&url()), "--watchdog is not valid: too short");
        assert_eq!(failure.exit(), Exit::Usage);
    }

    #[test]
    fn misuse_is_a_usage_error() {
        let misuse = Misuse::BadUrl { url: "redis://ann:geheim@db:6379".into(), reason: "bad".into() };
        let failure = Failure::Lock(Error::Misuse(misuse));
        assert_eq!(failure.exit(), Exit::Usage);
        assert!(!failure.message(&url()).contains("geheim"));
    }
}
