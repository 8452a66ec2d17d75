package redlatch.peer;

import java.util.ArrayList;
import java.util.List;
import java.util.Random;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.redisson.api.RLock;

/** Threads that use locks through the synchronous API, and report on it. */
final class Workload {
    private final String id;
    private final Answers answers;
    private final AtomicLong holds = new AtomicLong();
    private final AtomicLong attempts = new AtomicLong();
    private final AtomicLong errors = new AtomicLong();

    Workload(String id, Answers answers) {
        this.id = id;
        this.answers = answers;
    }

    /** Each thread takes the lock, holds it and lets it go, over and over; the answer comes when all have ended. */
    void work(RLock lock, int threads, long holdMs, long untilMs, long leaseMs) {
        start(threads, thread -> {
            while (System.currentTimeMillis() < untilMs) {
                attempts.incrementAndGet();
                if (leaseMs > 0) {
                    lock.lock(leaseMs, TimeUnit.MILLISECONDS);
                } else {
                    lock.lock();
                }
                hold(lock, holdMs);
            }
        }, () -> "");
    }

    /** One thread asks again and again, never waits, and lets go at once. */
    void poll(RLock lock, long intervalMs, long untilMs) {
        start(1, thread -> {
            while (System.currentTimeMillis() < untilMs) {
                attempts.incrementAndGet();
                if (lock.tryLock()) {
                    hold(lock, 0);
                }
                Thread.sleep(intervalMs);
            }
        }, () -> "");
    }

    /** Each thread takes so many turns. Its choices follow from the seed and its number; holds are counted, not told. */
    void audit(Audit audit, int threads, long turns, long seed) {
        start(threads, thread -> {
            var random = new Random(seed * 1_000 + thread);
            for (long turn = 0; turn < turns; turn++) {
                attempts.incrementAndGet();
                audit.turn(random);
                holds.incrementAndGet();
            }
        }, () -> ",\"refused\":" + audit.refused());
    }

    /** The times lie inside the hold: read after the grant and before the release is sent. */
    private void hold(RLock lock, long holdMs) throws InterruptedException {
        long start = Answers.nowMicros();
        if (holdMs > 0) {
            Thread.sleep(holdMs);
        }
        long end = Answers.nowMicros();
        lock.unlock();
        holds.incrementAndGet();
        answers.line(id, "\"event\":\"hold\",\"thread\":" + currentId() + ",\"start_us\":" + start + ",\"end_us\":" + end);
    }

    private void start(int count, Loop loop, Supplier<String> further) {
        List<Thread> threads = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            int number = i;
            var thread = new Thread(() -> run(loop, number), "work-" + id + "-" + i);
            thread.setDaemon(true);
            threads.add(thread);
        }
        threads.forEach(Thread::start);
        var closing = new Thread(() -> close(threads, further), "work-" + id);
        closing.setDaemon(true);
        closing.start();
    }

    /** A thread that meets an error says so and ends; the others go on. */
    private void run(Loop loop, int thread) {
        try {
            loop.run(thread);
        } catch (InterruptedException | RuntimeException e) {
            errors.incrementAndGet();
            answers.line(id, "\"event\":\"error\",\"thread\":" + currentId() + ",\"error\":"
                + Answers.quote(e.getClass().getSimpleName()) + ",\"message\":" + Answers.quote(String.valueOf(e.getMessage())));
        }
    }

    private void close(List<Thread> threads, Supplier<String> further) {
        try {
            for (Thread thread : threads) {
                thread.join();
            }
            answers.line(id, "\"holds\":" + holds + ",\"attempts\":" + attempts + ",\"errors\":" + errors
                + further.get() + ",\"at_us\":" + Answers.nowMicros());
        } catch (InterruptedException e) {
            answers.failed(id, e);
        }
    }

    @SuppressWarnings("deprecation") // the id Redisson itself uses
    private static long currentId() {
        return Thread.currentThread().getId();
    }

    private interface Loop {
        void run(int thread) throws InterruptedException;
    }
}
