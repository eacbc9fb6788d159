"""Rows 13 and 14: opening a log directory to write, against the time a broker takes to load it.

Both open the very same directory in turns. The broker's time is from a line of its own log (its
`LogManager`), so neither its start nor Python's counts. The broker has a JVM with all compilers and
the default number of recovery threads.
"""

from __future__ import annotations

import hashlib
import re
import resource
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from kafkafs.storage.format.layout import Codec
from kafkafs.storage.log_manager import LogManager
from tests.bench.data import TOPIC, VALUE_BYTES, batches, build, made, placed
from tests.bench.plan import Plan
from tests.bench.race import Call, Contender, Figure, Outcome, Outcomes, race, versus
from tests.bench.trial import all_compilers
from tests.broker.driver import Driver
from tests.broker.kafka import Broker
from tests.logs import TopicSettings, write_checkpoint, write_partition

_PEER = "kafka 4.3"
_TORN_BYTES = 7000
_LOAD_SECONDS = 300
# Jars, sockets, indexes of active segments: what a broker has open besides its logs.
_OTHER_FILES = 2000
_PARTITIONS_OF_A_TOPIC = 50
_RECORDS_OF_A_SEGMENT = 4
_JVM = (
    "-Xmx2g",
    "-Dorg.slf4j.simpleLogger.log.kafka.log.LogManager=info",
    "-Dorg.slf4j.simpleLogger.log.org.apache.kafka.storage.internals.log.LogManager=info",
)
_LOADED = re.compile(rb"Loaded \d+ logs in (\d+) ?ms")


def unclean(plan: Plan) -> Outcomes:
    """Row 13: one segment, of a gibibyte unless the plan says otherwise, with a torn end, none of
    which is known to be flushed."""
    home = made(f"unclean-log-{plan.recovered}", lambda home: _make_unclean(home, plan.recovered))
    log_dir, partition = home / "logs", home / "logs" / f"{TOPIC}-0"
    size = int((home / "sound-bytes").read_text())
    results: set[tuple[object, ...]] = set()

    def crash() -> None:
        _crash(partition, size)

    def note() -> None:
        results.add(_result(partition))

    with tempfile.TemporaryDirectory(prefix="kafkafs-bench-") as scratch:
        broker = _broker(Path(scratch), log_dir)
        contenders: dict[str, Contender] = {
            "ours": Call(_ours(log_dir, crash, note)),
            _PEER: Call(_theirs(broker, Broker.kill, crash, note)),
        }
        seconds = race(contenders, plan.repetitions)
    if len(results) != 1:
        raise AssertionError(f"kafkafs and Kafka recovered differently: {results}")
    yield versus(
        13, f"recovery of an unclean log of {size / 2**30:.2f} GiB",
        (seconds["ours"], seconds[_PEER]), _PEER, 2,
        note="log, indexes and snapshot are byte-identical afterwards",
    )  # fmt: skip


def many(plan: Plan) -> Outcomes:
    """Row 14: many partitions of many segments, closed cleanly."""
    fitting = _fitting(plan)
    log_dir = _many_logs(fitting)
    with tempfile.TemporaryDirectory(prefix="kafkafs-bench-") as scratch:
        broker = _broker(Path(scratch), log_dir)
        contenders: dict[str, Contender] = {
            "ours": Call(_ours(log_dir)),
            _PEER: Call(_theirs(broker, Broker.stop)),
        }
        seconds = race(contenders, plan.repetitions)
    note = ""
    if fitting != plan:
        note = f"a broker keeps every .log open, and cannot open more than {_limit():,} files"
    yield versus(
        14, f"open {fitting.partitions:,} clean partitions × {plan.segments} segments",
        (seconds["ours"], seconds[_PEER]), _PEER, 5, note=note,
    )  # fmt: skip
    if fitting != plan:
        alone = race({"ours": Call(_ours(_many_logs(plan)))}, plan.repetitions)
        what = f"open {plan.partitions:,} clean partitions × {plan.segments} segments"
        yield Outcome(14, what, Figure(alone["ours"], "s"))


def _limit() -> int:
    """Returns the number of files that a process may have open."""
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _fitting(plan: Plan) -> Plan:
    """Returns the plan with no more partitions than a broker can open."""
    most = (_limit() - _OTHER_FILES) // plan.segments
    return replace(plan, partitions=min(plan.partitions, most))


def _many_logs(plan: Plan) -> Path:
    name = f"clean-logs-{plan.partitions}-{plan.segments}"
    return made(name, lambda home: _make_many(home, plan)) / "logs"


def _nothing() -> None:
    pass


def _ours(
    log_dir: Path, before: Callable[[], None] = _nothing, after: Callable[[], None] = _nothing
) -> Callable[[], float]:
    """Opens the directory with an engine. Returns the seconds until all partitions are writable."""

    def work() -> float:
        before()
        started = time.perf_counter()
        engine = LogManager(str(log_dir))
        taken = time.perf_counter() - started
        problems = engine.problems
        engine.close()
        if problems:
            raise RuntimeError(f"opened with problems: {problems}")
        after()
        return taken

    return work


def _theirs(
    broker: Broker,
    end: Callable[[Broker], None],
    before: Callable[[], None] = _nothing,
    after: Callable[[], None] = _nothing,
) -> Callable[[], float]:
    """Starts a broker on the directory. Returns the seconds that it reports for loading the
    logs."""

    def work() -> float:
        before()
        broker.output.write_bytes(b"")
        broker.start()
        try:
            taken = _loaded_in(broker)
        finally:
            end(broker)
        after()
        return taken

    return work


def _loaded_in(broker: Broker) -> float:
    give_up = time.monotonic() + _LOAD_SECONDS
    while time.monotonic() < give_up:
        found = _LOADED.search(broker.output.read_bytes())
        if found is not None:
            return int(found[1]) / 1000
        time.sleep(0.1)
    raise RuntimeError(f"{broker.output}: no line about loading the logs")


def _broker(scratch: Path, log_dir: Path) -> Broker:
    return Broker(scratch, log_dirs=[log_dir], jvm_options=(*all_compilers(), *_JVM))


def _result(partition: Path) -> tuple[object, ...]:
    """Returns what recovery produced: the log's size, and the other files, without the space
    preallocated at the end of an open index."""
    log = next(partition.glob("*.log"))
    others = [path for kind in ("*index", "*.snapshot") for path in sorted(partition.glob(kind))]
    hashes = [hashlib.sha256(path.read_bytes().rstrip(b"\0")).hexdigest() for path in others]
    return log.stat().st_size, *(path.name for path in others), *hashes


def _crash(partition: Path, sound: int) -> None:
    """Puts the log into the state that a killed broker leaves: half a batch at its end, indexes
    with nothing flushed, no snapshot of its end, and no marker."""
    (partition.parent / ".kafka_cleanshutdown").unlink(missing_ok=True)
    write_checkpoint(partition.parent / "recovery-point-offset-checkpoint", [])
    log = next(partition.glob("*.log"))
    with log.open("r+b") as file:
        start = file.read(_TORN_BYTES)
        file.truncate(sound)
        file.seek(sound)
        file.write(start)
    for path in partition.glob("*.snapshot"):
        path.unlink()
    for suffix in (".index", ".timeindex"):
        with log.with_suffix(suffix).open("wb") as file:
            file.truncate(10 << 20)


def _make_unclean(home: Path, mebibytes: int) -> None:
    def write(log_dir: Path) -> None:
        writer = write_partition(log_dir / f"{TOPIC}-0", _a_segment(mebibytes << 20))
        log = next((log_dir / f"{TOPIC}-0").glob("*.log"))
        (home / "sound-bytes").write_text(str(log.stat().st_size))
        assert len(writer.bases) == 1

    _with_topics(home, {TOPIC: 1}, write)


def _a_segment(left: int) -> Iterator[bytes]:
    """Yields as many batches as fit into `left` bytes."""
    for batch in batches(left // VALUE_BYTES):
        left -= len(batch)
        if left < 0:
            return
        yield batch


def _make_many(home: Path, plan: Plan) -> None:
    batch = build(0, _RECORDS_OF_A_SEGMENT, Codec.NONE)
    settings = TopicSettings(segment_bytes=len(batch))
    records = plan.segments * _RECORDS_OF_A_SEGMENT
    topics = {
        f"t{first // _PARTITIONS_OF_A_TOPIC:03}": min(
            _PARTITIONS_OF_A_TOPIC, plan.partitions - first
        )
        for first in range(0, plan.partitions, _PARTITIONS_OF_A_TOPIC)
    }

    def write(log_dir: Path) -> None:
        for topic, partitions in topics.items():
            for number in range(partitions):
                bases = range(0, records, _RECORDS_OF_A_SEGMENT)
                made = [placed(batch, base) for base in bases]
                write_partition(log_dir / f"{topic}-{number}", made, settings)

    _with_topics(home, topics, write)


def _with_topics(home: Path, topics: Mapping[str, int], write: Callable[[Path], None]) -> None:
    """Makes a broker's log directory with these topics, closed cleanly, and then replaces their
    empty logs by what `write` writes. The partitions keep their topic IDs."""
    log_dir = home / "logs"
    with tempfile.TemporaryDirectory(prefix="kafkafs-bench-") as scratch:
        broker = _broker(Path(scratch), log_dir)
        broker.start()
        try:
            client = Driver(broker.bootstrap, Path(scratch) / "driver.log")
            for topic, partitions in topics.items():
                client.create_topic(topic, partitions)
            client.close()
            broker.stop()
        finally:
            broker.close()
    ids = {path: path.read_bytes() for path in log_dir.glob("*/partition.metadata")}
    for topic in topics:
        for path in log_dir.glob(f"{topic}-*"):
            shutil.rmtree(path)
    write(log_dir)
    for path, topic_id in ids.items():
        path.write_bytes(topic_id)
