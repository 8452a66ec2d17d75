package redlatch.peer;

import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.redisson.api.RFuture;

/** The calls that have not ended, by the id of their command: what a cancel needs. */
final class Calls {
    private final Map<String, Runnable> pending = new ConcurrentHashMap<>();

    /** Runs a synchronous call on this thread; until it ends, a cancel of this id interrupts the thread. */
    void run(String id, Runnable call) {
        var interruption = new Interruption(Thread.currentThread());
        pending.put(id, interruption::interrupt);
        try {
            call.run();
        } finally {
            pending.remove(id);
            interruption.end();
        }
    }

    /** From now on until its end, a cancel of this id cancels this future. */
    void add(String id, RFuture<?> call) {
        pending.put(id, () -> call.cancel(true));
        call.whenComplete((value, error) -> pending.remove(id));
    }

    /** Whether there was such a call under way. A synchronous one that stands behind another of its thread is not. */
    boolean cancel(String id) {
        Runnable cancel = pending.remove(id);
        if (cancel != null) {
            cancel.run();
        }
        return cancel != null;
    }

    /** An interrupt that comes late must not hit the thread's next call. */
    private static final class Interruption {
        private final Thread thread;
        private boolean isOver;

        Interruption(Thread thread) {
            this.thread = thread;
        }

        synchronized void interrupt() {
            if (!isOver) {
                thread.interrupt();
            }
        }

        synchronized void end() {
            isOver = true;
            Thread.interrupted();
        }
    }
}
