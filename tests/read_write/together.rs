//! Readers go in together, writers alone, and neither keeps the other out for ever.

use std::{
    future::IntoFuture,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use tokio::{
    sync::Barrier,
    time::{Instant, sleep},
};

use crate::{
    both, scene,
    suite::scene::{turn, waiting},
    support::{eventually, ms, secs, within},
};

#[tokio::test]
async fn readers_of_all_clients_hold_it_together_and_a_writer_waits_for_the_last() {
    let s = scene().await;
    let (a, b, c) = (s.client().await, s.client().await, s.client().await);
    let mut readers = Vec::new();
    for client in [&a, &a, &b, &b, &b] {
        readers.push(both(client).read().try_lock().await.unwrap().expect("with the others"));
    }
    let writers = [waiting(&both(&c).write().into_any()), waiting(&both(&a).write().into_any())];
    for client in [&c, &a] {
        s.asleep(client, 1).await;
    }
    let late = both(&b).read().try_lock().await.unwrap().expect("a writer that waits elsewhere keeps nobody out");
    readers.push(late);
    while let Some(reader) = readers.pop() {
        assert!(writers.iter().all(|writer| !writer.is_finished()));
        for reader in &readers {
            assert!(reader.is_valid());
        }
        reader.release().await.unwrap();
    }
    for writer in writers {
        let guard = within(secs(2), "a writer", writer).await.unwrap().unwrap();
        assert!(both(&b).read().try_lock().await.unwrap().is_none());
        guard.release().await.unwrap();
    }
    s.nothing_is_left(&[&a, &b, &c]).await;
}

#[tokio::test]
async fn one_release_lets_all_readers_in_that_wait() {
    let s = scene().await;
    let (a, b) = (s.client().await, s.client().await);
    // The lease is 30 s: whoever is forgotten shows. The writer is one of ours, and one elsewhere.
    for writer in [&a, &b] {
        let guard = both(writer).write().lock().await.unwrap();
        let together = Arc::new(Barrier::new(8));
        let readers: Vec<_> = (0..8)
            .map(|n| {
                let (lock, together) = (both(&a).read(), together.clone());
                tokio::spawn(async move {
                    let guard = match n % 2 {
                        0 => lock.lock().await.unwrap(),
                        _ => lock.try_lock().wait(secs(60)).await.unwrap().expect("within its wait"),
                    };
                    together.wait().await;
                    guard.release().await.unwrap();
                })
            })
            .collect();
        s.asleep(&a, 8).await;
        guard.release().await.unwrap();
        for reader in readers {
            within(secs(3), "all are in at once", reader).await.unwrap();
        }
        s.nothing_is_left(&[&a, &b]).await;
    }
}

#[tokio::test]
async fn writers_of_two_processes_that_wait_are_served_one_after_the_other() {
    let s = scene().await;
    let (a, b, c) = (s.client().await, s.client().await, s.client().await);
    for _ in 0..10 {
        let guard = both(&a).write().lock().await.unwrap();
        let turns = [turn(&both(&b).write().into_any()), turn(&both(&c).write().into_any())];
        s.asleep(&b, 1).await;
        s.asleep(&c, 1).await;
        guard.release().await.unwrap();
        for turn in turns {
            within(secs(3), "each has its turn", turn).await.unwrap().unwrap();
        }
    }
    s.nothing_is_left(&[&a, &b, &c]).await;
}

#[tokio::test]
async fn a_stream_of_readers_does_not_keep_the_writers_of_its_process_out() {
    let s = scene().await;
    let client = s.client().await;
    let (over, reads) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    // Always two of them inside at least, if nothing holds them up.
    let readers: Vec<_> = (0..4)
        .map(|n| {
            let (lock, over, reads) = (both(&client).read(), over.clone(), reads.clone());
            tokio::spawn(async move {
                sleep(ms(n * 10)).await;
                while !over.load(Ordering::SeqCst) {
                    let guard = lock.lock().await.unwrap();
                    reads.fetch_add(1, Ordering::SeqCst);
                    sleep(ms(40)).await;
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    eventually(secs(5), "the stream runs", || async { reads.load(Ordering::SeqCst) > 8 }).await;
    for _ in 0..3 {
        let guard = within(secs(3), "the writer", both(&client).write().lock().into_future()).await.unwrap();
        let before = reads.load(Ordering::SeqCst);
        sleep(ms(60)).await;
        assert_eq!(reads.load(Ordering::SeqCst), before, "alone");
        guard.release().await.unwrap();
        eventually(secs(3), "the stream goes on", || async { reads.load(Ordering::SeqCst) > before + 4 }).await;
    }
    over.store(true, Ordering::SeqCst);
    for reader in readers {
        within(secs(3), "a reader", reader).await.unwrap();
    }
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn a_task_that_reads_and_reads_again_while_a_writer_waits_does_not_lock_itself_out() {
    let s = scene().await;
    let client = s.client().await;
    let owner = client.owner();
    let read = both(&client).read();
    let outer = read.owned_by(&owner).lock().await.unwrap();
    let writer = waiting(&both(&client).write().into_any());
    s.asleep(&client, 1).await;
    // The same owner passes at once, another one when the line has been held up for a second.
    let inner = within(ms(900), "its own", read.owned_by(&owner).lock().into_future()).await.unwrap();
    let started = Instant::now();
    let (other, bounded) = (read.lock().into_future(), read.try_lock().wait(secs(4)).into_future());
    let (other, bounded) = within(secs(5), "in other names", async { tokio::join!(other, bounded) }).await;
    let (other, bounded) = (other.unwrap(), bounded.unwrap());
    assert!(started.elapsed() < secs(4), "{:?}", started.elapsed());
    assert!(!writer.is_finished());
    for guard in [Some(inner), bounded, Some(other), Some(outer)] {
        guard.expect("within its wait").release().await.unwrap();
    }
    within(secs(3), "the writer", writer).await.unwrap().unwrap().release().await.unwrap();
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn readers_that_come_behind_a_writer_of_their_process_wait_for_it() {
    let s = scene().await;
    let client = s.client().await;
    let reader = both(&client).read().lock().await.unwrap();
    let writer = waiting(&both(&client).write().into_any());
    s.asleep(&client, 1).await;
    let late = waiting(&both(&client).read().into_any());
    eventually(secs(3), "it waits", || async { client.stats().waiters == 2 }).await;
    reader.release().await.unwrap();
    let writer = within(secs(3), "the writer", writer).await.unwrap().unwrap();
    assert!(!late.is_finished());
    writer.release().await.unwrap();
    within(secs(3), "the reader", late).await.unwrap().unwrap().release().await.unwrap();
    s.nothing_is_left(&[&client]).await;
}

#[tokio::test]
async fn a_writer_that_gives_up_lets_the_readers_behind_it_in() {
    let s = scene().await;
    let client = s.client().await;
    for is_cancelled in [true, false] {
        let reader = both(&client).read().lock().await.unwrap();
        let wait = if is_cancelled { secs(60) } else { ms(500) };
        let writer = tokio::spawn(both(&client).write().try_lock().wait(wait).into_future());
        s.asleep(&client, 1).await;
        let late = waiting(&both(&client).read().into_any());
        if is_cancelled {
            eventually(secs(3), "it waits", || async { client.stats().waiters == 2 }).await;
            writer.abort();
        } else {
            assert!(within(secs(3), "its end", writer).await.unwrap().unwrap().is_none());
        }
        let late = within(ms(800), "let in", late).await.unwrap().unwrap();
        for guard in [reader, late] {
            guard.release().await.unwrap();
        }
    }
    s.nothing_is_left(&[&client]).await;
}
