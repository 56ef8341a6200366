import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;

/**
 * A chain of stages on Kafka Streams, a repartition topic between any two. Arguments: see ../tools.py; the ninth is the
 * number of partitions, the tenth that of stages.
 */
public class StreamsChain {
  public static void main(String[] arguments) {
    new Thread(Streams::endWithInput).start();
    Properties settings = Streams.settings(arguments);
    StreamsBuilder builder = new StreamsBuilder();
    KStream<String, String> stream =
        builder.stream(arguments[1], Consumed.with(Serdes.String(), Serdes.String()));
    for (int stage = 1; stage < Integer.parseInt(arguments[9]); stage++) {
      stream =
          stream.repartition(
              Repartitioned.<String, String>with(Serdes.String(), Serdes.String())
                  .withNumberOfPartitions(Integer.parseInt(arguments[8]))
                  .withName("stage-" + stage));
    }
    stream.to(arguments[2], Produced.with(Serdes.String(), Serdes.String()));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
    streams.start();
  }
}
