package org.apache.kafka.storage.internals.log;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Base64;
import java.util.HexFormat;
import java.util.Optional;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ApiException;
import org.apache.kafka.common.record.internal.MemoryRecords;
import org.apache.kafka.common.record.internal.RecordBatch;
import org.apache.kafka.common.utils.Time;

/**
 * Kafka's own ProducerStateManager, without a broker: each line of JSON on stdin is a batch that is appended, or something else
 * that happens, and is answered by one line. The steps of an append are those of UnifiedLog. In Kafka's package, because that
 * is where they can be called from.
 */
public class ProducerStates {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int EXPIRATION_MS = 86_400_000;

  private final File directory;
  private ProducerStateManager manager;

  ProducerStates(File directory) throws Exception {
    this.directory = directory;
    this.manager = fresh();
  }

  public static void main(String[] args) throws Exception {
    ProducerStates states = new ProducerStates(new File(args[0]));
    BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
    for (String line = in.readLine(); line != null; line = in.readLine()) {
      JsonNode command = JSON.readTree(line);
      ObjectNode answer = JSON.createObjectNode();
      try {
        states.run(command, answer);
      } catch (ApiException e) {
        answer.put("error", e.getClass().getSimpleName());
      }
      System.out.println(answer);
      System.out.flush();
    }
  }

  private ProducerStateManager fresh() throws Exception {
    return new ProducerStateManager(
        new TopicPartition("t", 0), directory, 900_000, new ProducerStateManagerConfig(EXPIRATION_MS, false), Time.SYSTEM);
  }

  private void run(JsonNode c, ObjectNode answer) throws Exception {
    switch (c.get("do").asText()) {
      case "append": append(c, answer); break;
      case "expire": manager.removeExpiredProducers(c.get("now").asLong()); break;
      case "reload": reload(c); break;
      default: throw new IllegalArgumentException("no such command: " + c);
    }
    answer.put("snapshot", snapshot()).put("end", manager.mapEndOffset()).put("undecided", manager.firstUndecidedOffset().orElse(-1));
  }

  private void append(JsonNode c, ObjectNode answer) {
    RecordBatch batch =
        MemoryRecords.readableRecords(ByteBuffer.wrap(Base64.getDecoder().decode(c.get("batch").asText()))).batches().iterator().next();
    AppendOrigin origin = AppendOrigin.valueOf(c.get("origin").asText());
    if (origin == AppendOrigin.CLIENT) {
      Optional<BatchMetadata> again = manager.lastEntry(batch.producerId()).flatMap(entry -> entry.findDuplicateBatch(batch));
      if (again.isPresent()) {
        answer.putArray("duplicate").add(again.get().firstOffset()).add(again.get().lastOffset()).add(again.get().timestamp());
        return;
      }
    }
    ProducerAppendInfo info = manager.prepareUpdate(batch.producerId(), origin);
    short transactionVersion = (short) (origin == AppendOrigin.REPLICATION ? -1 : 1);
    Optional<CompletedTxn> completed = info.append(batch, Optional.empty(), transactionVersion);
    manager.update(info);
    completed.ifPresent(txn -> {
      if (txn.isAborted())
        answer.putArray("aborted").add(txn.producerId()).add(txn.firstOffset()).add(txn.lastOffset()).add(manager.lastStableOffset(txn));
      manager.completeTxn(txn);
    });
    manager.updateMapEndOffset(batch.lastOffset() + 1);
  }

  /** What a restart does: the snapshot of the end is written, and read by another manager. */
  private void reload(JsonNode c) throws Exception {
    manager.takeSnapshot();
    long end = manager.mapEndOffset();
    manager = fresh();
    manager.truncateAndReload(0, end, c.get("now").asLong());
  }

  private String snapshot() throws Exception {
    File file = new File(directory, "snapshot-now");
    Files.deleteIfExists(file.toPath());
    ProducerStateManager.writeSnapshot(file, manager.activeProducers(), false);
    return HexFormat.of().formatHex(Files.readAllBytes(file.toPath()));
  }
}
