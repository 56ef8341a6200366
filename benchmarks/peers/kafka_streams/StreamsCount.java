import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * The counting job on Kafka Streams: JSON events by key, each count written out, counts in RocksDB with a changelog.
 * Arguments: see ../tools.py.
 */
public class StreamsCount {
  static final ObjectMapper JSON = new ObjectMapper();

  /** Counts one more, and tells. */
  static class Count extends ContextualProcessor<String, byte[], String, byte[]> {
    @Override
    public void process(Record<String, byte[]> record) {
      KeyValueStore<String, Long> counts = context().getStateStore("counts");
      try {
        String key = JSON.readTree(record.value()).get("key").textValue();
        Long before = counts.get(key);
        long count = before == null ? 1 : before + 1;
        counts.put(key, count);
        byte[] told = JSON.writeValueAsBytes(JSON.createObjectNode().put("key", key).put("count", count));
        context().forward(record.withValue(told));
      } catch (IOException error) {
        throw new UncheckedIOException(error);
      }
    }
  }

  public static void main(String[] arguments) {
    new Thread(Streams::endWithInput).start();
    Properties settings = Streams.settings(arguments);
    StreamsBuilder builder = new StreamsBuilder();
    builder.addStateStore(
        Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("counts"), Serdes.String(), Serdes.Long()));
    builder.stream(arguments[1], Consumed.with(Serdes.String(), Serdes.ByteArray()))
        .process(Count::new, "counts")
        .to(arguments[2], Produced.with(Serdes.String(), Serdes.ByteArray()));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
    streams.start();
  }
}
