import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.List;
import org.apache.kafka.common.InvalidRecordException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.compress.Compression;
import org.apache.kafka.common.errors.CorruptRecordException;
import org.apache.kafka.common.errors.RecordTooLargeException;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.CompressionType;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.MutableRecordBatch;
import org.apache.kafka.common.record.internal.Record;
import org.apache.kafka.common.record.internal.SimpleRecord;
import org.apache.kafka.common.requests.ProduceRequest;
import org.apache.kafka.common.utils.BufferSupplier;
import org.apache.kafka.common.utils.PrimitiveRef;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.storage.internals.log.AppendOrigin;
import org.apache.kafka.storage.internals.log.LogValidator;
import org.apache.kafka.storage.internals.log.RecordValidationException;

/**
 * Apache Kafka's own judgement of record batches, and its own batches.
 *
 * judge FILE: the file holds cases, each now, before and after max (int64), max bytes, compacted
 * (int32), length (int32) and the bytes; a line per case: error code, max timestamp, first record.
 * read FILE: a line per record: offset, timestamp, key, value, number of headers.
 * write FILE: batches of each codec.
 */
public class Batches {
    static final LogValidator.MetricsRecorder NO_METRICS = new LogValidator.MetricsRecorder() {
        public void recordInvalidMagic() { }
        public void recordInvalidOffset() { }
        public void recordInvalidSequence() { }
        public void recordInvalidChecksums() { }
        public void recordNoKeyCompactedTopic() { }
    };

    public static void main(String[] args) throws Exception {
        Path path = Path.of(args[1]);
        switch (args[0]) {
            case "judge" -> judgeAll(path);
            case "read" -> read(path);
            default -> write(path);
        }
    }

    static void judgeAll(Path path) throws Exception {
        try (DataInputStream in = new DataInputStream(Files.newInputStream(path))) {
            while (true) {
                long now;
                try {
                    now = in.readLong();
                } catch (java.io.EOFException end) {
                    return;
                }
                long before = in.readLong();
                long after = in.readLong();
                int most = in.readInt();
                boolean compacted = in.readInt() != 0;
                byte[] data = in.readNBytes(in.readInt());
                System.out.println(judge(data, now, before, after, most, compacted));
            }
        }
    }

    static String judge(byte[] data, long now, long before, long after, int most, boolean compacted) {
        try {
            MemoryRecords records = MemoryRecords.readableRecords(ByteBuffer.wrap(data));
            ProduceRequest.validateRecords((short) 9, records);
            CompressionType source = CompressionType.NONE;
            for (MutableRecordBatch batch : records.batches()) {
                if (batch.baseOffset() != 0) throw new InvalidRecordException("base offset");
                if (batch.sizeInBytes() > most) throw new RecordTooLargeException();
                if (!batch.isValid()) throw new CorruptRecordException();
                source = CompressionType.forId(batch.compressionType().id);
            }
            Time time = standingAt(now);
            LogValidator validator = new LogValidator(records, new TopicPartition("t", 0), time, source,
                Compression.of(source).build(), compacted, (byte) 2, TimestampType.CREATE_TIME, before,
                after, 0, AppendOrigin.CLIENT);
            LogValidator.ValidationResult result = validator.validateMessagesAndAssignOffsets(
                PrimitiveRef.ofLong(0), NO_METRICS, BufferSupplier.NO_CACHING);
            return "0 " + result.maxTimestampMs() + " -1";
        } catch (RecordValidationException refused) {
            return Errors.forException(refused.invalidException()).code() + " 0 "
                + refused.recordErrors().get(0).batchIndex;
        } catch (Throwable refused) {
            return Errors.forException(refused).code() + " 0 -1";
        }
    }

    /** A clock that stands. */
    static Time standingAt(long now) {
        return (Time) Proxy.newProxyInstance(Time.class.getClassLoader(), new Class<?>[] {Time.class},
            (proxy, method, given) -> method.getName().equals("milliseconds") ? now : 0L);
    }

    static void read(Path path) throws Exception {
        ByteBuffer data = ByteBuffer.wrap(Files.readAllBytes(path));
        for (Record record : MemoryRecords.readableRecords(data).records()) {
            System.out.println(record.offset() + " " + record.timestamp() + " " + hex(record.key())
                + " " + hex(record.value()) + " " + record.headers().length);
        }
    }

    static String hex(ByteBuffer data) {
        if (data == null) return "null";
        byte[] bytes = new byte[data.remaining()];
        data.duplicate().get(bytes);
        return "x" + java.util.HexFormat.of().formatHex(bytes);
    }

    static void write(Path path) throws Exception {
        try (DataOutputStream out = new DataOutputStream(Files.newOutputStream(path))) {
            long offset = 0;
            for (CompressionType type : CompressionType.values()) {
                for (int size : List.of(1, 100, 70_000)) {
                    SimpleRecord[] records = new SimpleRecord[5];
                    for (int i = 0; i < records.length; i++) {
                        byte[] value = new byte[size];
                        Arrays.fill(value, (byte) ('a' + i));
                        records[i] = new SimpleRecord(1000 + i, ("key" + i).getBytes(), value);
                    }
                    MemoryRecords batch =
                        MemoryRecords.withRecords(offset, Compression.of(type).build(), records);
                    offset += records.length;
                    byte[] bytes = new byte[batch.buffer().remaining()];
                    batch.buffer().duplicate().get(bytes);
                    out.write(bytes);
                }
            }
        }
    }
}
