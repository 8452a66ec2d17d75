//! Names of keys and channels that belong to a lock (Redisson's rule: a name with a brace is not put in braces again).

/// `prefix:{name}`, or `prefix:name` for a name with a brace.
fn prefixed(prefix: &str, name: &str) -> String {
    if name.contains('{') { format!("{prefix}:{name}") } else { format!("{prefix}:{{{name}}}") }
}

/// On which the release of a lock is told; of a fair lock with `:` and the owner behind it.
pub(super) fn channel(name: &str) -> String {
    prefixed("redisson_lock__channel", name)
}

pub(super) fn fair_channel(name: &str, owner: &str) -> String {
    format!("{}:{owner}", channel(name))
}

/// Waiters for a fair lock, head first.
pub(super) fn queue(name: &str) -> String {
    prefixed("redisson_lock_queue", name)
}

/// When each of them counts as dead.
pub(super) fn timeouts(name: &str) -> String {
    prefixed("redisson_lock_timeout", name)
}

pub(super) fn token(name: &str) -> String {
    prefixed("redisson_lock_token", name)
}

pub(super) fn pair_channel(name: &str) -> String {
    prefixed("redisson_rwlock", name)
}

/// The key of an owner's read hold with this number.
pub(super) fn hold_key(name: &str, owner: &str, number: usize) -> String {
    let name = if name.contains('{') { name.to_owned() } else { format!("{{{name}}}") };
    format!("{name}:{owner}:rwlock_timeout:{number}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_with_a_brace_are_not_put_in_braces() {
        assert_eq!(channel("basic"), "redisson_lock__channel:{basic}");
        assert_eq!(channel("a{b}c"), "redisson_lock__channel:a{b}c");
        assert_eq!(fair_channel("f", "$A:1"), "redisson_lock__channel:{f}:$A:1");
        assert_eq!(hold_key("rw", "$A:1", 1), "{rw}:$A:1:rwlock_timeout:1");
        assert_eq!(hold_key("q{w}e", "$A:1", 2), "q{w}e:$A:1:rwlock_timeout:2");
    }
}
