import java.io.IOException;
import java.util.Properties;
import org.apache.kafka.clients.consumer.ConsumerConfig;
import org.apache.kafka.streams.StreamsConfig;

/** The common part of the programs: their settings by their arguments, and their end. Arguments: see ../tools.py. */
final class Streams {
  private Streams() {}

  /** Returns the settings of a program with these arguments. */
  static Properties settings(String[] arguments) {
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
    return settings;
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
}
