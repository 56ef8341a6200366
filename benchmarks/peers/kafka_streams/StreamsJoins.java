import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.kafka.common.serialization.Serde;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.Joined;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** Two topics joined by key on Kafka Streams, in RocksDB with a changelog. Arguments: see ../tools.py. */
public class StreamsJoins {
  // As in ../../joining.py.
  static final Duration BEFORE = Duration.ofSeconds(10), AFTER = Duration.ofSeconds(10);
  static final Duration RETENTION = Duration.ofSeconds(600);
  static final int DIGITS = 8;

  static final Serde<String> TEXT = Serdes.String();
  static final Consumed<String, String> READ = Consumed.with(TEXT, TEXT);
  static final AtomicBoolean begun = new AtomicBoolean();

  /** How a pair is told; notes when the first one is made. */
  static String told(String left, String right) {
    if (!begun.get() && begun.compareAndSet(false, true)) {
      try {
        Files.writeString(
            Path.of(System.getenv("BENCH_STARTED")), System.currentTimeMillis() + "\n", StandardOpenOption.CREATE);
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
    return (left == null ? "-" : left.substring(0, DIGITS)) + ":" + (right == null ? "-" : right.substring(0, DIGITS));
  }

  /** The pairs of a kind of join. */
  static KStream<String, String> joined(StreamsBuilder builder, String left, String right, String kind) {
    if (kind.equals("tables")) {
      return builder.table(left, READ).join(builder.table(right, READ), StreamsJoins::told).toStream();
    }
    KStream<String, String> lefts = builder.stream(left, READ);
    if (kind.equals("as of")) {
      Materialized<String, String, KeyValueStore<Bytes, byte[]>> rows =
          Materialized.as(Stores.persistentVersionedKeyValueStore("rows", RETENTION));
      return lefts.join(
          builder.table(right, READ, rows.withKeySerde(TEXT).withValueSerde(TEXT)),
          StreamsJoins::told,
          Joined.with(TEXT, TEXT, TEXT));
    }
    KStream<String, String> rights = builder.stream(right, READ);
    JoinWindows interval = JoinWindows.ofTimeDifferenceWithNoGrace(BEFORE).before(BEFORE).after(AFTER);
    StreamJoined<String, String, String> serdes = StreamJoined.with(TEXT, TEXT, TEXT);
    return switch (kind) {
      case "inner" -> lefts.join(rights, StreamsJoins::told, interval, serdes);
      case "left" -> lefts.leftJoin(rights, StreamsJoins::told, interval, serdes);
      default -> lefts.outerJoin(rights, StreamsJoins::told, interval, serdes);
    };
  }

  public static void main(String[] arguments) {
    new Thread(Streams::endWithInput).start();
    Properties settings = Streams.settings(arguments);
    settings.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, 0); // each change of a table is told
    StreamsBuilder builder = new StreamsBuilder();
    String[] topics = arguments[1].split(",");
    joined(builder, topics[0], topics[1], arguments[8]).to(arguments[2], Produced.with(TEXT, TEXT));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
    streams.start();
  }
}
