package redlatch.peer;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.util.NoSuchElementException;
import org.redisson.Redisson;
import org.redisson.api.RedissonClient;
import org.redisson.client.codec.StringCodec;
import org.redisson.config.Config;
import org.redisson.config.SingleServerConfig;

/** Turns the command line into a connected client. */
final class Settings {
    private Settings() {}

    static RedissonClient connect(String[] arguments) {
        if (arguments.length == 0) {
            throw new IllegalArgumentException("usage: peer REDIS_URL [WATCHDOG_MS] [KEY=VALUE ...]");
        }
        Config config = new Config();
        config.setCodec(StringCodec.INSTANCE);
        SingleServerConfig server = config.useSingleServer();
        server.setAddress(arguments[0]);
        // The default of 24 connections made at start only costs time here; the pool still grows to its limit.
        server.setConnectionMinimumIdleSize(2);
        for (int i = 1; i < arguments.length; i++) {
            String argument = arguments[i];
            int equals = argument.indexOf('=');
            if (i == 1 && equals < 0) {
                config.setLockWatchdogTimeout(Long.parseLong(argument));
                continue;
            }
            if (equals < 0) {
                throw new IllegalArgumentException("not KEY=VALUE: " + argument);
            }
            String key = argument.substring(0, equals);
            String value = argument.substring(equals + 1);
            if (!set(config, key, value) && !set(server, key, value)) {
                throw new NoSuchElementException("this Redisson has no setting " + key);
            }
        }
        return Redisson.create(config);
    }

    /** Calls the setter of that name, on whichever of the two configuration objects has one. */
    private static boolean set(Object target, String key, String value) {
        String name = "set" + Character.toUpperCase(key.charAt(0)) + key.substring(1);
        for (Method method : target.getClass().getMethods()) {
            if (!method.getName().equals(name) || method.getParameterCount() != 1) {
                continue;
            }
            Object argument = parse(method.getParameterTypes()[0], value);
            if (argument == null) {
                continue;
            }
            try {
                method.invoke(target, argument);
                return true;
            } catch (InvocationTargetException e) {
                throw new IllegalArgumentException(key + ": " + e.getCause().getMessage(), e.getCause());
            } catch (IllegalAccessException e) {
                throw new IllegalArgumentException(key, e);
            }
        }
        return false;
    }

    private static Object parse(Class<?> type, String value) {
        if (type == int.class) {
            return Integer.parseInt(value);
        }
        if (type == long.class) {
            return Long.parseLong(value);
        }
        if (type == boolean.class) {
            return Boolean.parseBoolean(value);
        }
        return type == String.class ? value : null;
    }
}
