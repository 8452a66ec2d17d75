//! The Redis URL, kept from being printed with its password.

use std::{convert::Infallible, fmt, str::FromStr};

/// A Redis URL. `Debug` and `Display` leave out everything that may be a secret.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct RedisUrl(String);

impl RedisUrl {
    /// The URL as it was given, password included.
    pub(crate) fn reveal(&self) -> &str {
        &self.0
    }

    /// `text` without the URL and its user information, for messages that come from elsewhere and may quote it.
    pub(crate) fn scrub(&self, text: &str) -> String {
        if self.0.is_empty() {
            return text.to_owned();
        }
        let mut text = text.replace(&self.0, &self.to_string());
        for secret in [self.user_info(), self.password(), self.query()].into_iter().flatten() {
            // A very short secret would be found inside ordinary words.
            if secret.len() > 2 {
                text = text.replace(secret, "***");
            }
        }
        text
    }

    /// All before the last `@`: a password with an unescaped `@` or `/` is still inside.
    fn user_info(&self) -> Option<&str> {
        let (before, _) = self.0.rsplit_once('@')?;
        Some(before.split_once("://").map_or(before, |(_, info)| info))
    }

    fn password(&self) -> Option<&str> {
        self.user_info()?.split_once(':').map(|(_, password)| password)
    }

    fn query(&self) -> Option<&str> {
        self.0.split_once('?').map(|(_, query)| query)
    }
}

impl FromStr for RedisUrl {
    type Err = Infallible;

    fn from_str(url: &str) -> Result<Self, Infallible> {
        Ok(RedisUrl(url.to_owned()))
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rest = match self.0.rsplit_once('@') {
            Some((before, rest)) => {
                if let Some((scheme, _)) = before.split_once("://") {
                    write!(f, "{scheme}://")?;
                }
                f.write_str("***@")?;
                rest
            }
            None => &self.0,
        };
        // Unix socket URLs carry user and password in the query.
        match rest.split_once('?') {
            Some((path, _)) => write!(f, "{path}?***"),
            None => f.write_str(rest),
        }
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
}

#[cfg(test)]
mod tests {
    use super::RedisUrl;

    #[test]
    fn the_password_is_never_shown() {
        for (url, shown) in [
            ("redis://127.0.0.1:6379", "redis://127.0.0.1:6379"),
            ("redis://:geheim@db:6379/2", "redis://***@db:6379/2"),
            ("redis://ann:geheim@db", "redis://***@db"),
            ("redis://ann:ge@he/im@db", "redis://***@db"),
            ("redis//ann:geheim@db", "***@db"),
            ("unix:///run/redis.sock?db=1&pass=geheim", "unix:///run/redis.sock?***"),
            ("", ""),
        ] {
            let url: RedisUrl = url.parse().unwrap_or_else(|never| match never {});
            assert_eq!(url.to_string(), shown);
            assert_eq!(format!("{url:?}"), format!("RedisUrl({shown})"));
        }
    }

    #[test]
    fn a_message_that_quotes_the_url_is_cleaned() {
        let url: RedisUrl = "redis://ann:geheim@db".parse().unwrap_or_else(|never| match never {});
        assert_eq!(url.scrub("bad redis://ann:geheim@db"), "bad redis://***@db");
        assert_eq!(url.scrub("user ann:geheim, password geheim"), "user ***, password ***");
        let socket: RedisUrl = "unix:///s?pass=geheim".parse().unwrap_or_else(|never| match never {});
        assert_eq!(socket.scrub("query pass=geheim"), "query ***");
    }
}
