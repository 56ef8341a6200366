import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.kafka.clients.producer.ProducerConfig;
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
 * The experiment's job on Kafka Streams: documents, their words through a repartition topic, the number of documents
 * of each word in RocksDB with a changelog, and with "postings" its positions in each of them, too. Arguments: see
 * ../tools.py.
 */
public class StreamsIndex {
  // What \w is in Python.
  static final Pattern WORD = Pattern.compile("[\\p{L}\\p{N}_]{1,64}");

  /** A document becomes a posting for each of its words: its number and the word's positions, 4 bytes each. */
  static class Split extends ContextualProcessor<String, String, String, byte[]> {
    @Override
    public void process(Record<String, String> record) {
      Map<String, List<Integer>> found = new LinkedHashMap<>();
      Matcher words = WORD.matcher(record.value().toLowerCase(Locale.ROOT));
      for (int position = 0; words.find(); position++) {
        found.computeIfAbsent(words.group(), word -> new ArrayList<>()).add(position);
      }
      int document = Integer.parseInt(record.key());
      found.forEach(
          (word, positions) -> {
            ByteBuffer posting = ByteBuffer.allocate(4 + 4 * positions.size()).putInt(document);
            positions.forEach(posting::putInt);
            context().forward(record.withKey(word).withValue(posting.array()));
          });
    }
  }

  /** Counts the documents of each word: kept as version and last document, or with postings as occurrences. */
  static class Index extends ContextualProcessor<String, byte[], String, byte[]> {
    private final boolean keepsPostings;

    Index(boolean keepsPostings) {
      this.keepsPostings = keepsPostings;
    }

    @Override
    public void process(Record<String, byte[]> record) {
      KeyValueStore<String, byte[]> versions = context().getStateStore("versions");
      byte[] before = versions.get(record.key());
      long version = before == null ? 1 : ByteBuffer.wrap(before).getLong() + 1;
      ByteBuffer posting = ByteBuffer.wrap(record.value());
      int document = posting.getInt();
      int second = document;
      if (keepsPostings) {
        second = posting.remaining() / 4 + (before == null ? 0 : ByteBuffer.wrap(before).getInt(8));
        KeyValueStore<String, byte[]> postings = context().getStateStore("postings");
        byte[] positions = Arrays.copyOfRange(record.value(), 4, record.value().length);
        postings.put(record.key() + "\0" + document, positions);
      }
      versions.put(record.key(), ByteBuffer.allocate(12).putLong(version).putInt(second).array());
      StringBuilder text = new StringBuilder().append('[').append(document).append(",[").append(posting.getInt());
      while (posting.hasRemaining()) {
        text.append(',').append(posting.getInt());
      }
      String change = text.append("],").append(version).append(']').toString();
      context().forward(record.withValue(change.getBytes(StandardCharsets.UTF_8)));
    }
  }

  public static void main(String[] arguments) {
    new Thread(Streams::endWithInput).start();
    String documents = arguments[1], changes = arguments[2];
    int partitions = Integer.parseInt(arguments[7]);
    boolean keepsPostings = arguments.length > 8 && arguments[8].equals("postings");
    Properties settings = Streams.settings(arguments);
    settings.put(StreamsConfig.producerPrefix(ProducerConfig.LINGER_MS_CONFIG), 0);
    StreamsBuilder builder = new StreamsBuilder();
    String[] stores = keepsPostings ? new String[] {"versions", "postings"} : new String[] {"versions"};
    for (String store : stores) {
      builder.addStateStore(
          Stores.keyValueStoreBuilder(
              Stores.persistentKeyValueStore(store), Serdes.String(), Serdes.ByteArray()));
    }
    builder.stream(documents, Consumed.with(Serdes.String(), Serdes.String()))
        .process(Split::new)
        .repartition(
            Repartitioned.with(Serdes.String(), Serdes.ByteArray())
                .withName("postings")
                .withNumberOfPartitions(partitions))
        .process(() -> new Index(keepsPostings), stores)
        .to(changes, Produced.with(Serdes.String(), Serdes.ByteArray()));
    KafkaStreams streams = new KafkaStreams(builder.build(), settings);
    Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(5))));
    streams.start();
  }
}
