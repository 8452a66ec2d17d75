package redlatch.peer;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RedissonClient;

/**
 * A Redisson client driven by lines: a command on stdin, an answer as one JSON object a line on stdout.
 *
 * <p>The verbs and the answers are listed in {@code compat-tests/README.md}. Calls that wait do not hold up the
 * commands behind them. End of input ends the process at once and releases nothing, as a crash would.
 */
public final class Peer {
    private final RedissonClient redisson;
    private final Answers answers;
    private final ActingThreads threads = new ActingThreads();
    private final Map<String, RLock> locks = new ConcurrentHashMap<>();

    private Peer(RedissonClient redisson, Answers answers) {
        this.redisson = redisson;
        this.answers = answers;
    }

    /** Arguments: Redis URL, then settings as {@code key=value} (a bare first number is the watchdog timeout in ms). */
    public static void main(String[] arguments) throws IOException {
        PrintStream stdout = System.out;
        // Whatever a library prints must not land between the answers.
        System.setOut(System.err);
        Answers answers = new Answers(stdout);
        RedissonClient redisson;
        try {
            redisson = Settings.connect(arguments);
        } catch (RuntimeException e) {
            answers.failed("0", e);
            answers.close();
            Runtime.getRuntime().halt(1);
            return;
        }
        answers.ready(redisson.getId());
        new Peer(redisson, answers).serve();
    }

    private void serve() throws IOException {
        var stdin = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = stdin.readLine(); line != null; line = stdin.readLine()) {
            if (line.isBlank()) {
                continue;
            }
            // Limit -1: an empty last argument is the empty name, not a missing one.
            String[] words = line.split(" ", -1);
            String id = words[0];
            try {
                var call = new Arguments(Arrays.copyOfRange(words, 1, words.length));
                run(id, call);
            } catch (RuntimeException e) {
                answers.failed(id, e);
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private void run(String id, Arguments call) {
        String verb = call.text();
        switch (verb) {
            case "sync" -> {
                long thread = call.number();
                String inner = call.text();
                threads.run(thread, () -> answers.settle(id, () -> runSync(inner, call)));
            }
            case "work" -> {
                var work = new Workload(id, lock(call.text()), answers);
                int count = Math.toIntExact(call.number());
                work.work(count, call.number(), call.number(), call.numberOr(-1));
            }
            case "poll" -> new Workload(id, lock(call.text()), answers).poll(call.number(), call.number());
            case "exit" -> {
                redisson.shutdown(0, 2, TimeUnit.SECONDS);
                answers.value(id, null);
                answers.close();
                Runtime.getRuntime().halt(0);
            }
            // These two have no asynchronous form with a thread id in every version: they run as that thread.
            case "holdCount" -> {
                RLock lock = lock(call.text());
                threads.run(call.number(), () -> answers.settle(id, lock::getHoldCount));
            }
            case "isHeldByThread" -> {
                RLock lock = lock(call.text());
                long thread = call.number();
                threads.run(thread, () -> answers.settle(id, () -> lock.isHeldByThread(thread)));
            }
            default -> answers.settleLater(id, runAsync(verb, call));
        }
    }

    private CompletionStage<?> runAsync(String verb, Arguments call) {
        RLock lock = lock(call.text());
        return switch (verb) {
            case "lock" -> {
                long thread = call.number();
                long lease = call.numberOr(-1);
                yield lock.lockAsync(lease, TimeUnit.MILLISECONDS, thread);
            }
            case "tryLock" -> {
                long thread = call.number();
                yield call.hasMore()
                    ? lock.tryLockAsync(call.number(), call.numberOr(-1), TimeUnit.MILLISECONDS, thread)
                    : lock.tryLockAsync(thread);
            }
            case "unlock" -> lock.unlockAsync(call.number());
            case "forceUnlock" -> lock.forceUnlockAsync();
            case "isLocked" -> lock.isLockedAsync();
            case "ttl" -> lock.remainTimeToLiveAsync();
            default -> throw new NoSuchElementException("no verb " + verb);
        };
    }

    private Object runSync(String verb, Arguments call) throws InterruptedException {
        RLock lock = lock(call.text());
        switch (verb) {
            case "lock" -> {
                if (call.hasMore()) {
                    lock.lock(call.number(), TimeUnit.MILLISECONDS);
                } else {
                    lock.lock();
                }
                return null;
            }
            case "tryLock" -> {
                return call.hasMore()
                    ? lock.tryLock(call.number(), call.numberOr(-1), TimeUnit.MILLISECONDS)
                    : lock.tryLock();
            }
            case "unlock" -> {
                lock.unlock();
                return null;
            }
            case "forceUnlock" -> {
                return lock.forceUnlock();
            }
            case "isLocked" -> {
                return lock.isLocked();
            }
            case "isHeldByCurrentThread" -> {
                return lock.isHeldByCurrentThread();
            }
            case "holdCount" -> {
                return lock.getHoldCount();
            }
            case "ttl" -> {
                return lock.remainTimeToLive();
            }
            default -> throw new NoSuchElementException("no sync verb " + verb);
        }
    }

    /** One object a name, as a service keeps it in a field: the object remembers its last lease. */
    private RLock lock(String name) {
        return locks.computeIfAbsent(name, redisson::getLock);
    }

    /** The words of one command behind its id, taken from the left. */
    private static final class Arguments {
        private final String[] words;
        private int next;

        Arguments(String[] words) {
            this.words = words;
        }

        boolean hasMore() {
            return next < words.length;
        }

        String text() {
            if (!hasMore()) {
                throw new NoSuchElementException("argument " + (next + 1) + " is missing");
            }
            // The decoder takes plus for space; here it stands for itself.
            return URLDecoder.decode(words[next++].replace("+", "%2B"), StandardCharsets.UTF_8);
        }

        long number() {
            return Long.parseLong(text());
        }

        long numberOr(long otherwise) {
            return hasMore() ? number() : otherwise;
        }
    }
}
