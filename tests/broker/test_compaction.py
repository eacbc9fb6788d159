"""Compaction compared with a real broker's: both clean the same random logs at the same time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from kafkafs.storage.cleaner.preview.preview import PreviewRequest, preview
from kafkafs.storage.clock import SetClock
from kafkafs.storage.config.kafka import broker_config
from kafkafs.storage.format.records.batch import Int64s
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.verifier import Verifier
from tests.answers import READ_COMMITTED, READ_UNCOMMITTED
from tests.broker.compaction import (
    CODECS,
    COMPRESSED,
    LET_GO,
    MAP_BYTES,
    RATIO,
    Cleaned,
    Round,
    Rounds,
    cleaner_offsets,
    copy,
    topics,
)
from tests.broker.driver import Driver
from tests.broker.handover import run_dump_tool, warnings
from tests.broker.kafka import Broker
from tests.broker.readers import EngineReader, without_epoch
from tests.crash.moments import ALL

StartBroker = Callable[..., Broker]
StartDriver = Callable[[Broker], Driver]

SEED = 20261121
SCALE = 8
COUNT = 3 if ALL else 2
SETTINGS = {
    RATIO: LET_GO,
    "log.cleaner.enable": "false",  # only on request
    "log.cleaner.dedupe.buffer.size": str(MAP_BYTES),
}


def test_compaction_by_kafka_and_by_kafkafs(
    tmp_path: Path, start_broker: StartBroker, start_driver: StartDriver
) -> None:
    """One test, because its data takes long to make: every pass has the same result, previews are
    right, and each side opens what the other has cleaned."""
    made = Rounds(tmp_path / "rounds", SEED, SCALE)
    rounds = list(made.run(COUNT))
    ours = [clean_as(each, tmp_path / f"ours-{n}") for n, each in enumerate(rounds)]
    for round_, path in zip(rounds, ours, strict=True):
        check_parity(round_, path)
        check_previews(round_, path)
    check_that_much_was_done(rounds)
    check_findings(made.broker.log_dir)
    complaints = dump_complaints(made.broker.log_dir)
    assert dump_complaints(ours[-1]) == complaints
    check_consumer(ours[-1], start_broker, start_driver)
    with LogManager(str(made.broker.log_dir), SETTINGS) as engine:
        assert engine.problems == []


def clean_as(round_: Round, target: Path) -> Path:
    """Makes all passes of a round, each at its own time."""
    copy(round_.before, target)
    clock = SetClock(round_.passes[0].began_ms)
    with LogManager(str(target), SETTINGS, clock=clock) as engine:
        offset_map = engine.cleaner.new_map()
        for each in round_.passes:
            clock.value = round_.now_ms(each)
            candidate = engine.cleaner.candidate((each.topic, 0))
            assert candidate is not None
            assert candidate.plan.is_eligible
            engine.cleaner.clean(candidate, offset_map)
        assert [each.key[0] for each in engine.cleaner.due()] == []
        assert engine.problems == []
    return target


def check_parity(round_: Round, path: Path) -> None:
    """Checks that `path` equals what the broker's passes have left, byte by byte if
    uncompressed."""
    engine = Engine([str(path)])
    for topic in topics():
        expected, found = round_.after[topic], Cleaned.of(engine, topic)
        assert found.offset == expected.offset, topic
        assert found.batches == expected.batches, topic
        assert found.files.keys() == expected.files.keys(), topic
        if topic not in COMPRESSED:
            assert found.files == expected.files, topic
        assert found.mtimes_ms == expected.mtimes_ms, topic


def check_previews(round_: Round, path: Path) -> None:
    """Checks that previews of the log before predict which records are retained."""
    before, after = Engine([str(round_.before)], SETTINGS), Engine([str(path)])
    for topic, now_ms in {each.topic: round_.now_ms(each) for each in round_.passes}.items():
        view = before.log(topic, 0).view()
        config, broker = before.topic_config(topic).config, broker_config(before.configs)
        checkpoint = cleaner_offsets(before).get(topic)
        found = preview(PreviewRequest.of(view, config, broker, checkpoint, now_ms))
        there = offsets(view)
        assert np.array_equal(there[found.mask(there)], offsets(after.log(topic, 0).view()))


def offsets(view: View) -> Int64s:
    """Returns the offsets of all records."""
    parts = [part.offsets.copy() for part in view.read(isolation=Isolation.READ_UNCOMMITTED)]
    return np.concatenate(parts)


def check_that_much_was_done(rounds: Sequence[Round]) -> None:
    """Checks that the workload covers all cases; otherwise parity would prove little."""
    assert [each.topic for each in rounds[0].passes].count("many") == 2
    batches = [batch for each in rounds for done in each.after.values() for batch in done.batches]
    headers = [header for header, _ in batches]
    assert any(not header.record_count for header in headers)
    assert any(header.is_control and header.has_delete_horizon for header in headers)
    # Tombstones with a horizon were removed, but their batch remains.
    assert any(
        header.has_delete_horizon and records and all(record.value for record in records)
        for header, records in batches
    )
    assert {header.codec.kafka_name for header in headers} == set(CODECS)
    # Segments of an earlier pass were merged.
    assert len(rounds[1].after["plain"].files) < len(list((rounds[1].before / "plain-0").iterdir()))


def check_findings(log_dir: Path) -> None:
    """Checks that `kafkafs verify` finds nothing wrong."""
    verifier = Verifier(Engine([str(log_dir)]))
    assert list(verifier.directories()) == []
    for partition in verifier.partitions():
        assert list(verifier.partition(partition)) == []


def dump_complaints(log_dir: Path) -> list[str]:
    """Returns the complaints of Kafka's dump tool about all segments; of a cleaned log it reports
    gaps, and batches without records that lack their largest timestamp."""
    kinds = (".log", ".index", ".timeindex", ".txnindex")
    partitions = [log_dir / f"{topic}-0" for topic in topics()]
    paths = [path for each in partitions for path in each.iterdir() if path.suffix in kinds]
    done = run_dump_tool(sorted(paths), "--print-data-log", "--deep-iteration")
    assert done.returncode == 0
    assert "isvalid: false" not in done.stdout
    return sorted(done.stderr.replace(str(log_dir), "").splitlines())


def check_consumer(path: Path, start_broker: StartBroker, start_driver: StartDriver) -> None:
    """Checks that a broker opens what kafkafs has cleaned without warnings, and serves what kafkafs
    reads."""
    broker = start_broker(log_dirs=[path])
    driver = start_driver(broker)
    for isolation in (READ_COMMITTED, READ_UNCOMMITTED):
        reader = EngineReader([path], isolation)
        for topic in topics():
            consumed = without_epoch(driver.records(topic, 0, isolation))
            assert consumed == reader.records(topic), (topic, isolation)
    driver.close()
    broker.stop()
    assert warnings(broker) == []
