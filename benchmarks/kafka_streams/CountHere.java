import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts by key, exactly once, as one of several members. Each record comes out at once, with the machine that has
 * counted it. Arguments: bootstrap, input, output, application id, state directory, machine, commit interval in ms,
 * threads, standby replicas, session timeout in ms. At SIGTERM it leaves the group.
 */
public class CountHere {
  /** Counts one more, and tells: MACHINE VALUE COUNT. */
  static class Count extends ContextualProcessor<String, String, String, String> {
    final String machine;

    Count(String machine) {
      this.machine = machine;
    }

    @Override
    public void process(Record<String, String> record) {
      KeyValueStore<String, String> counts = context().getStateStore("counts");
      String before = counts.get(record.key());
      long count = before == null ? 1 : Long.parseLong(before) + 1;
      counts.put(record.key(), String.format("%070d", count));
      context().forward(record.withValue(machine + " " + record.value() + " " + count));
    }
  }

  public static void main(String[] arguments) {
    Properties settings = new Properties();
    settings.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    settings.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[3]);
    settings.put(StreamsConfig.STATE_DIR_CONFIG, arguments[4]);
    settings.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    settings.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, arguments[6]);
    settings.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[7]);
    settings.put(StreamsConfig.NUM_STANDBY_REPLICAS_CONFIG, arguments[8]);
    settings.put(StreamsConfig.PROBING_REBALANCE_INTERVAL_MS_CONFIG, "60000"); // the least that it takes
    settings.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.AUTO_OFFSET_RESET_CONFIG), "earliest");
    settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.SESSION_TIMEOUT_MS_CONFIG), arguments[9]);
    settings.put(StreamsConfig.consumerPrefix(ConsumerConfig.GROUP_INSTANCE_ID_CONFIG), arguments[5]); // else no leave
    StreamsBuilder builder = new StreamsBuilder();
    builder.addStateStore(
        Stores.keyValueStoreBuilder(Stores.persistentKeyValueStore("counts"), Serdes.String(), Serdes.String()));
    builder.stream(arguments[1], Consumed.with(Serdes.String(), Serdes.String()))
        .process(() -> new Count(arguments[5]), "counts")
        .to(arguments[2], Produced.with(Serdes.String(), Serdes.String()));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    KafkaStreams.CloseOptions leaving = new KafkaStreams.CloseOptions().leaveGroup(true).timeout(Duration.ofSeconds(20));
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(leaving)));
    streams.start();
  }
}
