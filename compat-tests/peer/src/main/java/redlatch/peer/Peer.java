package redlatch.peer;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.NoSuchElementException;
import java.util.concurrent.Callable;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RFuture;
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
    private final Calls calls = new Calls();
    private final Kinds kinds;

    private Peer(RedissonClient redisson, Answers answers) {
        this.redisson = redisson;
        this.answers = answers;
        this.kinds = new Kinds(redisson);
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
        Verb verb = Verb.of(call.text());
        switch (verb.word) {
            case "sync" -> {
                long thread = call.number();
                Verb inner = Verb.of(call.text());
                threads.run(thread, () -> calls.run(id, () -> answers.settle(id, () -> runSync(inner, call))));
            }
            case "asleep" -> answers.value(id, threads.isAsleep(call.number()));
            case "cancel" -> answers.value(id, calls.cancel(call.text()));
            case "work" -> {
                RLock lock = lock(verb, call);
                int count = Math.toIntExact(call.number());
                new Workload(id, answers).work(lock, count, call.number(), call.number(), call.numberOr(-1));
            }
            case "poll" -> new Workload(id, answers).poll(lock(verb, call), call.number(), call.number());
            case "audit" -> audit(id, call);
            case "exit" -> {
                redisson.shutdown(0, 2, TimeUnit.SECONDS);
                answers.value(id, null);
                answers.close();
                Runtime.getRuntime().halt(0);
            }
            // These have no asynchronous form with a thread id in every version: they run as that thread.
            case "holdCount" -> {
                RLock lock = lock(verb, call);
                threads.run(call.number(), () -> answers.settle(id, lock::getHoldCount));
            }
            case "isHeldByThread" -> {
                RLock lock = lock(verb, call);
                long thread = call.number();
                threads.run(thread, () -> answers.settle(id, () -> lock.isHeldByThread(thread)));
            }
            case "lockAndGetToken", "tryLockAndGetToken" -> {
                String name = call.text();
                long thread = call.number();
                threads.run(thread, () -> settleLater(id, () -> kinds.token(verb.word + "Async", name, call.numbers())));
            }
            default -> settleLater(id, () -> runAsync(verb, call));
        }
    }

    private RFuture<?> runAsync(Verb verb, Arguments call) {
        if (verb.word.equals("getToken")) {
            return (RFuture<?>) kinds.token("getTokenAsync", call.text());
        }
        RLock lock = lock(verb, call);
        return switch (verb.word) {
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
            default -> throw new NoSuchElementException("no verb " + verb.word);
        };
    }

    private Object runSync(Verb verb, Arguments call) throws InterruptedException {
        if (verb.word.endsWith("Token")) {
            return kinds.token(verb.word, call.text(), call.numbers());
        }
        RLock lock = lock(verb, call);
        switch (verb.word) {
            case "lock" -> {
                if (call.hasMore()) {
                    lock.lock(call.number(), TimeUnit.MILLISECONDS);
                } else {
                    lock.lock();
                }
                return null;
            }
            case "lockInterruptibly" -> {
                if (call.hasMore()) {
                    lock.lockInterruptibly(call.number(), TimeUnit.MILLISECONDS);
                } else {
                    lock.lockInterruptibly();
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
            default -> throw new NoSuchElementException("no sync verb " + verb.word);
        }
    }

    private void audit(String id, Arguments call) {
        String mix = call.text();
        String name = call.text();
        int count = Math.toIntExact(call.number());
        long turns = call.number();
        long longestHold = call.number();
        long seed = call.number();
        var audit = new Audit(kinds, mix, name, longestHold, call.text(), call.text(), call.text());
        new Workload(id, answers).audit(audit, count, turns, seed);
    }

    /** Answers when the call has ended; until then it can be cancelled. */
    private void settleLater(String id, Callable<?> start) {
        try {
            RFuture<?> call = (RFuture<?>) start.call();
            calls.add(id, call);
            answers.settleLater(id, call);
        } catch (Exception e) {
            answers.failed(id, e);
        }
    }

    private RLock lock(Verb verb, Arguments call) {
        return kinds.lock(verb.kind, call.text());
    }

    /** {@code lock@fair} is the verb {@code lock} of the kind {@code fair}; without a kind it is a plain lock. */
    private static final class Verb {
        private final String word;
        private final String kind;

        private Verb(String word, String kind) {
            this.word = word;
            this.kind = kind;
        }

        static Verb of(String text) {
            int at = text.indexOf('@');
            return at < 0 ? new Verb(text, "lock") : new Verb(text.substring(0, at), text.substring(at + 1));
        }
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

        /** All that are left. */
        long[] numbers() {
            long[] numbers = new long[words.length - next];
            for (int i = 0; i < numbers.length; i++) {
                numbers[i] = number();
            }
            return numbers;
        }

        long numberOr(long otherwise) {
            return hasMore() ? number() : otherwise;
        }
    }
}
