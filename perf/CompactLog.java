import java.io.File;
import java.lang.management.ManagementFactory;
import java.lang.reflect.Proxy;
import java.util.HashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.server.util.KafkaScheduler;
import org.apache.kafka.server.util.Scheduler;
import org.apache.kafka.storage.internals.log.Cleaner;
import org.apache.kafka.storage.internals.log.CleanerStats;
import org.apache.kafka.storage.internals.log.LogConfig;
import org.apache.kafka.storage.internals.log.LogDirFailureChannel;
import org.apache.kafka.storage.internals.log.LogToClean;
import org.apache.kafka.storage.internals.log.ProducerStateManagerConfig;
import org.apache.kafka.storage.internals.log.SkimpyOffsetMap;
import org.apache.kafka.storage.internals.log.UnifiedLog;
import org.apache.kafka.storage.internals.utils.Throttler;
import org.apache.kafka.storage.log.metrics.BrokerTopicStats;

/**
 * Apache Kafka's own log and cleaner on the folders of partitions.
 *
 * load RECOVERY_POINT FOLDER...: open each as after a crash, and close it.
 * clean NOW FIRST_DIRTY MAP_BYTES FOLDER SETTING=VALUE...: open, clean what lies below the active
 *     segment, close; it is NOW (ms) all the while, so that no producer expires. Prints the offset it is clean up to, then the CPU time
 *     of the process while it cleaned and the time that took (ns), then the bytes read in the second
 *     pass.
 * warm NOW MAP_BYTES FOLDER FOLDER SETTING=VALUE...: clean one folder, then tell of the other.
 */
public class CompactLog {
    static final KafkaScheduler SCHEDULER = new KafkaScheduler(1);
    static Time time = Time.SYSTEM;

    public static void main(String[] args) throws Exception {
        SCHEDULER.startup();
        time = Time.SYSTEM;
        if (args[0].equals("load")) {
            for (int i = 2; i < args.length; i++)
                open(new File(args[i]), Long.parseLong(args[1]), Map.of()).close();
        } else if (args[0].equals("clean")) {
            stopTime(Long.parseLong(args[1]));
            clean(Long.parseLong(args[1]), Long.parseLong(args[2]), Integer.parseInt(args[3]),
                open(new File(args[4]), 0, settings(args)));
        } else {
            for (int i = 3; i < 5; i++)
                clean(Long.parseLong(args[1]), 0, Integer.parseInt(args[2]),
                    open(new File(args[i]), 0, settings(args)));
        }
        SCHEDULER.shutdown();
    }

    static void stopTime(long now) {
        time = (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
            (self, method, values) -> method.getName().equals("milliseconds")
                ? now : method.invoke(Time.SYSTEM, values));
    }

    static Map<String, String> settings(String[] args) {
        Map<String, String> found = new HashMap<>();
        for (int i = 5; i < args.length; i++) {
            String[] pair = args[i].split("=", 2);
            found.put(pair[0], pair[1]);
        }
        return found;
    }

    static UnifiedLog open(File folder, long recoveryPoint, Map<String, String> more)
            throws Exception {
        Map<String, Object> settings = new HashMap<>(more);
        settings.put("cleanup.policy", "compact");
        return UnifiedLog.create(folder, new LogConfig(settings), 0L, recoveryPoint,
            (Scheduler) SCHEDULER, new BrokerTopicStats(), time, 15 * 60 * 1000,
            new ProducerStateManagerConfig(Integer.MAX_VALUE, false), 600_000,
            new LogDirFailureChannel(1), false, Optional.empty());
    }

    static long cpuNs() {
        return ((com.sun.management.OperatingSystemMXBean)
            ManagementFactory.getOperatingSystemMXBean()).getProcessCpuTime();
    }

    static void clean(long now, long firstDirty, int mapBytes, UnifiedLog log) throws Exception {
        log.updateHighWatermark(log.logEndOffset());
        Cleaner cleaner = new Cleaner(0, new SkimpyOffsetMap(mapBytes), 256 * 1024, 1 << 20, 0.9,
            new Throttler(Double.MAX_VALUE, 300, "cleaner-io", "bytes", Time.SYSTEM), time,
            partition -> { });
        long end = Math.min(log.lastStableOffset(), log.activeSegment().baseOffset());
        long cpu = cpuNs();
        long began = System.nanoTime();
        Map.Entry<Long, CleanerStats> done =
            cleaner.doClean(new LogToClean(log, firstDirty, end, false), now);
        System.out.println(done.getKey());
        System.out.println(cpuNs() - cpu);
        System.out.println(System.nanoTime() - began);
        System.out.println(done.getValue().bytesRead());
        log.close();
    }
}
