import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The wide job on Kafka Streams: route by value through a repartition topic, count by key, each count written out.
 * Arguments: see ../tools.py; the ninth is the number of partitions.
 */
public class StreamsWide {
  /** Counts one more, and tells. */
  static class Count extends ContextualProcessor<String, String, String, Long> {
    @Override
    public void process(Record<String, String> record) {
      KeyValueStore<String, Long> counts = context().getStateStore("counts");
      Long before = counts.get(record.key());
      long count = before == null ? 1 : before + 1;
      counts.put(record.key(), count);
      context().forward(record.withValue(count));
    }
  }

  public static void main(String[] arguments) {
    new Thread(Streams::endWithInput).start();
    Properties settings = Streams.settings(arguments);
    StreamsBuilder builder = new StreamsBuilder();
    builder.addStateStore(
        Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("counts"), Serdes.String(), Serdes.Long())
            .withLoggingEnabled(Map.of())
            .withCachingDisabled());
    builder.stream(arguments[1], Consumed.with(Serdes.String(), Serdes.String()))
        .selectKey((user, page) -> page)
        .repartition(
            Repartitioned.<String, String>with(Serdes.String(), Serdes.String())
                .withNumberOfPartitions(Integer.parseInt(arguments[8]))
                .withName("routed"))
        .process(Count::new, "counts")
        .to(arguments[2], Produced.with(Serdes.String(), Serdes.Long()));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
    streams.start();
  }
}
