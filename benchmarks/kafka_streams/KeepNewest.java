import com.sun.management.OperatingSystemMXBean;
import java.lang.management.ManagementFactory;
import java.util.Locale;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.processor.StateRestoreListener;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Keeps the newest value of each key, in RocksDB. Prints, as JSON, how long it took from start() to RUNNING, what CPU
 * that was, and how many records were restored; then ends. Arguments: bootstrap, application id, state directory,
 * topic, threads.
 */
public class KeepNewest {
  static class Keep extends ContextualProcessor<byte[], byte[], Void, Void> {
    @Override
    public void process(Record<byte[], byte[]> record) {
      KeyValueStore<byte[], byte[]> kept = context().getStateStore("kept");
      kept.put(record.key(), record.value());
    }
  }

  public static void main(String[] arguments) throws Exception {
    Properties properties = new Properties();
    properties.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, arguments[0]);
    properties.put(StreamsConfig.APPLICATION_ID_CONFIG, arguments[1]);
    properties.put(StreamsConfig.STATE_DIR_CONFIG, arguments[2]);
    properties.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, arguments[4]);
    properties.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
    properties.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
    properties.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.ByteArraySerde.class);
    properties.put(StreamsConfig.REPLICATION_FACTOR_CONFIG, 1);
    Topology topology = new Topology();
    topology.addSource("pairs", arguments[3]);
    topology.addProcessor("keep", Keep::new, "pairs");
    topology.addStateStore(
        Stores.keyValueStoreBuilder(
            Stores.persistentKeyValueStore("kept"), Serdes.ByteArray(), Serdes.ByteArray()),
        "keep");
    KafkaStreams streams = new KafkaStreams(topology, properties);
    AtomicLong restored = new AtomicLong();
    CountDownLatch running = new CountDownLatch(1);
    streams.setGlobalStateRestoreListener(
        new StateRestoreListener() {
          @Override
          public void onRestoreStart(TopicPartition partition, String store, long start, long end) {}

          @Override
          public void onBatchRestored(TopicPartition partition, String store, long end, long count) {}

          @Override
          public void onRestoreEnd(TopicPartition partition, String store, long total) {
            restored.addAndGet(total);
          }
        });
    streams.setStateListener(
        (now, before) -> {
          if (now == KafkaStreams.State.RUNNING) {
            running.countDown();
          }
        });
    OperatingSystemMXBean process = (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    long begun = System.nanoTime();
    long used = process.getProcessCpuTime();
    streams.start();
    running.await();
    double seconds = (System.nanoTime() - begun) / 1e9;
    double cpu = (process.getProcessCpuTime() - used) / 1e9;
    System.out.printf(
        Locale.ROOT, "{\"seconds\": %f, \"cpu\": %f, \"restored\": %d}%n", seconds, cpu, restored.get());
    streams.close();
    System.exit(0);
  }
}
