"""Checks of a log directory that is passed from kafkafs to a broker and back.

A `Ledger` notes what was appended, by either side; `check_records` compares it with what Kafka's
consumer and the engine read. `warnings` returns what a broker logs about what it found, and `dump`
runs Kafka's dump tool.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from kafkafs.storage.format.files.names import TopicPartition
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.log.append.appending import LogAppendInfo
from kafkafs.storage.log.state.producer_state import ProducerStateEntry
from tests.answers import READ_COMMITTED, READ_UNCOMMITTED, ExpectedRecord
from tests.broker.driver import Driver, Message
from tests.broker.jvm import VERSION, dump_tool, installation, tools
from tests.broker.kafka import Broker
from tests.broker.readers import EngineReader, without_epoch

#: Logged at every start and stop, whatever is in the log directory.
ALWAYS_SAID = ("Performing controller activation", "NetworkClient that has already been closed")
BATCH = re.compile(
    r"baseOffset: .* count: (?P<count>\d+) .*"
    r" isControl: (?P<control>\w+) .* isvalid: (?P<valid>\w+)"
)
#: 4.3.0 prints it for every segment but the first with --deep-iteration; older versions do not.
FALSE_ALARM = re.compile(r"Non-consecutive offsets in .*\n(  -1 is followed by [1-9][0-9]*\n?)")


@dataclass
class Txn:
    """The state of a transaction."""

    is_committed: bool = False
    is_open: bool = True

    def end(self, commit: bool) -> None:
        self.is_open, self.is_committed = False, commit


NONE = Txn(is_committed=True, is_open=False)


@dataclass
class Ledger:
    """Every record appended to each partition, with its transaction, and the log start offsets."""

    lines: dict[TopicPartition, list[tuple[ExpectedRecord, Txn]]] = field(
        default_factory=lambda: defaultdict(list)
    )
    starts: dict[TopicPartition, int] = field(default_factory=dict)

    def add(
        self,
        key: TopicPartition,
        appended: LogAppendInfo,
        records: Iterable[SimpleRecord],
        txn: Txn = NONE,
    ) -> None:
        """Notes what kafkafs appended."""
        offset = appended.first_offset
        for offset, record in enumerate(records, appended.first_offset):
            is_stamped = appended.append_time >= 0
            line = ExpectedRecord(
                offset=offset,
                timestamp=appended.append_time if is_stamped else record.timestamp,
                timestamp_type="LogAppendTime" if is_stamped else "CreateTime",
                key=record.key,
                value=record.value,
                headers=tuple((str(name), value) for name, value in record.headers),
                leader_epoch=None,
            )
            self.lines[key].append((line, txn))
        assert offset == appended.last_offset

    def add_sent(
        self,
        key: TopicPartition,
        offsets: Sequence[int],
        messages: Sequence[Message],
        txn: Txn = NONE,
    ) -> None:
        """Notes what Kafka's producer sent, with explicit timestamps."""
        for offset, message in zip(offsets, messages, strict=True):
            assert message.timestamp is not None
            line = ExpectedRecord(
                offset, message.timestamp, "CreateTime", message.key, message.value, (), None
            )
            self.lines[key].append((line, txn))

    def seen(self, key: TopicPartition, isolation: str) -> list[ExpectedRecord]:
        """Returns what a reader with that isolation level must get."""
        lines = self.lines[key]
        start = self.starts.get(key, 0)
        first_open = min((line.offset for line, txn in lines if txn.is_open), default=None)
        return [
            line
            for line, txn in lines
            if line.offset >= start
            and (
                isolation == READ_UNCOMMITTED
                or (txn.is_committed and (first_open is None or line.offset < first_open))
            )
        ]


def check_records(ledger: Ledger, driver: Driver, log_dir: Path) -> None:
    """Checks that Kafka's consumer and the engine get what was appended, in both isolation
    levels."""
    for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
        reader = EngineReader([log_dir], isolation)
        for topic, partition in ledger.lines:
            expected = ledger.seen((topic, partition), isolation)
            consumed = without_epoch(driver.records(topic, partition, isolation))
            assert consumed == expected, (topic, partition, isolation)
            assert reader.records(topic, partition) == expected, (topic, partition, isolation)


def check_engine(ledger: Ledger, log_dir: Path) -> None:
    """Checks that the engine gets what was appended."""
    for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
        reader = EngineReader([log_dir], isolation)
        for key in ledger.lines:
            assert reader.records(*key) == ledger.seen(key, isolation), (key, isolation)


def check_producers(states: dict[TopicPartition, list[ProducerStateEntry]], driver: Driver) -> None:
    """Checks, with DescribeProducers, that the broker has the same producer states."""
    for (topic, partition), known in states.items():
        answer = driver.call("producers", topic=topic, partition=partition)
        expected = [
            {
                "id": state.producer_id,
                "epoch": state.epoch,
                "last_sequence": state.last_sequence,
                "last_timestamp": state.last_timestamp,
                "coordinator_epoch": state.coordinator_epoch,
                "first_offset": state.txn_first_offset,
            }
            for state in known
        ]
        assert sorted(answer, key=lambda one: one["id"]) == sorted(
            expected, key=lambda one: one["id"]
        )


def warnings(broker: Broker, start: int = 0) -> list[str]:
    """Returns the warnings in the broker's log since byte `start`, except those it always logs."""
    text = broker.output.read_bytes()[start:].decode(errors="replace")
    said = [
        line for line in text.splitlines() if re.search(r" (WARN|ERROR|FATAL) |Exception", line)
    ]
    return [line for line in said if not any(known in line for known in ALWAYS_SAID)]


def dump(paths: Sequence[Path], version: str = VERSION) -> dict[Path, list[str]]:
    """Returns the lines that DumpLogSegments prints for each file, records included; it must not
    complain."""
    done = run_dump_tool(paths, "--print-data-log", "--deep-iteration", version=version)
    complaints = FALSE_ALARM.sub("", done.stderr)
    assert (done.returncode, complaints) == (0, ""), complaints
    found: dict[Path, list[str]] = {}
    for line in done.stdout.splitlines():
        if line.startswith("Dumping "):
            found[Path(line.removeprefix("Dumping "))] = lines = []
        else:
            lines.append(line)
    return found


def run_dump_tool(
    paths: Sequence[Path], *options: str, version: str = VERSION
) -> subprocess.CompletedProcess[str]:
    """Runs DumpLogSegments on the files. Output that is not UTF-8 is decoded with replacements."""
    arguments = [*options, "--files", ",".join(map(str, paths))]
    done = tools(installation(version)).run(dump_tool(version), arguments)
    out, err = (text.decode("utf-8", "replace") for text in (done.stdout, done.stderr))
    return subprocess.CompletedProcess(done.args, done.returncode, out, _without_slf4j(err))


def check_indexes(paths: Sequence[Path], version: str = VERSION) -> None:
    """Checks that Kafka's dump tool finds the indexes valid."""
    done = run_dump_tool(paths, "--index-sanity-check", version=version)
    assert (done.returncode, done.stderr) == (0, "")
    for path in paths:
        empty = path.suffix == ".index" and path.stat().st_size == 0
        said = "is empty." if empty else "passed sanity check."
        assert f"{path} {said}" in done.stdout


def check_dumps(ledger: Ledger, log_dir: Path, version: str = VERSION) -> None:
    """Checks that Kafka's dump tool finds nothing wrong with any file, and every expected
    record."""
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot")
    files = {key: sorted((log_dir / f"{key[0]}-{key[1]}").iterdir()) for key in ledger.lines}
    chosen = [path for paths in files.values() for path in paths if path.suffix in kinds]
    dumped = dump(chosen, version)
    assert set(dumped) == set(chosen)
    check_indexes([path for path in chosen if path.suffix in (".index", ".timeindex")], version)
    for key, paths in files.items():
        logs = [path for path in paths if path.suffix == ".log"]
        batches = [BATCH.match(line) for path in logs for line in dumped[path]]
        counts = [int(found["count"]) for found in batches if found and found["control"] == "false"]
        first = int(logs[0].stem)
        assert sum(counts) == sum(line.offset >= first for line, _ in ledger.lines[key])
        assert all(found["valid"] == "true" for found in batches if found)


def _without_slf4j(text: str) -> str:
    return "".join(line for line in text.splitlines(True) if not line.startswith("SLF4J"))
