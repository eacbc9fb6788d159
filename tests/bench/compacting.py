"""Rows 15 to 18: compaction against Kafka's own cleaner, and the parts of compaction.

A pass reads the log twice, once for the newest offsets of its keys and once to copy what is
retained, and ends with the new segments on disk and swapped in. kafkafs and the broker take turns
cleaning the very same files (links to them), each with one thread and an offset map of 128 MiB. The
broker's time is the difference between two lines of its log, which excludes its start and the wait
for its cleaner. One broker process serves all turns, and its compilers are warm by the third.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import numpy as np

from kafkafs.storage.format.kernels import gather
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.columns import KEY_START, VALUE_START
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.bench import mounts, trial
from tests.bench.data import TOPIC, cache, keyed_log, keyed_segment_bytes, rolled_logs
from tests.bench.machine import last_core
from tests.bench.plan import Plan
from tests.bench.race import (
    Call,
    Command,
    Figure,
    Outcome,
    Outcomes,
    python_task,
    race,
    turns,
    versus,
)
from tests.broker.compaction import HELD, LET_GO, LOGS_PASSES, RATIO
from tests.broker.driver import Driver
from tests.broker.kafka import Broker

_PEER = "Kafka 4.3's LogCleaner"
_PASS_SECONDS = 120
_MAP_BYTES = 128 << 20
_JVM = ("-Xmx2g", *LOGS_PASSES)
_CODECS = (Codec.NONE, Codec.LZ4, Codec.ZSTD)
_NANOSECONDS_A_KEY = 200  # five million keys a second


def uncompressed(plan: Plan) -> Outcomes:
    """Row 15: uncompressed logs."""
    yield _against_kafka(15, Codec.NONE, 2.0, plan)


def compressed(plan: Plan) -> Outcomes:
    """Row 16: compressed logs."""
    for codec in _CODECS[1:]:
        yield _against_kafka(16, codec, 1.5, plan)


def preview(plan: Plan) -> Outcomes:
    """Row 17: the preview, by a new mount each time, which has nothing cached."""
    source = keyed_log(plan.compacted, plan.keys, Codec.NONE)
    segment_bytes = keyed_segment_bytes(plan.compacted, Codec.NONE)
    with scratch_directory() as scratch:
        seconds = race(
            {
                "ours": Call(lambda: _cat_compacted(scratch, source)),
                "pass": Call(lambda: compact(linked(scratch / "ours", source), segment_bytes)),
            },
            plan.repetitions,
        )
    yield versus(
        17, "cat compacted/records.jsonl, first read",
        (seconds["ours"], seconds["pass"]), "the compaction itself", 1,
    )  # fmt: skip


def offset_map(plan: Plan) -> Outcomes:
    """Row 18: the offset map, with keys of 16 bytes, on one core."""
    for task, what in (("map_put", "put into"), ("map_get", "found in")):
        with python_task(task, str(plan.mapped), core=last_core()) as worker:
            taken = statistics.median(worker.measure() for _ in range(min(plan.repetitions, 3)))
        yield Outcome(
            18, f"offset map: {plan.mapped / 1e6:g} M keys {what} 24-byte slots at load 0.9",
            Figure(taken / plan.mapped * 1e9, "ns a key"),
            limit=Figure(_NANOSECONDS_A_KEY, "ns a key"),
            note=f"{plan.mapped / taken / 1e6:.1f} M keys/s",
        )  # fmt: skip


def _against_kafka(row: int, codec: Codec, target: float, plan: Plan) -> Outcome:
    source = keyed_log(plan.compacted, plan.keys, codec)
    segment_bytes = keyed_segment_bytes(plan.compacted, codec)
    left: dict[str, str] = {}

    def ours() -> float:
        log_dir = linked(scratch / "ours", source)
        taken = compact(log_dir, segment_bytes)
        left["ours"] = _retained(log_dir, TOPIC, codec)
        return taken

    def theirs() -> float:
        topic = next(topics)
        taken = _let_clean(broker, client, topic)
        left[_PEER] = _retained(broker.log_dir, topic, codec)
        return taken

    topics = iter(_topics(codec, plan))
    codecs = _CODECS if trial.is_trial() else (codec,)  # in a trial one broker has all logs
    with (
        scratch_directory() as scratch,
        trial.shared("cleaning", lambda: _holding(codecs, plan)) as (broker, client),
    ):
        seconds = race({"ours": Call(ours), _PEER: Call(theirs)}, plan.repetitions)
    if left["ours"] != left[_PEER]:
        raise AssertionError("kafkafs and Kafka retained different records")
    work = f"{plan.compacted / 1e6:g} M records, {plan.keys / 1e6:g} M keys, {codec.kafka_name}"
    same = "segments are byte-identical" if codec is Codec.NONE else "same records retained"
    return versus(
        row, f"compact {work}",
        (seconds["ours"], seconds[_PEER]), _PEER, target,
        amount=_dirty_bytes(source) / 1e6, unit="MB/s", note=same,
    )  # fmt: skip


@contextmanager
def scratch_directory() -> Iterator[Path]:
    """Yields a directory on the file system of the logs, so that they can be linked to."""
    with tempfile.TemporaryDirectory(prefix="compacting-", dir=cache()) as directory:
        yield Path(directory)


def linked(target: Path, source: Path) -> Path:
    """Makes `target` a log directory with the same content, deleting what it held before. Rolled
    `.log` files, which are never written to, are hard links; others are copies."""
    shutil.rmtree(target, ignore_errors=True)
    target.mkdir()
    for path in source.iterdir():
        if path.is_file():
            shutil.copy2(path, target)
    for partition in source.glob(f"{TOPIC}-*"):
        (target / partition.name).mkdir()
        _link_partition(partition, target / partition.name)
    return target


def _link_partition(source: Path, target: Path) -> None:
    for path in source.iterdir():
        if path in rolled_logs(source):
            os.link(path, target / path.name)
        elif not (target / path.name).exists():  # a topic keeps its ID
            shutil.copy2(path, target)


def _dirty_bytes(source: Path) -> int:
    return sum(path.stat().st_size for path in rolled_logs(source / f"{TOPIC}-0"))


def compact(log_dir: Path, segment_bytes: int, map_bytes: int = _MAP_BYTES) -> float:
    """Makes one pass over the whole log. Returns the seconds."""
    settings = {
        "cleanup.policy": "compact",
        "segment.bytes": str(segment_bytes),
        "log.cleaner.dedupe.buffer.size": str(map_bytes),
    }
    dirty = _dirty_bytes(log_dir)
    with LogManager(str(log_dir), settings) as engine:
        chosen = engine.cleaner.candidate((TOPIC, 0))
        assert chosen is not None
        started = time.perf_counter()
        result = engine.cleaner.clean(chosen, engine.cleaner.new_map())
        taken = time.perf_counter() - started
    assert result.bytes_before == dirty
    return taken


def _retained(log_dir: Path, topic: str, codec: Codec) -> str:
    """Returns a digest of the rolled segments' bytes; of compressed ones, whose bytes differ
    between library versions, a digest of the log's records, column by column."""
    if codec is Codec.NONE:
        digest = hashlib.sha256()
        for path in rolled_logs(log_dir / f"{topic}-0"):
            digest.update(path.name.encode() + path.read_bytes())
        return digest.hexdigest()
    digests = [hashlib.sha256() for _ in range(6)]
    for columns in Engine(str(log_dir)).log(topic, 0).view().read():
        digests[0].update(columns.offsets.tobytes())
        digests[1].update(columns.timestamps.tobytes())
        for at, start in ((2, KEY_START), (4, VALUE_START)):
            size, _ = gather.measure(columns.spans, start)
            ends, joined = np.empty(len(columns) + 1, dtype=np.int32), bytearray(size)
            gather.gather(columns.data, columns.spans, start, ends, joined)
            digests[at].update(np.diff(ends).tobytes())
            digests[at + 1].update(joined)
    return "".join(digest.hexdigest() for digest in digests)


def _topics(codec: Codec, plan: Plan) -> list[str]:
    """Returns the names of the broker's topics, one for each turn."""
    return [f"{codec.kafka_name}-{turn}" for turn in range(turns(plan.repetitions))]


@contextmanager
def _holding(codecs: Sequence[Codec], plan: Plan) -> Iterator[tuple[Broker, Driver]]:
    """Runs a broker that has the log of each codec once for each turn, and does not clean them
    yet."""
    properties = {"log.cleaner.dedupe.buffer.size": str(_MAP_BYTES)}
    with scratch_directory() as scratch:
        broker = Broker(scratch, properties, jvm_options=(*trial.all_compilers(), *_JVM))
        broker.start()
        try:
            client = Driver(broker.bootstrap, scratch / "driver.log")
            for codec, topic in _every(codecs, plan):
                size = str(keyed_segment_bytes(plan.compacted, codec))
                configs = {"cleanup.policy": "compact", RATIO: HELD, "segment.bytes": size}
                client.create_topic(topic, configs=configs)
            client.close()
            broker.stop()
            for codec, topic in _every(codecs, plan):
                partition = broker.log_dir / f"{topic}-0"
                for path in partition.iterdir():
                    if path.name != "partition.metadata":
                        path.unlink()
                source = keyed_log(plan.compacted, plan.keys, codec)
                _link_partition(source / f"{TOPIC}-0", partition)
            broker.start()
            client = Driver(broker.bootstrap, scratch / "driver.log")
            yield broker, client
            client.close()
        finally:
            broker.close()


def _every(codecs: Sequence[Codec], plan: Plan) -> list[tuple[Codec, str]]:
    return [(codec, topic) for codec in codecs for topic in _topics(codec, plan)]


def _let_clean(broker: Broker, client: Driver, topic: str) -> float:
    """Lets the broker clean a topic. Returns the seconds from the start of its pass to its last
    segment."""
    dirty = len(rolled_logs(broker.log_dir / f"{topic}-0"))
    client.call("alter_config", topic=topic, configs={RATIO: LET_GO})
    give_up = time.monotonic() + _PASS_SECONDS
    while time.monotonic() < give_up:
        text = broker.output.read_text()
        begin = _times(rf"Beginning cleaning of log {topic}-0$", text)
        swapped = _times(rf"Swapping in cleaned segment .*/{topic}-0, ", text)
        if len(swapped) == dirty:
            return swapped[-1] - begin[0]
        time.sleep(0.1)
    raise RuntimeError(f"{broker.output}: {topic} was not cleaned within {_PASS_SECONDS} s")


def _times(what: str, text: str) -> list[float]:
    """Returns when each line that contains `what` was logged, in seconds since 1970."""
    found = re.findall(rf"(?m)^(\S+) .*{what}", text)
    return [datetime.fromisoformat(moment).timestamp() for moment in found]


def _cat_compacted(scratch: Path, source: Path) -> float:
    with mounts.kafkafs(source) as mounted:
        path = mounted.path / TOPIC / "0" / "compacted" / "records.jsonl"
        return Command(["cat", str(path)]).measure()
