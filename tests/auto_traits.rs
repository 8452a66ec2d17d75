//! Which public types and futures may cross threads. What does not hold here does not compile.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on ends here")]

use std::{
    error::Error as StdError,
    fmt::{Debug, Display},
    future::{Future, IntoFuture, Ready},
    hash::Hash,
    panic::UnwindSafe,
};

use redlatch::{
    Acquire, Action, AnyLock, BackOff, Client, ClientBuilder, Error, FairLock, Fault, FencedLock, FencingToken, Guard,
    Kind, Lease, LeaseLost, Misuse, NonReentrantFairLock, NonReentrantLock, OwnedLock, OwnerId, RLock, ReadLock,
    ReadWriteLock, RemainingTtl, SpinLock, Stats, TryAcquire, Uuid, WriteLock,
};

fn send<T: Send>(_: &T) {}
fn is_shared<T: Send + Sync + Unpin + Debug + 'static>() {}
fn is_handle<T: Clone + Send + Sync + Unpin + Debug + 'static>() {}
fn is_value<T: Copy + Eq + Send + Sync + Unpin + UnwindSafe + Debug + 'static>() {}
fn is_error<T: StdError + Display + Clone + Send + Sync + Unpin + 'static>() {}

/// Owned, so that it can be spawned and built on a handle that does not live on.
fn is_builder<T>()
where
    T: IntoFuture + Send + Sync + Unpin + Debug + 'static,
    T::IntoFuture: Future<Output = T::Output> + Send + Unpin + 'static,
    T::Output: Send + 'static,
{
}

#[test]
fn every_public_type_has_the_auto_traits_it_should() {
    is_handle::<Client>();
    is_handle::<AnyLock>();
    is_handle::<RLock>();
    is_handle::<FairLock>();
    is_handle::<ReadWriteLock>();
    is_handle::<ReadLock>();
    is_handle::<WriteLock>();
    is_handle::<FencedLock>();
    is_handle::<SpinLock>();
    is_handle::<NonReentrantLock>();
    is_handle::<NonReentrantFairLock>();
    is_handle::<OwnedLock>();
    is_handle::<ClientBuilder>();
    is_shared::<Guard>();
    is_builder::<Acquire>();
    is_builder::<TryAcquire>();
    is_error::<Error>();
    is_error::<LeaseLost>();
    is_error::<LeaseLost<String>>();
    is_handle::<Misuse>();
    is_value::<Action>();
    is_value::<BackOff>();
    is_value::<FencingToken>();
    is_value::<Kind>();
    is_value::<Fault>();
    is_value::<Lease>();
    is_value::<OwnerId>();
    is_value::<RemainingTtl>();
    is_value::<Stats>();
    is_value::<Uuid>();
    fn hashes<T: Hash>() {}
    hashes::<OwnerId>();
    hashes::<FencingToken>();
    hashes::<Kind>();
    fn has_an_order<T: Ord + Display>() {}
    has_an_order::<FencingToken>();
    fn becomes_any_lock<T: Into<AnyLock>>() {}
    becomes_any_lock::<RLock>();
    becomes_any_lock::<FairLock>();
    becomes_any_lock::<ReadLock>();
    becomes_any_lock::<WriteLock>();
    becomes_any_lock::<FencedLock>();
    becomes_any_lock::<SpinLock>();
    becomes_any_lock::<NonReentrantLock>();
    becomes_any_lock::<NonReentrantFairLock>();
    fn defaults<T: Default>() {}
    defaults::<Stats>();
    defaults::<BackOff>();
    let boxed: Box<dyn StdError + Send + Sync> = Box::<Error>::from(Error::Closed);
    assert_eq!(boxed.to_string(), Error::Closed.to_string());
}

/// Futures of the methods: none of them is bound to a thread. Only compiled.
#[expect(dead_code, reason = "compiled, not run")]
fn every_future_can_be_sent(client: &Client, lock: &RLock, owned: &OwnedLock, owner: &OwnerId, guard: Guard) {
    send(&Client::connect(""));
    send(&Client::builder().connect());
    send(&client.shutdown());
    send(&lock.lock().into_future());
    send(&lock.try_lock().into_future());
    send(&lock.is_locked());
    send(&lock.is_held_by(owner));
    send(&lock.hold_count(owner));
    send(&lock.remaining_ttl());
    send(&lock.force_release());
    send(&owned.lock().into_future());
    send(&owned.try_lock().into_future());
    send(&owned.release());
    send(&guard.lost());
    send(&guard.extend(std::time::Duration::MAX));
    let borrowed = guard.name().to_owned();
    send(&guard.protect(async { borrowed.len() }));
    send(&guard.protect(std::future::ready(0) as Ready<i32>));
    send(&guard.release());
}

/// The same for the kinds that share their methods, and for what some kinds have besides. Only compiled.
#[expect(dead_code, reason = "compiled, not run")]
fn every_future_of_every_kind_can_be_sent(any: &AnyLock, fenced: &FencedLock, fair: &FairLock, owner: &OwnerId) {
    send(&any.lock().into_future());
    send(&any.try_lock().into_future());
    send(&any.is_locked());
    send(&any.is_held_by(owner));
    send(&any.hold_count(owner));
    send(&any.remaining_ttl());
    send(&any.force_release());
    send(&fenced.token());
    send(&fenced.lock().into_future());
    send(&fair.clone().patience(std::time::Duration::MAX).lock().into_future());
}

/// What is awaited in one task may be built in another, on handles that are gone by then. Only compiled.
#[expect(dead_code, reason = "compiled, not run")]
fn what_is_owned_can_be_spawned(client: &Client, guard: Guard) {
    drop(tokio::spawn(client.lock("temporary").lock().into_future()));
    drop(tokio::spawn(client.lock("temporary").try_lock().wait(std::time::Duration::MAX).into_future()));
    drop(tokio::spawn(client.lock("temporary").owned_by(&client.owner()).lock().into_future()));
    drop(tokio::spawn(client.read_write_lock("temporary").read().lock().into_future()));
    drop(tokio::spawn(client.fair_lock("temporary").into_any().try_lock().into_future()));
    drop(tokio::spawn(Client::builder().connect()));
    drop(tokio::spawn(guard.release()));
}

/// Work that is bound to a thread may still be protected on it. Only compiled.
#[expect(dead_code, reason = "compiled, not run")]
fn work_need_not_be_send(guard: &Guard) -> impl Future {
    let local = std::rc::Rc::new(1);
    guard.protect(async move { std::future::ready(*local).await })
}

#[test]
fn no_public_type_is_missing_here() {
    let (library, here) = (include_str!("../src/lib.rs"), include_str!("auto_traits.rs"));
    let exported: Vec<&str> = library
        .split("\npub use ")
        .skip(1)
        .filter_map(|rest| rest.split_once(';'))
        .flat_map(|(path, _)| path.split(|c: char| !c.is_alphanumeric()))
        // `Result` is an alias.
        .filter(|word| word.starts_with(char::is_uppercase) && *word != "Result")
        .collect();
    assert!(exported.len() >= 29, "{exported:?}");
    for name in exported {
        let checked = here.contains(&format!("::<{name}>();"));
        assert!(checked, "{name} is exported but not checked");
    }
}
