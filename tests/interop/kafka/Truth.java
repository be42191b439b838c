import java.io.PrintStream;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Base64;
import java.util.List;
import java.util.stream.Stream;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.record.TimestampType;
import org.apache.kafka.common.record.internal.ControlRecordType;
import org.apache.kafka.common.record.internal.DefaultRecordBatch;
import org.apache.kafka.common.record.internal.FileLogInputStream;
import org.apache.kafka.common.record.internal.FileRecords;
import org.apache.kafka.common.record.internal.Record;

/** Prints every batch and record of a log directory as the release's own classes read them, in JSON lines. */
public final class Truth {
    public static void main(String[] words) throws Exception {
        PrintStream out = new PrintStream(System.out, false, StandardCharsets.UTF_8);
        Path root = Path.of(words[0]);
        List<Path> files;
        try (Stream<Path> all = Files.walk(root)) {
            files = all.filter(path -> path.toString().matches(".*\\.(log|checkpoint)") && !path.getParent().equals(root))
                    .sorted().toList();
        }
        for (Path path : files) {
            FileRecords records = FileRecords.open(path.toFile(), false);
            for (FileLogInputStream.FileChannelRecordBatch batch : records.batches()) {
                print(out, root.relativize(path).toString(), batch);
            }
            records.close();
        }
        out.flush();
    }

    private static void print(PrintStream out, String file, FileLogInputStream.FileChannelRecordBatch batch) {
        Integer count = batch.countOrNull();
        String horizon = batch.deleteHorizonMs().isPresent()
                ? ",\"deleteHorizonMs\":" + batch.deleteHorizonMs().getAsLong() : "";
        out.printf("{\"t\":\"batch\",\"file\":%s,\"position\":%d,\"size\":%d,\"magic\":%d,\"baseOffset\":%d,"
                + "\"lastOffset\":%d,\"count\":%d,\"compression\":\"%s\",\"timestampType\":\"%s\",\"maxTimestamp\":%d,"
                + "\"producerId\":%d,\"producerEpoch\":%d,\"baseSequence\":%d,\"lastSequence\":%d,"
                + "\"partitionLeaderEpoch\":%d,\"isTransactional\":%b,\"isControl\":%b,\"crc\":%d,\"isvalid\":%b%s}%n",
                quoted(file), batch.position(), batch.sizeInBytes(), batch.magic(), batch.baseOffset(),
                batch.lastOffset(), count, batch.compressionType().name,
                batch.timestampType() == TimestampType.CREATE_TIME ? "CreateTime" : "LogAppendTime", batch.maxTimestamp(),
                batch.producerId(), batch.producerEpoch(), batch.baseSequence(), batch.lastSequence(),
                batch.partitionLeaderEpoch(), batch.isTransactional(), batch.isControlBatch(), batch.checksum(),
                batch.isValid(), horizon);
        for (Record record : batch) {
            List<String> headers = new ArrayList<>();
            for (Header header : record.headers()) {
                byte[] value = header.value();
                headers.add("[" + quoted(header.key()) + "," + base64(value == null ? null : ByteBuffer.wrap(value)) + "]");
            }
            String control = batch.isControlBatch()
                    ? ",\"controlType\":\"" + ControlRecordType.parse(record.key()) + "\"" : "";
            out.printf("{\"t\":\"record\",\"offset\":%d,\"timestamp\":%d,\"sequence\":%d,\"key\":%s,\"value\":%s,"
                    + "\"headers\":[%s]%s}%n", record.offset(), record.timestamp(), record.sequence(),
                    base64(record.hasKey() ? record.key() : null), base64(record.hasValue() ? record.value() : null),
                    String.join(",", headers), control);
        }
    }

    private static String base64(ByteBuffer data) {
        if (data == null) {
            return "null";
        }
        byte[] bytes = new byte[data.remaining()];
        data.duplicate().get(bytes);
        return '"' + Base64.getEncoder().encodeToString(bytes) + '"';
    }

    private static String quoted(String text) {
        return '"' + text.replace("\\", "\\\\").replace("\"", "\\\"") + '"';
    }
}
