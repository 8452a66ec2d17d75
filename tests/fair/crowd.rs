//! Many at once.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use tokio::task::JoinSet;

use crate::{
    QUEUE, TIMEOUTS, fair, scene,
    support::{ms, secs, within},
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_owners_at_once_all_get_it() {
    let s = scene().await;
    // It is about who gets it, not about how long a busy machine needs.
    let client = async || s.redis.builder().response_timeout(secs(30)).connect().await.unwrap();
    let clients = [client().await, client().await, client().await];
    for side_by_side in [1, 3] {
        let (mut tasks, inside) = (JoinSet::new(), Arc::new(AtomicUsize::new(0)));
        for n in 0..300 {
            let (client, inside) = (&clients[n % side_by_side], inside.clone());
            let lock = fair(client).owned_by(&client.owner());
            tasks.spawn(async move {
                let guard = lock.lock().await.unwrap();
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "alone");
                tokio::task::yield_now().await;
                inside.fetch_sub(1, Ordering::SeqCst);
                guard.release().await.unwrap();
            });
        }
        within(secs(40), "all of them", tasks.join_all()).await;
        assert_eq!(s.probe.ask::<u64>(&["EXISTS", QUEUE, TIMEOUTS]).await, 0);
        s.nothing_is_left(&[&clients[0], &clients[1], &clients[2]]).await;
    }
}

#[tokio::test]
async fn everyone_whose_wait_covers_the_line_gets_it() {
    let s = scene().await;
    let clients = [s.client().await, s.client().await];
    let mut tasks = JoinSet::new();
    for n in 0..5 {
        let lock = fair(&clients[n % 2]);
        tasks.spawn(async move {
            for _ in 0..20 {
                let guard = lock.try_lock().wait(secs(60)).lease(secs(60)).await.unwrap();
                let guard = guard.expect("the others have released it long before");
                tokio::time::sleep(ms(2)).await;
                guard.release().await.unwrap();
            }
        });
    }
    within(secs(15), "all rounds", tasks.join_all()).await;
    s.nothing_is_left(&[&clients[0], &clients[1]]).await;
}
