package redlatch.peer;

import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.concurrent.Callable;
import java.util.concurrent.CompletionException;
import java.util.concurrent.CompletionStage;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.LinkedBlockingQueue;

/** Writes the answers. A thread of its own does it, so that nobody who holds a lock waits for the reader of stdout. */
final class Answers {
    private static final String END = "";

    private final LinkedBlockingQueue<String> lines = new LinkedBlockingQueue<>();
    private final Thread writer;

    Answers(PrintStream out) {
        writer = new Thread(() -> write(out), "answers");
        writer.setDaemon(true);
        writer.start();
    }

    /** Wall clock in microseconds since the epoch. */
    static long nowMicros() {
        return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
    }

    void ready(String client) {
        String redisson = org.redisson.api.RLock.class.getPackage().getImplementationVersion();
        line("0", "\"ready\":true,\"client\":" + quote(client) + ",\"redisson\":" + quote(String.valueOf(redisson))
            + ",\"pid\":" + ProcessHandle.current().pid());
    }

    /** Runs the call on this thread and answers with its result or its error. */
    void settle(String id, Callable<?> call) {
        try {
            value(id, call.call());
        } catch (Exception e) {
            failed(id, e);
        }
    }

    /** Answers when the call has ended. */
    void settleLater(String id, CompletionStage<?> call) {
        call.whenComplete((value, error) -> {
            if (error == null) {
                value(id, value);
            } else {
                failed(id, error);
            }
        });
    }

    void value(String id, Object value) {
        String text = value == null || value instanceof Number || value instanceof Boolean
            ? String.valueOf(value)
            : quote(value.toString());
        line(id, "\"value\":" + text + ",\"at_us\":" + nowMicros());
    }

    void failed(String id, Throwable error) {
        Throwable cause = error;
        while (cause.getCause() != null && (cause instanceof CompletionException || cause instanceof ExecutionException)) {
            cause = cause.getCause();
        }
        line(id, "\"error\":" + quote(cause.getClass().getSimpleName())
            + ",\"message\":" + quote(String.valueOf(cause.getMessage())) + ",\"at_us\":" + nowMicros());
    }

    /** One JSON object: the id, then the members given. */
    void line(String id, String members) {
        lines.add("{\"id\":" + quote(id) + "," + members + "}\n");
    }

    /** Returns when everything said so far has been written. */
    void close() {
        lines.add(END);
        try {
            writer.join();
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    private void write(PrintStream out) {
        try {
            while (true) {
                String line = lines.take();
                if (line.equals(END)) {
                    out.flush();
                    return;
                }
                out.writeBytes(line.getBytes(StandardCharsets.UTF_8));
                if (lines.isEmpty()) {
                    out.flush();
                }
            }
        } catch (InterruptedException e) {
            Thread.currentThread().interrupt();
        }
    }

    static String quote(String text) {
        var quoted = new StringBuilder("\"");
        for (int i = 0; i < text.length(); i++) {
            char c = text.charAt(i);
            if (c == '"' || c == '\\') {
                quoted.append('\\').append(c);
            } else if (c < ' ' || Character.isSurrogate(c)) {
                quoted.append(String.format("\\u%04x", (int) c));
            } else {
                quoted.append(c);
            }
        }
        return quoted.append('"').toString();
    }
}
