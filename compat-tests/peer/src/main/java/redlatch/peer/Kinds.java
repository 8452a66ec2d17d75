package redlatch.peer;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import org.redisson.api.RLock;
import org.redisson.api.RScript;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;

/**
 * The locks of every kind, one object a kind and name, as a service keeps it in a field: the object remembers its last lease.
 *
 * <p>Kinds that not every tested version has are looked up by name, so that one source compiles against all of them.
 * Asking for one that this version has not ends in an {@link UnsupportedOperationException}.
 */
final class Kinds {
    private final RedissonClient redisson;
    private final Map<String, RLock> locks = new ConcurrentHashMap<>();

    Kinds(RedissonClient redisson) {
        this.redisson = redisson;
    }

    /** The client's id: the first half of its owners. */
    String client() {
        return redisson.getId();
    }

    RLock lock(String kind, String name) {
        // No kind has a slash in it, so no two pairs make one text.
        return locks.computeIfAbsent(kind + "/" + name, pair -> make(kind, name));
    }

    private RLock make(String kind, String name) {
        return switch (kind) {
            case "lock" -> redisson.getLock(name);
            case "fair" -> redisson.getFairLock(name);
            case "read" -> redisson.getReadWriteLock(name).readLock();
            case "write" -> redisson.getReadWriteLock(name).writeLock();
            case "spin" -> redisson.getSpinLock(name);
            case "fenced" -> (RLock) call(RedissonClient.class, redisson, "getFencedLock", name);
            case "nonreentrant" -> (RLock) call(RedissonClient.class, redisson, "getNonReentrantLock", name);
            case "nonreentrant_fair" -> (RLock) call(RedissonClient.class, redisson, "getNonReentrantFairLock", name);
            default -> throw new NoSuchElementException("no kind " + kind);
        };
    }

    /**
     * A method of the fenced lock that has to do with tokens: {@code getToken}, {@code lockAndGetToken} and
     * {@code tryLockAndGetToken}, or their {@code Async} forms. Times are milliseconds.
     */
    Object token(String method, String name, long... times) {
        Object[] arguments = new Object[times.length == 0 ? 0 : times.length + 1];
        for (int i = 0; i < times.length; i++) {
            arguments[i] = times[i];
            arguments[times.length] = TimeUnit.MILLISECONDS;
        }
        RLock lock = lock("fenced", name);
        try {
            return call(Class.forName("org.redisson.api.RFencedLock"), lock, method, arguments);
        } catch (ClassNotFoundException e) {
            // The lock itself would not have been there.
            throw new IllegalStateException(e);
        }
    }

    /** A script of the test's own; true for 1. */
    boolean eval(String lua, String key, Object... arguments) {
        RScript script = redisson.getScript(StringCodec.INSTANCE);
        Object answer = script.eval(RScript.Mode.READ_WRITE, lua, RScript.ReturnType.BOOLEAN, List.of(key), arguments);
        return Boolean.TRUE.equals(answer);
    }

    /** Calls a method through the interface that is known to be public. */
    private static Object call(Class<?> type, Object target, String name, Object... arguments) {
        Class<?>[] types = new Class<?>[arguments.length];
        for (int i = 0; i < arguments.length; i++) {
            types[i] = arguments[i] instanceof Long ? long.class : arguments[i].getClass();
        }
        try {
            Method method = type.getMethod(name, types);
            return method.invoke(target, arguments);
        } catch (NoSuchMethodException e) {
            throw new UnsupportedOperationException("this Redisson has no " + name, e);
        } catch (InvocationTargetException e) {
            throw unchecked(e.getCause());
        } catch (IllegalAccessException e) {
            throw new IllegalStateException(e);
        }
    }

    /** Throws what the method threw, checked exceptions too, as a direct call would have. */
    @SuppressWarnings("unchecked")
    private static <E extends Throwable> RuntimeException unchecked(Throwable thrown) throws E {
        throw (E) thrown;
    }
}
