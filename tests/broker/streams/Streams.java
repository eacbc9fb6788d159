import com.fasterxml.jackson.databind.ObjectMapper;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListStreamsGroupOffsetsSpec;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.StreamsGroupDescription;
import org.apache.kafka.clients.admin.StreamsGroupMemberAssignment.TaskIds;
import org.apache.kafka.clients.admin.StreamsGroupMemberDescription;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.GroupState;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.CloseOptions;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.Topology;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.state.Stores;

/**
 * Runs applications of Kafka Streams with group.protocol=streams and writes what the Admin API says of their groups at
 * several moments: Streams BOOTSTRAP ANSWERS DIRECTORY. It ends without closing the applications that still run, so
 * that the broker keeps their members until their session times out.
 */
public class Streams {
  private static final long NO_PROGRESS_MS = 60_000;

  private final String bootstrap;
  private final Path directory;
  private final Admin admin;
  private final List<Object> moments = new ArrayList<>();

  Streams(String bootstrap, Path directory) {
    this.bootstrap = bootstrap;
    this.directory = directory;
    this.admin = Admin.create(Map.of("bootstrap.servers", bootstrap));
  }

  public static void main(String[] args) throws Exception {
    Streams streams = new Streams(args[0], Path.of(args[2]));
    streams.run();
    new ObjectMapper().writeValue(Path.of(args[1]).toFile(), streams.moments);
    Runtime.getRuntime().halt(0);
  }

  private void run() throws Exception {
    admin.createTopics(List.of(new NewTopic("orders", 2, (short) 1), new NewTopic("totals", 1, (short) 1))).all().get();
    produce(60);

    KafkaStreams copies = start("copies", "copies-a", copying("orders"), Map.of());
    KafkaStreams removed = start("removed", "removed-a", copying("orders"), Map.of());
    await(() -> committed("copies") == 60 && committed("removed") == 60);
    moment();
    copies.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
    removed.close(CloseOptions.groupMembershipOperation(CloseOptions.GroupMembershipOperation.LEAVE_GROUP));
    await(() -> described("copies").members().isEmpty() && described("removed").members().isEmpty());
    moment();
    admin.deleteStreamsGroups(List.of("removed")).all().get();

    standbys("totals", 1);
    start("totals", "totals-a", counting(), Map.of("client.rack", "r1", "num.stream.threads", 2));
    await(() -> described("totals").members().size() == 2); // and the internal topics are not there yet
    moment();
    await(() -> isStable("totals", 2) && committed("totals") == 120); // of orders and of the repartition topic
    moment();
    start("totals", "totals-b", counting(), Map.of());
    await(() -> described("totals").members().size() == 3); // and gets tasks that the others must revoke
    moment();
    await(() -> isStable("totals", 3) && hasStandbys("totals"));
    produce(7); // which `copies` has not seen
    await(() -> committed("totals") == 134);
    // Its source topic does not exist: after ten seconds the application gives up and leaves.
    start("waiting", "waiting-a", copying("missing"), Map.of());
    await(() -> described("waiting").members().size() == 1);
    moment();
  }


  private boolean hasStandbys(String group) throws Exception {
    return described(group).members().stream().anyMatch(each -> !each.assignment().standbyTasks().isEmpty());
  }

  private void produce(int count) throws Exception {
    Map<String, Object> config = Map.of("bootstrap.servers", bootstrap, "linger.ms", 100);
    try (var producer = new KafkaProducer<>(config, new StringSerializer(), new StringSerializer())) {
      for (int n = 0; n < count; n++) {
        producer.send(new ProducerRecord<>("orders", n % 2, "order-" + n, "customer-" + n % 5));
      }
    }
  }

  /** A topology with one subtopology, without a state. */
  private static Topology copying(String from) {
    StreamsBuilder builder = new StreamsBuilder();
    builder.<String, String>stream(from).mapValues(value -> value.length() + "").to("totals");
    return builder.build();
  }

  /** A topology with two subtopologies, the second of which has a store. */
  private static Topology counting() {
    StreamsBuilder builder = new StreamsBuilder();
    builder.<String, String>stream("orders")
        .selectKey((order, customer) -> customer)
        .repartition(Repartitioned.<String, String>as("by-customer").withNumberOfPartitions(3))
        .groupByKey()
        .count(Materialized.<String, Long>as(Stores.inMemoryKeyValueStore("counts")).withCachingDisabled())
        .toStream().mapValues(String::valueOf).to("totals");
    return builder.build();
  }

  private KafkaStreams start(String application, String client, Topology topology, Map<String, Object> more) {
    Properties config = new Properties();
    config.put(StreamsConfig.APPLICATION_ID_CONFIG, application);
    config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, bootstrap);
    config.put(StreamsConfig.CLIENT_ID_CONFIG, client);
    config.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, "streams");
    config.put(StreamsConfig.STATE_DIR_CONFIG, directory.resolve(client).toString());
    config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, 500);
    config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
    config.put("auto.offset.reset", "earliest");
    config.putAll(more);
    KafkaStreams streams = new KafkaStreams(topology, config);
    streams.start();
    return streams;
  }

  private void standbys(String group, int count) throws Exception {
    var entry = new ConfigEntry("streams.num.standby.replicas", "" + count);
    admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group),
        List.of(new AlterConfigOp(entry, AlterConfigOp.OpType.SET)))).all().get();
  }

  private static void await(Callable<Boolean> condition) throws Exception {
    long giveUp = System.currentTimeMillis() + NO_PROGRESS_MS;
    while (true) {
      try {
        if (condition.call()) return;
      } catch (ExecutionException e) {
        // the group does not exist yet
      }
      if (System.currentTimeMillis() > giveUp) throw new IllegalStateException("no progress");
      Thread.sleep(100);
    }
  }

  private StreamsGroupDescription described(String group) throws Exception {
    return admin.describeStreamsGroups(List.of(group)).all().get().get(group);
  }

  private boolean isStable(String group, int members) throws Exception {
    StreamsGroupDescription found = described(group);
    return found.groupState() == GroupState.STABLE && found.members().size() == members;
  }

  /** Returns the sum of a group's committed offsets. */
  private long committed(String group) throws Exception {
    return offsets(group).values().stream().mapToLong(each -> (long) each.get("offset")).sum();
  }

  private Map<String, Map<String, Object>> offsets(String group) throws Exception {
    var found = admin.listStreamsGroupOffsets(Map.of(group, new ListStreamsGroupOffsetsSpec()))
        .partitionsToOffsetAndMetadata(group).get();
    var ends = found.keySet().stream().collect(Collectors.toMap(each -> each, each -> OffsetSpec.latest()));
    var latest = admin.listOffsets(ends).all().get();
    Map<String, Map<String, Object>> offsets = new TreeMap<>();
    for (var entry : found.entrySet()) {
      if (entry.getValue() == null) continue;
      Map<String, Object> offset = new TreeMap<>();
      offset.put("offset", entry.getValue().offset());
      offset.put("leaderEpoch", entry.getValue().leaderEpoch().orElse(null));
      offset.put("metadata", entry.getValue().metadata());
      offset.put("logEndOffset", latest.get(entry.getKey()).offset());
      offsets.put(entry.getKey().toString(), offset);
    }
    return offsets;
  }

  /** Adds what the Admin API says at a time at which nothing changes. */
  private void moment() throws Exception {
    Map<String, Object> groups = groups();
    while (true) {
      long at = System.currentTimeMillis();
      Map<String, Object> later = groups();
      if (later.equals(groups)) {
        moments.add(Map.of("at", at, "groups", groups));
        return;
      }
      groups = later;
    }
  }

  private Map<String, Object> groups() throws Exception {
    Map<String, Object> groups = new TreeMap<>();
    for (var listed : admin.listGroups().all().get()) {
      StreamsGroupDescription found = described(listed.groupId());
      Map<String, Object> group = new TreeMap<>();
      group.put("type", listed.type().get().toString());
      group.put("protocolType", listed.protocol());
      group.put("listedState", listed.groupState().get().toString());
      group.put("state", found.groupState().toString());
      group.put("epoch", found.groupEpoch());
      group.put("topologyEpoch", found.topologyEpoch());
      Map<String, Object> members = new TreeMap<>();
      for (StreamsGroupMemberDescription each : found.members()) members.put(each.memberId(), member(each));
      group.put("members", members);
      group.put("offsets", offsets(listed.groupId()));
      groups.put(listed.groupId(), group);
    }
    return groups;
  }

  private static Map<String, Object> member(StreamsGroupMemberDescription of) {
    Map<String, Object> member = new TreeMap<>();
    member.put("instanceId", of.instanceId().orElse(null));
    member.put("rack", of.rackId().orElse(null));
    member.put("clientId", of.clientId());
    member.put("host", of.clientHost());
    List<String> tasks = new ArrayList<>();
    addTasks(tasks, "active", of.assignment().activeTasks());
    addTasks(tasks, "standby", of.assignment().standbyTasks());
    addTasks(tasks, "warmup", of.assignment().warmupTasks());
    member.put("assignment", tasks);
    return member;
  }

  private static void addTasks(List<String> to, String kind, List<TaskIds> tasks) {
    for (TaskIds each : tasks) {
      for (int partition : each.partitions()) to.add(kind + " " + each.subtopologyId() + "_" + partition);
    }
    to.sort(null);
  }
}
