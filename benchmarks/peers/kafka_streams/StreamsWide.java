import java.io.IOException;
import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
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

  /** Ends this process when the one that started it has ended. */
  static void endWithInput() {
    try {
      System.in.readAllBytes();
    } catch (IOException error) {
      // It is gone as well.
    }
    Runtime.getRuntime().halt(0);
  }

  public static void main(String[] arguments) {
    new Thread(StreamsWide::endWithInput).start();
    Properties settings = new Properties();
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[3]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
    settings.put(
        StreamsConfig.PROCESSING_GUARANTEE_CONFIG,
        arguments[5].equals("exactly-once") ? StreamsConfig.EXACTLY_ONCE_V2 : StreamsConfig.AT_LEAST_ONCE);
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, arguments[6]);
    settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[7]);
    settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
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
