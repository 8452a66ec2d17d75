package redlatch.peer;

import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.api.RLock;

/** Threads that use one lock, through the synchronous API, until a point in time. */
final class Workload {
    private final String id;
    private final RLock lock;
    private final Answers answers;
    private final AtomicLong holds = new AtomicLong();
    private final AtomicLong attempts = new AtomicLong();
    private final AtomicLong errors = new AtomicLong();

    Workload(String id, RLock lock, Answers answers) {
        this.id = id;
        this.lock = lock;
        this.answers = answers;
    }

    /** Each thread takes the lock, holds it and lets it go, over and over; the answer comes when all have ended. */
    void work(int threads, long holdMs, long untilMs, long leaseMs) {
        start(threads, () -> {
            while (System.currentTimeMillis() < untilMs) {
                attempts.incrementAndGet();
                if (leaseMs > 0) {
                    lock.lock(leaseMs, TimeUnit.MILLISECONDS);
                } else {
                    lock.lock();
                }
                hold(holdMs);
            }
        });
    }

    /** One thread asks again and again, never waits, and lets go at once. */
    void poll(long intervalMs, long untilMs) {
        start(1, () -> {
            while (System.currentTimeMillis() < untilMs) {
                attempts.incrementAndGet();
                if (lock.tryLock()) {
                    hold(0);
                }
                Thread.sleep(intervalMs);
            }
        });
    }

    /** The times lie inside the hold: read after the grant and before the release is sent. */
    private void hold(long holdMs) throws InterruptedException {
        long start = Answers.nowMicros();
        if (holdMs > 0) {
            Thread.sleep(holdMs);
        }
        long end = Answers.nowMicros();
        lock.unlock();
        holds.incrementAndGet();
        answers.line(id, "\"event\":\"hold\",\"thread\":" + currentId() + ",\"start_us\":" + start + ",\"end_us\":" + end);
    }

    private void start(int count, Loop loop) {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            var thread = new Thread(() -> run(loop), "work-" + id + "-" + i);
            thread.setDaemon(true);
            threads.add(thread);
        }
        threads.forEach(Thread::start);
        var closing = new Thread(() -> close(threads), "work-" + id);
        closing.setDaemon(true);
        closing.start();
    }

    /** A thread that meets an error says so and ends; the others go on. */
    private void run(Loop loop) {
        try {
            loop.run();
        } catch (InterruptedException | RuntimeException e) {
            errors.incrementAndGet();
            answers.line(id, "\"event\":\"error\",\"thread\":" + currentId() + ",\"error\":"
                + Answers.quote(e.getClass().getSimpleName()) + ",\"message\":" + Answers.quote(String.valueOf(e.getMessage())));
        }
    }

    private void close(List<Thread> threads) {
        try {
            for (Thread thread : threads) {
                thread.join();
            }
            answers.line(id, "\"holds\":" + holds + ",\"attempts\":" + attempts + ",\"errors\":" + errors
                + ",\"at_us\":" + Answers.nowMicros());
        } catch (InterruptedException e) {
            answers.failed(id, e);
        }
    }

    @SuppressWarnings("deprecation") // the id Redisson itself uses
    private static long currentId() {
        return Thread.currentThread().getId();
    }

    private interface Loop {
        void run() throws InterruptedException;
    }
}
