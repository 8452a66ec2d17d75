package redlatch.peer;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

/**
 * Threads that Redisson takes for the thread ids they are given.
 *
 * <p>The synchronous API names the owner after {@link Thread#getId}. A thread that answers with a chosen id lets both
 * APIs act as one owner, and lets a test name it. Calls of one id run one after another, as on a thread.
 */
final class ActingThreads {
    private final Map<Long, ExecutorService> executors = new ConcurrentHashMap<>();

    void run(long id, Runnable task) {
        executors.computeIfAbsent(id, key -> Executors.newSingleThreadExecutor(r -> new ActingThread(key, r))).execute(task);
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
