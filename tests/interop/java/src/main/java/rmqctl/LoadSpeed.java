package rmqctl;

import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import java.util.Map;

/**
 * How long the released store takes to load a store: {@code LoadSpeed ROOT ANSWER SETTING...}. Writes seconds of {@code load()},
 * CPU seconds of all threads meanwhile, and the number of messages in all queues to the file {@code ANSWER}, and ends without
 * stopping the store.
 */
public final class LoadSpeed {
    public static void main(String[] args) throws Exception {
        LiveStore store = new LiveStore(args[0], Arrays.asList(args).subList(2, args.length));
        OperatingSystemMXBean system = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
        long cpu = system.getProcessCpuTime();
        long begin = System.nanoTime();
        boolean loaded = store.load();
        double seconds = (System.nanoTime() - begin) / 1e9;
        double worked = (system.getProcessCpuTime() - cpu) / 1e9;
        Files.writeString(Path.of(args[1]),
            Json.text(Json.object("loaded", loaded, "seconds", seconds, "cpu", worked, "messages", messages(store))));
        Runtime.getRuntime().halt(0);
    }

    private static long messages(LiveStore store) throws Exception {
        long sum = 0;
        for (Object ends : ((Map<?, ?>) store.state().get("queues")).values()) {
            sum += (long) ((List<?>) ends).get(1);
        }
        return sum;
    }
}
