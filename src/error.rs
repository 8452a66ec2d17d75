//! What can go wrong, whose fault it is, and what to do next.

use std::{fmt, time::Duration};

use redis::{RedisError, ServerErrorKind};

use crate::owner::OwnerId;

/// Result of the crate's operations.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Everything that can go wrong. A wait that ends without the lock is not an error but a value (`Ok(None)`).
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The lock is not re-entrant, and this owner holds it already. Release it first, or take it as another owner.
    AlreadyHeld {
        /// The key.
        key: String,
        /// The owner that holds it.
        owner: OwnerId,
    },
    /// The client was shut down. Stop using it.
    Closed,
    /// The key holds data of another kind: another Redis type, or fields that this kind of lock has not.
    /// Nothing was changed. Choose another name, or find out who writes the key.
    ForeignData {
        /// The key.
        key: String,
        /// What was found there.
        found: String,
    },
    /// The lock was held once and is not any more. Stop the protected work.
    LeaseLost(LeaseLost),
    /// The calling code or its configuration is wrong.
    Misuse(Misuse),
    /// A release by an owner that holds nothing.
    NotOwner {
        /// The key.
        key: String,
        /// The owner that holds nothing.
        owner: OwnerId,
    },
    /// A command failed. After a failed acquire nothing stays held beyond one lease: what Redis may have granted is undone
    /// in the background.
    Redis {
        /// What was being done.
        doing: Action,
        /// The key, the channel or the address.
        key: String,
        /// The kind of failure, with advice in the message.
        fault: Fault,
        /// The cause.
        source: RedisError,
    },
    /// Redis answered in a shape that the script cannot produce: a foreign value in the key, or a newer peer.
    UnexpectedReply {
        /// The script.
        script: &'static str,
        /// The key.
        key: String,
        /// The reply.
        reply: String,
    },
    /// A command of this owner is unresolved and may still run, because the server does not let the old connection be killed.
    /// The owner can take this lock again some seconds after the lease of that command has ended; another owner can at once.
    Unresolved {
        /// The key.
        key: String,
        /// The owner that has to wait.
        owner: OwnerId,
    },
    /// The owner reads and asked to write: that can succeed only after its own read hold has ended, so it would wait for itself.
    /// Release the read hold first, or take the write lock before the read lock. A try without a wait gives `None` instead;
    /// `ClientBuilder::upgrade_waits` makes it wait.
    UpgradeImpossible {
        /// The key.
        key: String,
        /// The owner that reads.
        owner: OwnerId,
    },
}

impl Error {
    /// Whether calling again can succeed without any change to the program or the server's configuration.
    pub fn retry_is_safe(&self) -> bool {
        match self {
            Self::Redis { fault, .. } => {
                matches!(fault, Fault::Loading | Fault::ReadOnly | Fault::TimedOut | Fault::Unreachable)
            }
            Self::LeaseLost(_) | Self::Unresolved { .. } => true,
            _ => false,
        }
    }

    /// Sorts a failure of the connection or the server by what the caller can do about it.
    pub(crate) fn redis(doing: Action, key: &str, source: RedisError) -> Self {
        let text = source.to_string();
        if text.contains("WRONGTYPE") {
            return Self::ForeignData { key: key.to_owned(), found: "a value of another Redis type".to_owned() };
        }
        Self::Redis { doing, key: key.to_owned(), fault: Fault::of(&source, &text), source }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::AlreadyHeld { key, owner } => {
                write!(f, "lock `{key}` is not re-entrant and owner {owner} holds it already: release it first")
            }
            Self::Closed => f.write_str("the client was shut down"),
            Self::ForeignData { key, found } => {
                write!(
                    f,
                    "key `{key}` holds {found}, not a lock of this kind; nothing was changed: use another name or find the writer of that key"
                )
            }
            Self::LeaseLost(lost) => fmt::Display::fmt(lost, f),
            Self::Misuse(misuse) => fmt::Display::fmt(misuse, f),
            Self::NotOwner { key, owner } => write!(f, "lock `{key}` is not held by owner {owner}"),
            Self::Redis { doing, key, fault, source } => {
                write!(f, "{doing} `{key}` failed: {source}")?;
                match fault.advice(*doing) {
                    "" => Ok(()),
                    advice => write!(f, " ({advice})"),
                }
            }
            Self::UnexpectedReply { script, key, reply } => write!(
                f,
                "script {script} on key `{key}` answered {reply}, which no lock produces: \
                 find out who else writes that key, or what stands between this client and Redis"
            ),
            Self::UpgradeImpossible { key, owner } => write!(
                f,
                "owner {owner} reads `{key}` and would wait for itself to write: release the read hold first, \
                 or take the write lock before the read lock"
            ),
            Self::Unresolved { key, owner } => {
                write!(
                    f,
                    "an earlier command of owner {owner} on lock `{key}` may still run; use another owner or wait until its lease has ended"
                )
            }
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Redis { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// A hold that can no longer be trusted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeaseLost<T = ()> {
    /// The lock.
    pub name: String,
    /// Who held it.
    pub owner: OwnerId,
    /// Work that was completed, but too late to be protected.
    pub completed: Option<T>,
}

impl<T> LeaseLost<T> {
    pub(crate) fn new(name: &str, owner: OwnerId, completed: Option<T>) -> Self {
        Self { name: name.to_owned(), owner, completed }
    }
}

impl<T> fmt::Display for LeaseLost<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "lock `{}` is no longer held by {}: its lease ended or it was taken away; stop the protected work",
            self.name, self.owner
        )
    }
}

impl<T: fmt::Debug> std::error::Error for LeaseLost<T> {}

impl<T> From<LeaseLost<T>> for Error {
    fn from(lost: LeaseLost<T>) -> Self {
        Self::LeaseLost(LeaseLost { name: lost.name, owner: lost.owner, completed: None })
    }
}

/// What was being done when a command failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the names say it")]
pub enum Action {
    Acquire,
    Connect,
    ForceRelease,
    Publish,
    Query,
    Release,
    Renew,
    Subscribe,
    Transfer,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Acquire => "acquiring",
            Self::Connect => "connecting to",
            Self::ForceRelease => "force-releasing",
            Self::Publish => "released, but publishing to",
            Self::Query => "reading",
            Self::Release => "releasing",
            Self::Renew => "renewing",
            Self::Subscribe => "subscribing to",
            Self::Transfer => "handing over",
        })
    }
}

/// The kind of failure of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Wrong user name or password.
    AuthFailed,
    /// Redis is loading its data.
    Loading,
    /// The ACL user may not run the command, or not on this key or channel.
    NoPermission,
    /// Anything else; see the source.
    Other,
    /// Redis has reached `maxmemory`. Releases still work.
    OutOfMemory,
    /// The server is a replica.
    ReadOnly,
    /// No reply within the response timeout.
    TimedOut,
    /// No connection, or it broke.
    Unreachable,
}

impl Fault {
    fn of(error: &RedisError, text: &str) -> Self {
        use redis::ErrorKind;
        match error.kind() {
            ErrorKind::Server(ServerErrorKind::NoPerm) => return Self::NoPermission,
            ErrorKind::Server(ServerErrorKind::ReadOnly) => return Self::ReadOnly,
            ErrorKind::Server(ServerErrorKind::BusyLoading) => return Self::Loading,
            ErrorKind::AuthenticationFailed => return Self::AuthFailed,
            _ => {}
        }
        if error.is_timeout() {
            return Self::TimedOut;
        }
        // Errors raised inside a script arrive wrapped in its message, in words that differ between server versions.
        const WORDS: [(&str, Fault); 9] = [
            ("WRONGPASS", Fault::AuthFailed),
            ("NOAUTH", Fault::AuthFailed),
            ("invalid username-password", Fault::AuthFailed),
            ("OOM", Fault::OutOfMemory),
            ("READONLY", Fault::ReadOnly),
            ("LOADING", Fault::Loading),
            ("NOPERM", Fault::NoPermission),
            ("ACL failure", Fault::NoPermission),
            ("The user executing the script can't", Fault::NoPermission),
        ];
        if let Some((_, fault)) = WORDS.iter().find(|(word, _)| text.contains(word)) {
            return *fault;
        }
        if error.is_io_error() || error.is_connection_dropped() || error.is_unrecoverable_error() {
            return Self::Unreachable;
        }
        Self::Other
    }

    fn advice(self, doing: Action) -> &'static str {
        match self {
            Self::TimedOut if doing == Action::Connect => {
                "no answer within connect_timeout: check the address, the server and the network, or give it more time"
            }
            Self::Unreachable if doing == Action::Connect => "check the address and that the server runs",
            Self::AuthFailed => "check user name and password of the client",
            Self::Loading => "Redis is loading its data: try again shortly",
            Self::NoPermission => {
                "give the ACL user EVALSHA, SCRIPT, and the commands, keys and channels that docs/wire.md lists for this kind"
            }
            Self::Other => "",
            Self::OutOfMemory => {
                "Redis has reached maxmemory: free memory or raise it; held locks can still be released"
            }
            Self::ReadOnly => "this server is a replica: connect to the master",
            Self::TimedOut => {
                "no reply within response_timeout: the server or the network stalls, or the setting is too short"
            }
            Self::Unreachable => "check the address and that the server runs; the client goes on reconnecting",
        }
    }
}

/// Mistakes in the calling code or its configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Misuse {
    /// The URL cannot be understood.
    BadUrl {
        /// The URL, without its password.
        url: String,
        /// Why.
        reason: String,
    },
    /// A lock needs a name.
    EmptyName,
    /// A lease of zero, or longer than Redis can count.
    LeaseOutOfRange {
        /// The lease that was asked for.
        lease: Duration,
    },
    /// A setting of the builder is out of range.
    OptionOutOfRange {
        /// The builder's method.
        option: &'static str,
        /// Why.
        reason: String,
    },
    /// Called without a tokio runtime.
    NoRuntime,
    /// Thread ids from 2^61 on belong to the crate.
    ReservedThreadId {
        /// The id that was asked for.
        id: i64,
    },
}

impl fmt::Display for Misuse {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadUrl { url, reason } => {
                write!(f, "url `{url}`: {reason}; use redis://[user[:password]@]host[:port][/database] or unix:///path")
            }
            Self::EmptyName => f.write_str("a lock's name must not be empty"),
            Self::LeaseOutOfRange { lease } => {
                write!(
                    f,
                    "lease {lease:?} is out of range: give at least 1 ms and less than 2^63 ms, or none for a renewed one"
                )
            }
            Self::OptionOutOfRange { option, reason } => write!(f, "option `{option}`: {reason}"),
            Self::NoRuntime => f.write_str("no tokio runtime here: call this inside one that has time and I/O enabled"),
            Self::ReservedThreadId { id } => {
                write!(f, "thread id {id} is reserved: use one below 2^61, or Client::owner()")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(code: &str, detail: &str) -> RedisError {
        redis::make_extension_error(code.to_owned(), Some(detail.to_owned()))
    }

    #[test]
    fn script_errors_are_sorted_whatever_the_server_version_wraps_them_in() {
        let cases = [
            (server("OOM", "command not allowed when used memory > 'maxmemory'."), Fault::OutOfMemory),
            (server("ERR", "Error running script: @user_script:10: -OOM command not allowed"), Fault::OutOfMemory),
            (server("READONLY", "You can't write against a read only replica."), Fault::ReadOnly),
            (server("LOADING", "Redis is loading the dataset in memory"), Fault::Loading),
            (server("NOPERM", "this user has no permissions"), Fault::NoPermission),
            (
                server("ERR", "ACL failure in script: User has no permissions to run the 'hset' command"),
                Fault::NoPermission,
            ),
            (server("WRONGPASS", "invalid username-password pair or user is disabled."), Fault::AuthFailed),
            (server("BUSY", "Redis is busy running a script."), Fault::Other),
        ];
        for (source, expected) in cases {
            let text = source.to_string();
            match Error::redis(Action::Acquire, "k", source) {
                Error::Redis { fault, .. } => assert_eq!(fault, expected, "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
    }

    #[test]
    fn another_type_is_foreign_data_and_names_the_key() {
        for (code, detail) in
            [("WRONGTYPE", "Operation against a key"), ("ERR", "Error running script: -WRONGTYPE Operation")]
        {
            let error = Error::redis(Action::Acquire, "orders", server(code, detail));
            assert!(matches!(&error, Error::ForeignData { key, .. } if key == "orders"), "{error:?}");
            assert!(error.to_string().contains("orders"));
        }
    }

    #[test]
    fn messages_name_the_key_and_say_what_to_do() {
        let error = Error::redis(Action::Acquire, "orders", server("OOM", "maxmemory"));
        let text = error.to_string();
        assert!(
            text.contains("orders") && text.contains("maxmemory") && text.contains("can still be released"),
            "{text}"
        );
        assert!(std::error::Error::source(&error).is_some());
    }
}
