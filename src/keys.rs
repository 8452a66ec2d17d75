//! Names on the wire: keys, channels and cluster slots, by Redisson's rules.

use crate::error::{Error, Misuse};

/// `p:{N}`, or `p:N` when the name has a `{` anywhere.
pub(crate) fn prefixed(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

/// What keys begin with that carry the name in front: `{N}:`, or `N:` when the name has a `{` anywhere.
pub(crate) fn suffix_base(name: &str) -> String {
    if name.contains('{') { format!("{name}:") } else { format!("{{{name}}}:") }
}

/// The channel on which releases of a plain lock are told.
pub(crate) fn lock_channel(name: &str) -> String {
    prefixed("redisson_lock__channel", name)
}

/// The fair queue: a list of owners, its head is next.
pub(crate) fn fair_queue(name: &str) -> String {
    prefixed("redisson_lock_queue", name)
}

/// When those in the fair queue count as dead: a sorted set of owners.
pub(crate) fn fair_timeouts(name: &str) -> String {
    prefixed("redisson_lock_timeout", name)
}

/// The counter of fencing tokens.
pub(crate) fn fencing_token(name: &str) -> String {
    prefixed("redisson_lock_token", name)
}

/// The channel on which releases of a read/write lock are told.
pub(crate) fn read_write_channel(name: &str) -> String {
    prefixed("redisson_rwlock", name)
}

/// Refuses what can never be a lock's name.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    if name.is_empty() { Err(Error::Misuse(Misuse::EmptyName)) } else { Ok(()) }
}

/// The cluster slot of a key: CRC16 of its first non-empty `{tag}`, else of all of it.
pub(crate) fn slot(key: &[u8]) -> u16 {
    let hashed = match key.iter().position(|&b| b == b'{') {
        Some(open) => match key[open + 1..].iter().position(|&b| b == b'}') {
            Some(length) if length > 0 => &key[open + 1..open + 1 + length],
            _ => key,
        },
        None => key,
    };
    crc16(hashed) % 16384
}

/// CRC-16/XMODEM, which Redis Cluster prescribes.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0u16, |crc, &byte| {
        (0..8)
            .fold(crc ^ (u16::from(byte) << 8), |crc, _| if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_get_braces_only_when_the_name_has_none() {
        let cases = [
            ("basic", "redisson_lock__channel:{basic}"),
            ("a{b}c", "redisson_lock__channel:a{b}c"),
            ("a}b", "redisson_lock__channel:{a}b}"),
            ("{}", "redisson_lock__channel:{}"),
        ];
        for (name, channel) in cases {
            assert_eq!(lock_channel(name), channel);
        }
    }

    #[test]
    fn side_keys_are_redissons() {
        assert_eq!(fair_queue("f"), "redisson_lock_queue:{f}");
        assert_eq!(fair_timeouts("a{b}c"), "redisson_lock_timeout:a{b}c");
        assert_eq!(fencing_token("t"), "redisson_lock_token:{t}");
        assert_eq!(read_write_channel("q{w}e"), "redisson_rwlock:q{w}e");
        assert_eq!(suffix_base("rw"), "{rw}:");
        assert_eq!(suffix_base("q{w}e"), "q{w}e:");
    }

    #[test]
    fn slots_are_those_of_redis_cluster() {
        // Figures from the cluster specification and from CLUSTER KEYSLOT.
        let cases: [(&str, u16); 5] = [
            ("123456789", 12739),
            ("foo", 12182),
            ("{foo}bar", 12182),
            ("a{foo}c{d}", 12182),
            ("{}foo", slot(b"{}foo")),
        ];
        for (key, expected) in cases {
            assert_eq!(slot(key.as_bytes()), expected, "{key}");
        }
        assert_eq!(crc16(b"123456789"), 0x31C3);
        assert_eq!(slot(lock_channel("orders").as_bytes()), slot(b"orders"));
    }

    #[test]
    fn the_empty_name_is_refused() {
        assert!(matches!(check_name(""), Err(Error::Misuse(Misuse::EmptyName))));
        assert!(check_name(" ").is_ok());
    }
}
