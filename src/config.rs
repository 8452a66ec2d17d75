//! Settings of a client, checked once.

use std::{fmt, path::PathBuf, sync::Arc, time::Duration};

use redis::{ConnectionAddr, IntoConnectionInfo, RedisConnectionInfo};
use uuid::Uuid;

use crate::error::{Error, Misuse};

/// Told of every failure of background work.
pub(crate) type ErrorHook = Arc<dyn Fn(&Error) + Send + Sync>;

/// What `ClientBuilder` collects.
#[derive(Clone)]
pub(crate) struct Config {
    pub(crate) url: String,
    pub(crate) username: Option<String>,
    pub(crate) password: Option<String>,
    pub(crate) database: Option<i64>,
    pub(crate) client_id: Option<Uuid>,
    pub(crate) watchdog_timeout: Duration,
    pub(crate) response_timeout: Duration,
    pub(crate) connect_timeout: Duration,
    pub(crate) local_handoff: bool,
    pub(crate) fair_patience: Duration,
    pub(crate) upgrade_waits: bool,
    pub(crate) on_background_error: Option<ErrorHook>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            url: "redis://127.0.0.1:6379".to_owned(),
            username: None,
            password: None,
            database: None,
            client_id: None,
            watchdog_timeout: Duration::from_secs(30),
            response_timeout: Duration::from_secs(3),
            connect_timeout: Duration::from_secs(5),
            local_handoff: true,
            fair_patience: Duration::from_secs(300),
            upgrade_waits: false,
            on_background_error: None,
        }
    }
}

impl fmt::Debug for Config {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Config")
            .field("url", &without_password(&self.url))
            .field("username", &self.username)
            .field("database", &self.database)
            .field("client_id", &self.client_id)
            .field("watchdog_timeout", &self.watchdog_timeout)
            .field("response_timeout", &self.response_timeout)
            .field("connect_timeout", &self.connect_timeout)
            .field("local_handoff", &self.local_handoff)
            .field("fair_patience", &self.fair_patience)
            .field("upgrade_waits", &self.upgrade_waits)
            .finish_non_exhaustive()
    }
}

impl Config {
    /// Parses the address and checks every range.
    pub(crate) fn target(&self) -> Result<Target, Error> {
        in_range("watchdog_timeout", self.watchdog_timeout, Duration::from_millis(30))?;
        in_range("response_timeout", self.response_timeout, Duration::from_millis(10))?;
        in_range("connect_timeout", self.connect_timeout, Duration::from_millis(10))?;
        in_range("fair_patience", self.fair_patience, Duration::from_millis(1))?;
        if self.database.is_some_and(|db| db < 0) {
            return Err(Error::Misuse(Misuse::OptionOutOfRange {
                option: "database",
                reason: "must not be negative".to_owned(),
            }));
        }
        let bad = |reason: String| Error::Misuse(Misuse::BadUrl { url: without_password(&self.url), reason });
        let info = self.url.as_str().into_connection_info().map_err(|e| bad(e.to_string()))?;
        let address = match info.addr() {
            ConnectionAddr::Tcp(host, port) => Address::Tcp(host.clone(), *port),
            ConnectionAddr::Unix(path) => Address::Unix(path.clone()),
            _ => return Err(bad("TLS is not supported yet".to_owned())),
        };
        let mut login = info.redis_settings().clone().set_lib_name("redlatch", env!("CARGO_PKG_VERSION"));
        if let Some(name) = &self.username {
            login = login.set_username(name);
        }
        if let Some(password) = &self.password {
            login = login.set_password(password);
        }
        if let Some(db) = self.database {
            login = login.set_db(db);
        }
        Ok(Target { address, login, response_timeout: self.response_timeout, connect_timeout: self.connect_timeout })
    }
}

/// Where to connect to and as whom.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: Address,
    pub(crate) login: RedisConnectionInfo,
    pub(crate) response_timeout: Duration,
    pub(crate) connect_timeout: Duration,
}

/// A server's address.
#[derive(Clone)]
pub(crate) enum Address {
    Tcp(String, u16),
    Unix(PathBuf),
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
            Self::Unix(path) => write!(f, "{}", path.display()),
        }
    }
}

fn in_range(option: &'static str, value: Duration, least: Duration) -> Result<(), Error> {
    const MOST: Duration = Duration::from_secs(365 * 24 * 3600);
    if (least..=MOST).contains(&value) {
        return Ok(());
    }
    Err(Error::Misuse(Misuse::OptionOutOfRange {
        option,
        reason: format!("{value:?} is not within {least:?} and {MOST:?}"),
    }))
}

/// The URL with everything between `:` and `@` hidden.
fn without_password(url: &str) -> String {
    let Some(at) = url.rfind('@') else { return url.to_owned() };
    let start = url.find("://").map_or(0, |i| i + 3);
    match url[start..at].find(':') {
        Some(colon) => format!("{}:***{}", &url[..start + colon], &url[at..]),
        None => url.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_never_reach_a_message() {
        let cases = [
            ("redis://u:secret@h:1/2", "redis://u:***@h:1/2"),
            ("redis://:secret@h", "redis://:***@h"),
            ("redis://:se@cret@h", "redis://:***@h"),
            ("redis://h:1", "redis://h:1"),
            ("redis://u@h:1", "redis://u@h:1"),
        ];
        for (url, shown) in cases {
            assert_eq!(without_password(url), shown);
        }
        let config = Config { url: "nonsense://u:secret@h".to_owned(), ..Config::default() };
        let error = config.target().err().expect("no such scheme").to_string();
        assert!(error.contains("nonsense://u:***@h") && !error.contains("secret"), "{error}");
        assert!(!format!("{config:?}").contains("secret"));
    }

    #[test]
    fn settings_out_of_range_are_named() {
        let cases: [(&str, Config); 4] = [
            ("watchdog_timeout", Config { watchdog_timeout: Duration::ZERO, ..Config::default() }),
            ("response_timeout", Config { response_timeout: Duration::ZERO, ..Config::default() }),
            ("connect_timeout", Config { connect_timeout: Duration::MAX, ..Config::default() }),
            ("database", Config { database: Some(-1), ..Config::default() }),
        ];
        for (name, config) in cases {
            match config.target().err() {
                Some(Error::Misuse(Misuse::OptionOutOfRange { option, .. })) => assert_eq!(option, name),
                other => panic!("{name}: {other:?}"),
            }
        }
    }

    #[test]
    fn unix_sockets_are_addresses_too() {
        let config = Config { url: "unix:///run/redis.sock?db=3".to_owned(), ..Config::default() };
        let target = config.target().expect("valid");
        assert_eq!(target.address.to_string(), "/run/redis.sock");
        assert_eq!(target.login.db(), 3);
    }
}
