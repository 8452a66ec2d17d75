package redlatch.peer;

import java.util.Arrays;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Semaphore;

/**
 * Threads that Redisson takes for the thread ids they are given.
 *
 * <p>The synchronous API names the owner after {@link Thread#getId}. A thread that answers with a chosen id lets both
 * APIs act as one owner, and lets a test name it. Calls of one id run one after another, as on a thread.
 */
final class ActingThreads {
    private final Map<Long, ExecutorService> executors = new ConcurrentHashMap<>();
    private final Map<Long, Thread> threads = new ConcurrentHashMap<>();

    void run(long id, Runnable task) {
        executors.computeIfAbsent(id, key -> Executors.newSingleThreadExecutor(r -> start(key, r))).execute(task);
    }

    /**
     * Whether the thread waits for a message: it is parked in the semaphore that a message releases. One that waits for
     * the answer of a command is parked elsewhere.
     */
    boolean isAsleep(long id) {
        Thread thread = threads.get(id);
        if (thread == null) {
            return false;
        }
        var frames = Arrays.stream(thread.getStackTrace());
        boolean isParked = thread.getState() == Thread.State.WAITING || thread.getState() == Thread.State.TIMED_WAITING;
        return isParked && frames.anyMatch(frame -> frame.getClassName().equals(Semaphore.class.getName()));
    }

    private Thread start(long id, Runnable task) {
        var thread = new ActingThread(id, task);
        threads.put(id, thread);
        return thread;
    }

    private static final class ActingThread extends Thread {
        private final long id;

        ActingThread(long id, Runnable task) {
            super(task, "acts-as-" + id);
            this.id = id;
            setDaemon(true);
        }

        @Override
        @SuppressWarnings("deprecation") // deprecated from 19 on, but it is the one Redisson asks
        public long getId() {
            return id;
        }
    }
}
