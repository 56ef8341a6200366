import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import org.apache.flink.api.common.eventtime.WatermarkStrategy;
import org.apache.flink.api.common.functions.OpenContext;
import org.apache.flink.api.common.serialization.SimpleStringSchema;
import org.apache.flink.api.common.state.ValueState;
import org.apache.flink.api.common.state.ValueStateDescriptor;
import org.apache.flink.api.common.typeinfo.TypeInformation;
import org.apache.flink.api.common.typeinfo.Types;
import org.apache.flink.api.java.tuple.Tuple2;
import org.apache.flink.configuration.Configuration;
import org.apache.flink.connector.base.DeliveryGuarantee;
import org.apache.flink.connector.kafka.sink.KafkaRecordSerializationSchema;
import org.apache.flink.connector.kafka.sink.KafkaSink;
import org.apache.flink.connector.kafka.source.KafkaSource;
import org.apache.flink.connector.kafka.source.enumerator.initializer.OffsetsInitializer;
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;
import org.apache.flink.streaming.api.functions.KeyedProcessFunction;
import org.apache.flink.util.Collector;
import org.apache.kafka.clients.producer.ProducerRecord;

/**
 * The counting job on Flink, in a mini cluster: JSON events by key, each count written out, counts in the heap.
 * Arguments: see ../tools.py.
 */
public class FlinkCount {
  static final ObjectMapper JSON = new ObjectMapper();
  static final TypeInformation<Tuple2<String, String>> TOLD = Types.TUPLE(Types.STRING, Types.STRING);

  /** Counts one more, and tells. */
  static class Count extends KeyedProcessFunction<String, String, Tuple2<String, String>> {
    private transient ValueState<Long> counts;

    @Override
    public void open(OpenContext context) {
      counts = getRuntimeContext().getState(new ValueStateDescriptor<>("counts", Types.LONG));
    }

    @Override
    public void processElement(String key, Context context, Collector<Tuple2<String, String>> out) throws Exception {
      Long before = counts.value();
      long count = before == null ? 1 : before + 1;
      counts.update(count);
      String told = JSON.writeValueAsString(JSON.createObjectNode().put("key", key).put("count", count));
      out.collect(Tuple2.of(key, told));
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
    new Thread(FlinkCount::endWithInput).start();
    String bootstrap = arguments[0], events = arguments[1], counted = arguments[2], name = arguments[3];
    boolean exactlyOnce = arguments[5].equals("exactly-once");
    int partitions = Integer.parseInt(arguments[7]);
    Configuration settings = new Configuration();
    settings.setString("execution.checkpointing.interval", arguments[6] + " ms");
    settings.setString("execution.checkpointing.mode", exactlyOnce ? "EXACTLY_ONCE" : "AT_LEAST_ONCE");
    settings.setString("execution.checkpointing.storage", "filesystem");
    settings.setString("execution.checkpointing.dir", "file://" + arguments[4] + "/checkpoints");
    settings.setString("pipeline.object-reuse", "true");
    settings.setString("state.backend.type", "hashmap");
    settings.setString("io.tmp.dirs", arguments[4]);
    settings.setString("taskmanager.numberOfTaskSlots", String.valueOf(partitions));
    StreamExecutionEnvironment job = StreamExecutionEnvironment.createLocalEnvironment(partitions, settings);
    KafkaSource<String> source =
        KafkaSource.<String>builder()
            .setBootstrapServers(bootstrap)
            .setTopics(events)
            .setGroupId(name)
            .setStartingOffsets(OffsetsInitializer.earliest())
            .setValueOnlyDeserializer(new SimpleStringSchema())
            .build();
    KafkaRecordSerializationSchema<Tuple2<String, String>> written =
        (told, context, time) ->
            new ProducerRecord<>(
                counted,
                told.f0.getBytes(StandardCharsets.UTF_8),
                told.f1.getBytes(StandardCharsets.UTF_8));
    KafkaSink<Tuple2<String, String>> sink =
        KafkaSink.<Tuple2<String, String>>builder()
            .setBootstrapServers(bootstrap)
            .setRecordSerializer(written)
            .setDeliveryGuarantee(exactlyOnce ? DeliveryGuarantee.EXACTLY_ONCE : DeliveryGuarantee.AT_LEAST_ONCE)
            .setTransactionalIdPrefix(name)
            .setProperty("transaction.timeout.ms", "600000")
            .build();
    job.fromSource(source, WatermarkStrategy.noWatermarks(), "events")
        .map(event -> JSON.readTree(event).get("key").textValue())
        .returns(Types.STRING)
        .keyBy(key -> key, Types.STRING)
        .process(new Count())
        .returns(TOLD)
        .sinkTo(sink);
    job.execute(name);
  }
}
