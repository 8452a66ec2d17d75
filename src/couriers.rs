//! The tasks that carry commands to Redis. An idle one is used again: its state is large, and making it anew for each
//! command would cost more than the command's own work.

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::{runtime::Handle, sync::Notify};

/// Idle tasks beyond this number end.
const KEPT: usize = 1024;

/// Carries jobs one at a time.
pub(crate) trait Carry: Send + 'static {
    fn carry(self) -> impl Future<Output = ()> + Send;
}

/// A pool of tasks. Jobs that run when it is dropped run on to their end.
pub(crate) struct Couriers<J> {
    pool: Arc<Pool<J>>,
    runtime: Handle,
}

struct Pool<J> {
    /// `None` once the pool is closed.
    idle: Mutex<Option<Vec<Arc<Seat<J>>>>>,
}

/// Where an idle task waits.
struct Seat<J> {
    job: Mutex<Option<J>>,
    called: Notify,
}

impl<J: Carry> Couriers<J> {
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { pool: Arc::new(Pool { idle: Mutex::new(Some(Vec::new())) }), runtime }
    }

    /// Has the job carried by an idle task, or by a new one.
    pub(crate) fn send(&self, job: J) {
        let seat = self.pool.idle.lock().as_mut().and_then(Vec::pop);
        match seat {
            Some(seat) => {
                *seat.job.lock() = Some(job);
                seat.called.notify_one();
            }
            None => {
                let seat = Arc::new(Seat { job: Mutex::new(Some(job)), called: Notify::new() });
                self.runtime.spawn(work(seat, self.pool.clone()));
            }
        }
    }
}

impl<J> Drop for Couriers<J> {
    fn drop(&mut self) {
        let idle = self.pool.idle.lock().take();
        idle.into_iter().flatten().for_each(|seat| seat.called.notify_one());
    }
}

async fn work<J: Carry>(seat: Arc<Seat<J>>, pool: Arc<Pool<J>>) {
    loop {
        let job = seat.job.lock().take();
        match job {
            Some(job) => job.carry().await,
            None => return, // called without a job: the pool is closed
        }
        match pool.idle.lock().as_mut() {
            Some(idle) if idle.len() < KEPT => idle.push(seat.clone()),
            _ => return,
        }
        seat.called.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::{mpsc, oneshot};

    use super::*;

    struct Job(oneshot::Receiver<()>, mpsc::UnboundedSender<tokio::task::Id>);

    impl Carry for Job {
        async fn carry(self) {
            let _ = self.0.await;
            self.1.send(tokio::task::id()).expect("heard");
        }
    }

    #[tokio::test]
    async fn jobs_run_side_by_side_and_idle_tasks_are_used_again() {
        let couriers = Couriers::new(Handle::current());
        let (done, mut ids) = mpsc::unbounded_channel();
        let (go_first, first) = oneshot::channel();
        let (go_second, second) = oneshot::channel();
        couriers.send(Job(first, done.clone()));
        couriers.send(Job(second, done.clone()));
        drop(go_second);
        let second = ids.recv().await;
        drop(go_first);
        let first = ids.recv().await;
        assert_ne!(first, second, "the second did not wait for the first");
        let (go, third) = oneshot::channel();
        drop(go);
        couriers.send(Job(third, done.clone()));
        let third = ids.recv().await;
        assert!(third == first || third == second, "no new task");
        drop((couriers, done));
        assert_eq!(ids.recv().await, None, "the idle tasks ended with the pool");
    }
}
