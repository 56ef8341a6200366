import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.utils.Bytes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.EmitStrategy;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KGroupedStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.SessionWindows;
import org.apache.kafka.streams.kstream.SlidingWindows;
import org.apache.kafka.streams.kstream.TimeWindowedKStream;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.kstream.Windowed;
import org.apache.kafka.streams.state.SessionStore;
import org.apache.kafka.streams.state.WindowStore;

/**
 * Records counted by key and window on Kafka Streams, final results only, in RocksDB with a changelog. Arguments: see
 * ../tools.py.
 */
public class StreamsWindows {
  // As in ../../windowing.py.
  static final Duration SIZE = Duration.ofSeconds(60), ADVANCE = Duration.ofSeconds(20);
  static final Duration GAP = Duration.ofSeconds(8), DIFFERENCE = Duration.ofSeconds(20);

  // Else a session is deleted before its final result is looked for, once a second.
  static final Duration RETENTION = Duration.ofDays(1);

  /** Counts by a kind of window. */
  static KTable<Windowed<String>, Long> counts(KGroupedStream<String, byte[]> events, String kind) {
    EmitStrategy last = EmitStrategy.onWindowClose();
    if (kind.equals("session")) {
      return events
          .windowedBy(SessionWindows.ofInactivityGapWithNoGrace(GAP))
          .emitStrategy(last)
          .count(Materialized.<String, Long, SessionStore<Bytes, byte[]>>as("counts").withRetention(RETENTION));
    }
    TimeWindows tumbling = TimeWindows.ofSizeWithNoGrace(SIZE);
    TimeWindowedKStream<String, byte[]> windowed =
        kind.equals("tumbling")
            ? events.windowedBy(tumbling)
            : kind.equals("hopping")
                ? events.windowedBy(tumbling.advanceBy(ADVANCE))
                : events.windowedBy(SlidingWindows.ofTimeDifferenceWithNoGrace(DIFFERENCE));
    return windowed
        .emitStrategy(last)
        .count(Materialized.<String, Long, WindowStore<Bytes, byte[]>>as("counts").withRetention(RETENTION));
  }

  public static void main(String[] arguments) {
    new Thread(Streams::endWithInput).start();
    Properties settings = Streams.settings(arguments);
    StreamsBuilder builder = new StreamsBuilder();
    KGroupedStream<String, byte[]> events =
        builder.stream(arguments[1], Consumed.with(Serdes.String(), Serdes.ByteArray()))
            .groupByKey(Grouped.with(Serdes.String(), Serdes.ByteArray()));
    counts(events, arguments[8])
        .toStream()
        .map((window, count) -> KeyValue.pair(window.key(), Long.toString(count)))
        .to(arguments[2], Produced.with(Serdes.String(), Serdes.String()));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
    streams.start();
  }
}
