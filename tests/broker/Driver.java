import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.function.Function;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.header.internals.RecordHeader;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own client, told what to do by lines of JSON on stdin: {"id": 1, "do": "offsets", "topic": "t", ...}. Each is
 * answered by one line, {"id": 1, "ok": ...} or {"id": 1, "error": "..."}, as soon as it is done: commands run side by side.
 * driver.py has the other end. One long-lived process, because a JVM with a Kafka client takes two seconds to start.
 * Keys, values and header values are base64 or null.
 */
public class Driver {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final long NO_PROGRESS_MS = 30_000;

  private final String bootstrap;
  private final Admin admin;
  private final Map<String, KafkaProducer<byte[], byte[]>> producers = new ConcurrentHashMap<>();
  /** By the names of producers in a transaction, where it begins in each partition. */
  private final Map<String, Map<TopicPartition, Long>> transactions = new ConcurrentHashMap<>();
  /** By isolation level, the consumers that no command uses. */
  private final Map<String, Queue<KafkaConsumer<byte[], byte[]>>> consumers = new ConcurrentHashMap<>();

  Driver(String bootstrap) {
    this.bootstrap = bootstrap;
    this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
  }

  public static void main(String[] args) throws Exception {
    Driver driver = new Driver(args[0]);
    ExecutorService pool = Executors.newCachedThreadPool();
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JsonNode command = JSON.readTree(line);
      pool.execute(() -> driver.answer(command));
    }
    Runtime.getRuntime().halt(0); // without closing producers: a transaction that is open stays open
  }

  private void answer(JsonNode command) {
    ObjectNode reply = JSON.createObjectNode().put("id", command.get("id").asLong());
    try {
      reply.set("ok", run(command));
    } catch (ExecutionException e) {
      reply.put("error", String.valueOf(e.getCause()));
    } catch (Exception e) {
      reply.put("error", String.valueOf(e));
    }
    synchronized (System.out) {
      System.out.println(reply);
      System.out.flush();
    }
  }

  private JsonNode run(JsonNode c) throws Exception {
    switch (c.get("do").asText()) {
      case "cluster": return JSON.valueToTree(admin.describeCluster().nodes().get().size());
      case "topics": return JSON.valueToTree(admin.listTopics().names().get());
      case "create_topic": return createTopic(c);
      case "add_partitions": return done(admin.createPartitions(
          Map.of(topic(c), NewPartitions.increaseTo(c.get("partitions").asInt()))).all().get());
      case "delete_topic": return done(admin.deleteTopics(List.of(topic(c))).all().get());
      case "alter_config": return alterConfig(c);
      case "delete_records": return done(admin.deleteRecords(
          Map.of(partition(c), RecordsToDelete.beforeOffset(c.get("before").asLong()))).all().get());
      case "produce": return produce(c);
      case "generate": return generate(c);
      case "begin": return begin(c);
      case "commit": producer(c).commitTransaction(); return ended(c);
      case "abort": producer(c).abortTransaction(); return ended(c);
      case "records": return records(c);
      case "offsets": return offsets(c);
      case "producers": return activeProducers(c);
      case "abort_hanging": return done(admin.abortTransaction(new AbortTransactionSpec(partition(c),
          c.get("producer_id").asLong(), (short) c.get("producer_epoch").asInt(), c.get("coordinator_epoch").asInt())).all().get());
      case "times": return times(c);
      default: throw new IllegalArgumentException("no such command: " + c);
    }
  }

  private static JsonNode done(Object ignored) { return null; }

  private static String topic(JsonNode c) { return c.get("topic").asText(); }

  private static TopicPartition partition(JsonNode c) { return new TopicPartition(topic(c), c.get("partition").asInt()); }

  private static byte[] bytes(JsonNode text) {
    return text == null || text.isNull() ? null : Base64.getDecoder().decode(text.asText());
  }

  private static String text(byte[] bytes) { return bytes == null ? null : Base64.getEncoder().encodeToString(bytes); }

  private static Map<String, String> strings(JsonNode object) {
    Map<String, String> found = new TreeMap<>();
    if (object != null) object.fields().forEachRemaining(e -> found.put(e.getKey(), e.getValue().asText()));
    return found;
  }

  private JsonNode createTopic(JsonNode c) throws Exception {
    NewTopic topic = new NewTopic(topic(c), c.get("partitions").asInt(), (short) 1).configs(strings(c.get("configs")));
    var created = admin.createTopics(List.of(topic));
    created.all().get();
    return JSON.valueToTree(created.topicId(topic(c)).get().toString());
  }

  private JsonNode alterConfig(JsonNode c) throws Exception {
    List<AlterConfigOp> changes = new ArrayList<>();
    strings(c.get("configs")).forEach((name, value) ->
        changes.add(new AlterConfigOp(new ConfigEntry(name, value), AlterConfigOp.OpType.SET)));
    ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, topic(c));
    return done(admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get());
  }

  private static String producerName(JsonNode c) { return c.path("producer").asText("plain"); }

  /** The producer called c.producer; "transactional": true gives it its name as transactional.id. */
  private KafkaProducer<byte[], byte[]> producer(JsonNode c) {
    return producers.computeIfAbsent(producerName(c), name -> {
      Map<String, Object> config = new HashMap<>(Map.of(
          "bootstrap.servers", bootstrap, "acks", "all", "linger.ms", "100000", "batch.size", "900000"));
      boolean transactional = c.path("transactional").asBoolean(false);
      if (transactional) {
        config.put("transactional.id", name);
        config.put("transaction.timeout.ms", "900000");
      }
      config.putAll(strings(c.get("configs")));
      var made = new KafkaProducer<>(config, new ByteArraySerializer(), new ByteArraySerializer());
      if (transactional) made.initTransactions();
      return made;
    });
  }

  private JsonNode begin(JsonNode c) {
    producer(c).beginTransaction();
    transactions.put(producerName(c), new ConcurrentHashMap<>());
    return null;
  }

  /** Waits until the transaction's markers are written, which happens after the producer has the coordinator's answer. */
  private JsonNode ended(JsonNode c) throws Exception {
    var begins = transactions.remove(producerName(c));
    if (begins == null) return null;
    for (var begin : begins.entrySet()) {
      long giveUp = System.currentTimeMillis() + NO_PROGRESS_MS;
      while (openTransactions(begin.getKey()).contains(begin.getValue())) {
        if (System.currentTimeMillis() > giveUp) throw new IllegalStateException("no marker in " + begin.getKey());
        Thread.sleep(1);
      }
    }
    return null;
  }

  /** Where the open transactions of the partition begin. */
  private List<Long> openTransactions(TopicPartition partition) throws Exception {
    var states = admin.describeProducers(List.of(partition)).partitionResult(partition).get();
    return states.activeProducers().stream().map(state -> state.currentTransactionStartOffset().orElse(-1L)).toList();
  }

  /** Sends c.records as one batch, or several where "batch" says how many records go into each. */
  private JsonNode produce(JsonNode c) throws Exception {
    var producer = producer(c);
    TopicPartition target = partition(c);
    int size = c.path("batch").asInt(Integer.MAX_VALUE), n = 0;
    List<Future<RecordMetadata>> sent = new ArrayList<>();
    for (JsonNode r : c.get("records")) {
      List<Header> headers = new ArrayList<>();
      for (JsonNode h : r.path("headers")) headers.add(new RecordHeader(h.get(0).asText(), bytes(h.get(1))));
      Long timestamp = r.hasNonNull("timestamp") ? r.get("timestamp").asLong() : null;
      sent.add(producer.send(new ProducerRecord<>(
          target.topic(), target.partition(), timestamp, bytes(r.get("key")), bytes(r.get("value")), headers)));
      if (++n % size == 0) producer.flush();
    }
    producer.flush();
    ArrayNode offsets = JSON.createArrayNode();
    for (var s : sent) offsets.add(s.get().offset());
    var begins = transactions.get(producerName(c));
    if (begins != null && !sent.isEmpty()) begins.putIfAbsent(target, sent.get(0).get().offset());
    return offsets;
  }

  /**
   * Sends "count" records whose value is their number, from "first" on, padded by 'x' to "value_size"; the key is "k" and
   * the number modulo "keys"; the timestamp is "timestamp" plus "step" for each; "batch" records in a batch, "pause_ms" after each.
   */
  private JsonNode generate(JsonNode c) throws Exception {
    var producer = producer(c);
    TopicPartition target = partition(c);
    long count = c.get("count").asLong(), first = c.path("first").asLong(0), keys = c.path("keys").asLong(count);
    long timestamp = c.path("timestamp").asLong(System.currentTimeMillis()), step = c.path("step").asLong(0);
    long pause = c.path("pause_ms").asLong(0);
    int size = c.path("value_size").asInt(0), batch = c.path("batch").asInt(100);
    for (long k = first; k < first + count; k++) {
      String value = Long.toString(k);
      if (value.length() < size) value += " " + "x".repeat(size - value.length() - 1);
      producer.send(new ProducerRecord<>(target.topic(), target.partition(), timestamp + (k - first) * step,
          ("k" + k % keys).getBytes(StandardCharsets.UTF_8), value.getBytes(StandardCharsets.UTF_8)));
      if ((k - first + 1) % batch == 0) {
        producer.flush();
        if (pause > 0) Thread.sleep(pause);
      }
    }
    producer.flush();
    return null;
  }

  /**
   * Calls `use` with a consumer of that isolation level that nobody uses meanwhile. Without an error the consumer stays open for
   * the next call: making one takes longer than most calls.
   */
  private <T> T withConsumer(String isolation, Function<KafkaConsumer<byte[], byte[]>, T> use) {
    Queue<KafkaConsumer<byte[], byte[]>> idle = consumers.computeIfAbsent(isolation, i -> new ConcurrentLinkedQueue<>());
    var found = idle.poll();
    var consumer = found == null ? newConsumer(isolation) : found;
    boolean failed = true;
    try {
      T answer = use.apply(consumer);
      failed = false;
      return answer;
    } finally {
      if (failed) consumer.close();
      else idle.add(consumer);
    }
  }

  private KafkaConsumer<byte[], byte[]> newConsumer(String isolation) {
    return new KafkaConsumer<>(
        Map.of("bootstrap.servers", bootstrap, "enable.auto.commit", "false", "auto.offset.reset", "none",
            "max.poll.records", "5000", "isolation.level", isolation, "fetch.max.wait.ms", "5"),
        new ByteArrayDeserializer(), new ByteArrayDeserializer());
  }

  private static String isolation(JsonNode c) { return c.path("isolation").asText("read_committed"); }

  /** Every record of the partition from the log start to the end that this isolation level sees. */
  private JsonNode records(JsonNode c) {
    TopicPartition target = partition(c);
    return withConsumer(isolation(c), consumer -> {
      ArrayNode found = JSON.createArrayNode();
      consumer.assign(List.of(target));
      consumer.seek(target, consumer.beginningOffsets(List.of(target)).get(target));
      long end = consumer.endOffsets(List.of(target)).get(target);
      long giveUp = System.currentTimeMillis() + NO_PROGRESS_MS;
      while (consumer.position(target) < end) {
        if (System.currentTimeMillis() > giveUp)
          throw new IllegalStateException("no progress at " + target + " " + consumer.position(target) + " of " + end);
        for (var record : consumer.poll(Duration.ofMillis(200))) {
          found.add(record(record));
          giveUp = System.currentTimeMillis() + NO_PROGRESS_MS;
        }
      }
      return found;
    });
  }

  private static ObjectNode record(ConsumerRecord<byte[], byte[]> r) {
    ObjectNode out = JSON.createObjectNode().put("offset", r.offset()).put("timestamp", r.timestamp())
        .put("timestamp_type", r.timestampType().toString()).put("key", text(r.key())).put("value", text(r.value()))
        .put("leader_epoch", r.leaderEpoch().orElse(null));
    ArrayNode headers = out.putArray("headers");
    for (Header h : r.headers()) headers.addArray().add(h.key()).add(text(h.value()));
    return out;
  }

  private JsonNode offsets(JsonNode c) {
    List<TopicPartition> one = List.of(partition(c));
    ObjectNode out = JSON.createObjectNode();
    withConsumer("read_uncommitted", all -> out
        .put("beginning", all.beginningOffsets(one).get(one.get(0)))
        .put("end", all.endOffsets(one).get(one.get(0))));
    withConsumer("read_committed", stable -> out.put("last_stable", stable.endOffsets(one).get(one.get(0))));
    return out;
  }

  /** What the partition's leader knows of its producers, as DescribeProducers tells. */
  private JsonNode activeProducers(JsonNode c) throws Exception {
    ArrayNode found = JSON.createArrayNode();
    var states = admin.describeProducers(List.of(partition(c))).partitionResult(partition(c)).get();
    for (ProducerState state : states.activeProducers())
      found.addObject().put("id", state.producerId()).put("epoch", state.producerEpoch())
          .put("last_sequence", state.lastSequence()).put("last_timestamp", state.lastTimestamp())
          .put("coordinator_epoch", state.coordinatorEpoch().orElse(-1))
          .put("first_offset", state.currentTransactionStartOffset().orElse(-1L));
    return found;
  }

  /** For each of "timestamps" the offset of the first record at or after it, or null. */
  private JsonNode times(JsonNode c) {
    TopicPartition target = partition(c);
    return withConsumer(isolation(c), consumer -> {
      ArrayNode found = JSON.createArrayNode();
      for (JsonNode timestamp : c.get("timestamps")) {
        OffsetAndTimestamp answer = consumer.offsetsForTimes(Map.of(target, timestamp.asLong())).get(target);
        found.add(answer == null ? null : (Long) answer.offset());
      }
      return found;
    });
  }
}
