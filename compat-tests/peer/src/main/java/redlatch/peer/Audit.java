package redlatch.peer;

import java.util.List;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import org.redisson.api.RLock;

/**
 * One turn of a workload whose holds are checked by a register in Redis: scripts of the test's own, run after the grant
 * and before the release, that say whether this hold may be beside those that have entered.
 */
final class Audit {
    private static final String DOWNGRADE = "downgrade";

    private final Kinds kinds;
    private final String name;
    private final List<String> mix;
    private final long longestHoldMs;
    private final String register;
    private final String enter;
    private final String leave;
    private final AtomicLong refused = new AtomicLong();

    Audit(Kinds kinds, String mix, String name, long longestHoldMs, String register, String enter, String leave) {
        this.kinds = kinds;
        this.mix = List.of(mix.split(","));
        this.name = name;
        this.longestHoldMs = longestHoldMs;
        this.register = register;
        this.enter = enter;
        this.leave = leave;
    }

    /** Entries the register refused. */
    long refused() {
        return refused.get();
    }

    /** One hold of a random kind of the mix, of a random length. */
    void turn(Random random) throws InterruptedException {
        String kind = mix.get(random.nextInt(mix.size()));
        long hold = longestHoldMs > 0 ? random.nextLong(longestHoldMs + 1) : 0;
        if (kind.equals(DOWNGRADE)) {
            downgrade(hold);
            return;
        }
        RLock lock = kinds.lock(kind, name);
        long token = 0;
        if (kind.equals("fenced")) {
            token = (Long) kinds.token("lockAndGetToken", name);
        } else {
            lock.lock();
        }
        enter(kind, token);
        pause(hold);
        leave();
        lock.unlock();
    }

    /** Writes, then reads as well, then only reads. */
    private void downgrade(long hold) throws InterruptedException {
        RLock write = kinds.lock("write", name);
        RLock read = kinds.lock("read", name);
        write.lock();
        enter("write", 0);
        pause(hold);
        read.lock();
        // Told before other readers can come in.
        enter("read", 0);
        write.unlock();
        pause(hold);
        leave();
        read.unlock();
    }

    private void enter(String kind, long token) {
        if (!kinds.eval(enter, register, owner(), kind, String.valueOf(token))) {
            refused.incrementAndGet();
        }
    }

    private void leave() {
        if (!leave.isEmpty()) {
            kinds.eval(leave, register, owner());
        }
    }

    @SuppressWarnings("deprecation") // the id Redisson itself uses
    private String owner() {
        return kinds.client() + ":" + Thread.currentThread().getId();
    }

    private static void pause(long milliseconds) throws InterruptedException {
        if (milliseconds > 0) {
            Thread.sleep(milliseconds);
        }
    }
}
