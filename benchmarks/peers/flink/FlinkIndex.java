import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.FlatMapFunction;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.state.MapState;
import org.apache.flink.api.common.state.MapStateDescriptor;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.api.java.tuple.Tuple3;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.connector.kafka.source.reader.deserializer.KafkaRecordDeserializationSchema;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * The experiment's job on Flink, in a mini cluster: documents, their words by Flink's own shuffle, the number of
 * documents of each word in the heap, and with "postings" its positions in each of them, too. Arguments: see
 * ../tools.py.
 */
public class FlinkIndex {
  // What \w is in Python.
  static final Pattern WORD = Pattern.compile("[\\p{L}\\p{N}_]{1,64}");
  static final TypeInformation<Tuple2<Integer, String>> DOCUMENT = Types.TUPLE(Types.INT, Types.STRING);
  @SuppressWarnings("unchecked")
  static final TypeInformation<int[]> POSITIONS = (TypeInformation<int[]>) Types.PRIMITIVE_ARRAY(Types.INT);
  static final TypeInformation<Tuple3<String, Integer, int[]>> POSTING =
      Types.TUPLE(Types.STRING, Types.INT, POSITIONS);
  static final TypeInformation<Tuple2<Long, Integer>> VERSION = Types.TUPLE(Types.LONG, Types.INT);
  static final TypeInformation<Tuple2<String, String>> CHANGE = Types.TUPLE(Types.STRING, Types.STRING);

  static class Read implements KafkaRecordDeserializationSchema<Tuple2<Integer, String>> {
    @Override
    public void deserialize(ConsumerRecord<byte[], byte[]> record, Collector<Tuple2<Integer, String>> out) {
      int document = Integer.parseInt(new String(record.key(), StandardCharsets.UTF_8));
      out.collect(Tuple2.of(document, new String(record.value(), StandardCharsets.UTF_8)));
    }

    @Override
    public TypeInformation<Tuple2<Integer, String>> getProducedType() {
      return DOCUMENT;
    }
  }

  static class Split implements FlatMapFunction<Tuple2<Integer, String>, Tuple3<String, Integer, int[]>> {
    @Override
    public void flatMap(Tuple2<Integer, String> document, Collector<Tuple3<String, Integer, int[]>> out) {
      Map<String, List<Integer>> found = new LinkedHashMap<>();
      Matcher words = WORD.matcher(document.f1.toLowerCase(Locale.ROOT));
      for (int position = 0; words.find(); position++) {
        found.computeIfAbsent(words.group(), word -> new ArrayList<>()).add(position);
      }
      found.forEach(
          (word, positions) ->
              out.collect(Tuple3.of(word, document.f0, positions.stream().mapToInt(each -> each).toArray())));
    }
  }

  static class Index extends KeyedProcessFunction<String, Tuple3<String, Integer, int[]>, Tuple2<String, String>> {
    private final boolean keepsPostings;
    private transient ValueState<Tuple2<Long, Integer>> versions; // with postings: documents, occurrences
    private transient MapState<Integer, int[]> postings; // document → positions of the word

    Index(boolean keepsPostings) {
      this.keepsPostings = keepsPostings;
    }

    @Override
    public void open(OpenContext context) {
      versions = getRuntimeContext().getState(new ValueStateDescriptor<>("versions", VERSION));
      if (keepsPostings) {
        postings = getRuntimeContext().getMapState(new MapStateDescriptor<>("postings", Types.INT, POSITIONS));
      }
    }

    @Override
    public void processElement(
        Tuple3<String, Integer, int[]> posting, Context context, Collector<Tuple2<String, String>> out)
        throws Exception {
      Tuple2<Long, Integer> before = versions.value();
      long version = before == null ? 1 : before.f0 + 1;
      if (keepsPostings) {
        postings.put(posting.f1, posting.f2);
        versions.update(Tuple2.of(version, posting.f2.length + (before == null ? 0 : before.f1)));
      } else {
        versions.update(Tuple2.of(version, posting.f1));
      }
      StringBuilder text = new StringBuilder().append('[').append(posting.f1).append(",[");
      for (int number = 0; number < posting.f2.length; number++) {
        text.append(number == 0 ? "" : ",").append(posting.f2[number]);
      }
      out.collect(Tuple2.of(posting.f0, text.append("],").append(version).append(']').toString()));
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

  public static void main(String[] arguments) throws Exception {
    new Thread(FlinkIndex::endWithInput).start();
    String bootstrap = arguments[0], documents = arguments[1], changes = arguments[2], name = arguments[3];
    boolean exactlyOnce = arguments[5].equals("exactly-once");
    int partitions = Integer.parseInt(arguments[7]);
    boolean keepsPostings = arguments.length > 8 && arguments[8].equals("postings");
    Configuration settings = new Configuration();
    settings.setString("execution.checkpointing.interval", arguments[6] + " ms");
    settings.setString("execution.checkpointing.mode", exactlyOnce ? "EXACTLY_ONCE" : "AT_LEAST_ONCE");
    settings.setString("execution.checkpointing.storage", "filesystem");
    settings.setString("execution.checkpointing.dir", "file://" + arguments[4] + "/checkpoints");
    settings.setString("execution.buffer-timeout.interval", "0 ms");
    settings.setString("pipeline.object-reuse", "true");
    settings.setString("state.backend.type", "hashmap");
    settings.setString("io.tmp.dirs", arguments[4]);
    settings.setString("taskmanager.numberOfTaskSlots", String.valueOf(partitions));
    StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(partitions, settings);
    KafkaSource<Tuple2<Integer, String>> source =
        KafkaSource.<Tuple2<Integer, String>>builder()
            .setBootstrapServers(bootstrap)
            .setTopics(documents)
            .setGroupId(name)
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setDeserializer(new Read())
            .build();
    KafkaRecordSerializationSchema<Tuple2<String, String>> written =
        (change, context, time) ->
            new ProducerRecord<>(
                changes,
                change.f0.getBytes(StandardCharsets.UTF_8),
                change.f1.getBytes(StandardCharsets.UTF_8));
    KafkaSink<Tuple2<String, String>> sink =
        KafkaSink.<Tuple2<String, String>>builder()
            .setBootstrapServers(bootstrap)
            .setRecordSerializer(written)
            .setDeliveryGuarantee(exactlyOnce ? DeliveryGuarantee.EXACTLY_ONCE : DeliveryGuarantee.AT_LEAST_ONCE)
            .setTransactionalIdPrefix(name)
            .setProperty("transaction.timeout.ms", "600000")
            .setProperty("linger.ms", "0")
            .build();
    job.fromSource(source, WatermarkStrategy.noWatermarks(), "documents")
        .flatMap(new Split())
        .returns(POSTING)
        .keyBy(posting -> posting.f0, Types.STRING)
        .process(new Index(keepsPostings))
        .returns(CHANGE)
        .sinkTo(sink);
    job.execute(name);
  }
}
