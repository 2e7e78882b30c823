import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Counts words in windows of ten seconds, exactly once. A word is a record's value; the windows are of
 * the records' own time. Without a cache, so that each word makes a count: key WORD@START, value the
 * count.
 *
 * Arguments: bootstrap servers, source, sink, folder of the state.
 */
public class WindowedCount {
    private static final Duration WINDOW = Duration.ofSeconds(10);

    public static void main(String[] args) {
        var builder = new StreamsBuilder();
        builder.stream(args[1], Consumed.with(Serdes.String(), Serdes.String()))
                .selectKey((key, word) -> word)
                .groupByKey(Grouped.<String, String>as("words").withKeySerde(Serdes.String())
                        .withValueSerde(Serdes.String()))
                .windowedBy(TimeWindows.ofSizeAndGrace(WINDOW, Duration.ofDays(1)))
                .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("counts")
                        .withKeySerde(Serdes.String()).withValueSerde(Serdes.Long())
                        .withRetention(Duration.ofDays(2)))
                .toStream()
                .map((key, count) -> KeyValue.pair(
                        key.key() + "@" + key.window().start(), Long.toString(count)))
                .to(args[2], Produced.with(Serdes.String(), Serdes.String()));
        var streams = new KafkaStreams(builder.build(), settings(args));
        streams.setUncaughtExceptionHandler(failed -> {
            failed.printStackTrace();
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(10))));
        streams.start();
    }

    private static Properties settings(String[] args) {
        var settings = new Properties();
        settings.put(StreamsConfig.APPLICATION_ID_CONFIG, args[1] + "-counter");
        settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, args[0]);
        settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        settings.put(StreamsConfig.STATE_DIR_CONFIG, args[3]);
        settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0);
        settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 100);
        settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, 2);
        settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
        settings.put("reconnect.backoff.max.ms", 200);
        settings.put("session.timeout.ms", 10000);
        settings.put("heartbeat.interval.ms", 1000);
        settings.put("transaction.timeout.ms", 30000);
        settings.put("auto.offset.reset", "earliest");
        return settings;
    }
}
