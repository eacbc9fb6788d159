"""Repeats what a real broker's cleaner made of 16 partitions, twice, and compares the results.

Every file of every segment must be identical byte for byte. Only recompressed batches may differ,
because compressors do; of these the header and the records are compared.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from kafkafs.storage.cleaner.cleaning import CleanedSink, CleaningResult, clean
from kafkafs.storage.cleaner.offset_map import OffsetMap
from kafkafs.storage.cleaner.plan import CleanPlan, LogToClean, plan, state_of
from kafkafs.storage.cleaner.reading import read_chunks
from kafkafs.storage.cleaner.record_filter import RecordRetention
from kafkafs.storage.config.kafka import Configs, TopicConfig, topic_config
from kafkafs.storage.format.layout import DELETE_HORIZON_MASK
from kafkafs.storage.format.records import batch as b
from kafkafs.storage.format.records.batch import BatchHeader
from kafkafs.storage.format.records.columns import Columns, Record
from kafkafs.storage.io.durable import WritableDirFd, replaced
from kafkafs.storage.log.load.last_producers import producers_of
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from tests import answers
from tests.cleaning import CONFIG, Exchange, log_to_clean
from tests.reading import open_view, read
from tests.writing import Unsynced

PAIRS = {"compact-before": "compact-after", "compact-before2": "compact-after2"}
#: Times of the passes, roughly, by the broker's log, for partitions without a delete horizon.
PASSES_MS = {"compact-before": 1_795_248_985_500, "compact-before2": 1_795_249_056_000}
TOPICS = sorted(t for t in answers.topic_configs("compact-before") if t.startswith("cmp-"))
CASES = [(before, topic) for before in PAIRS for topic in TOPICS]
#: Topics with batches, some or all, that Java's compressors compress differently from ours.
RECOMPRESSED = {"cmp-append", "cmp-lz4", "cmp-recompress", "cmp-snappy", "cmp-txn", "cmp-txn-short"}
SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


@dataclass(frozen=True)
class Cleaned:
    """A partition after our pass, with the pass's result."""

    directory: Path
    planned: CleanPlan
    checkpoint: int | None
    result: CleaningResult | None


def config_of(corpus: str, topic: str) -> TopicConfig:
    return topic_config(Configs(topic=answers.topic_configs(corpus)[topic])).config


def batches(view: View) -> Iterator[tuple[int, BatchHeader, Columns | None]]:
    """Yields every batch with the base offset of its segment, and its records, if any."""
    for segment in view.segments:
        for chunk in read_chunks(segment, 0, 1 << 20):
            for header in list(chunk.table):
                columns = view.batch(segment, header) if header.record_count else None
                yield segment.base_offset, header, columns


def horizons(view: View) -> set[int]:
    return {h.base_timestamp for _, h, _ in batches(view) if h.attributes & DELETE_HORIZON_MASK}


@pytest.fixture(scope="module")
def ours(
    corpus: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str, str], Cleaned]:
    """Returns `ours(corpus, topic)`, which cleans a copy at the time of Kafka's pass."""

    @cache
    def copied(before: str) -> Path:
        target = tmp_path_factory.mktemp("cleaned") / before
        subprocess.run(["cp", "-a", "--sparse=always", corpus(before), target], check=True)
        return target

    @cache
    def cleaned(before: str, topic: str) -> Cleaned:
        kafkas = horizons(Engine(str(corpus(PAIRS[before]))).log(topic, 0).view())
        return pass_over(copied(before), before, topic, kafkas)

    return cleaned


def pass_over(path: Path, before: str, topic: str, kafkas: set[int]) -> Cleaned:
    engine = Engine(str(path))
    view, settings = engine.log(topic, 0).view(), config_of(before, topic)
    horizons_made = kafkas - horizons(view)
    (now,) = {h - settings.delete_retention_ms for h in horizons_made} or {PASSES_MS[before]}
    checkpoint = engine.partition_dir(topic, 0).log_dir.cleaner_offsets.get((topic, 0))
    planned = plan(state_of(view, checkpoint), settings, now)
    directory = path / f"{topic}-0"
    if not planned.is_eligible:
        return Cleaned(directory, planned, checkpoint, None)
    log = LogToClean(
        view,
        settings,
        planned.first_dirty,
        planned.first_uncleanable,
        now,
        producers_of(view, now).states,
        lambda: None,
        lambda done, total: None,
    )
    sink = CleanedSink(WritableDirFd(str(directory)), settings, Exchange(directory))
    with replaced(Unsynced()):
        result = clean(log, OffsetMap(1 << 20), sink)
    return Cleaned(directory, planned, checkpoint, result)


def records(columns: Columns | None) -> list[Record]:
    return [] if columns is None else [columns.record(row) for row in range(len(columns))]


def bare(header: BatchHeader) -> list[int]:
    """Returns the header fields that do not depend on the compressor."""
    return [f for n, f in enumerate(header) if n not in (b.POSITION, b.SIZE, b.CRC)]


def plain(record: Record) -> tuple[object, ...]:
    return record.offset, record.timestamp, record.key, record.value, record.headers


@pytest.mark.parametrize(("before", "topic"), CASES)
def test_the_same_as_kafkas_cleaner(
    before: str, topic: str, ours: Callable[[str, str], Cleaned], corpus: Callable[[str], Path]
) -> None:
    cleaned, kafkas = ours(before, topic), Engine(str(corpus(PAIRS[before])))
    checkpoint = kafkas.partition_dir(topic, 0).log_dir.cleaner_offsets[(topic, 0)]
    if cleaned.result is None:
        assert checkpoint == cleaned.checkpoint  # Kafka did not clean it either
    else:
        assert checkpoint == cleaned.result.end_offset
    view = kafkas.log(topic, 0).view()
    first = view.segments[0].base_offset  # retention deleted everything before it
    after = corpus(PAIRS[before]) / f"{topic}-0"
    names = {
        path.name
        for directory in (cleaned.directory, after)
        for path in directory.iterdir()
        if path.suffix in SUFFIXES and int(path.stem) >= first
    }
    different = {
        Path(name).suffix
        for name in names
        if (cleaned.directory / name).read_bytes() != (after / name).read_bytes()
    }
    assert different <= ({".log", ".index", ".timeindex"} if topic in RECOMPRESSED else set())
    mine = Engine(str(cleaned.directory.parent)).log(topic, 0).view()
    left = [batch for batch in batches(mine) if batch[0] >= first]
    for one, other in zip(left, batches(view), strict=True):
        assert (one[0], bare(one[1])) == (other[0], bare(other[1]))
        assert [plain(r) for r in records(one[2])] == [plain(r) for r in records(other[2])]


@pytest.mark.parametrize(("before", "topic"), CASES)
def test_the_result_tells_what_went_and_what_stayed(
    before: str, topic: str, ours: Callable[[str, str], Cleaned], corpus: Callable[[str], Path]
) -> None:
    cleaned = ours(before, topic)
    if cleaned.result is None:
        return
    below = cleaned.planned.first_uncleanable
    was = below_offset(Engine(str(corpus(before))), topic, below)
    left = below_offset(Engine(str(cleaned.directory.parent)), topic, below)
    result = cleaned.result
    assert sum(result.counts.values()) == sum(header.record_count for _, header in was)
    assert result.counts[RecordRetention.KEPT] == sum(header.record_count for _, header in left)
    assert result.bytes_before == sum(header.size for _, header in was)
    assert result.bytes_after == sum(header.size for _, header in left)
    view = Engine(str(corpus(before))).log(topic, 0).view()
    bases = [segment.base_offset for segment in view.segments if segment.base_offset < below]
    assert result.segments_before == len(bases)


#: Logs that no cleaner has processed, in all formats and codecs, also mixed.
OTHERS = [
    (corpus, topic)
    for corpus in ("kafka28", "kafka43-clean")
    for topic, partition in answers.partitions_with_records(corpus)
    if partition == 0 and not topic.startswith(("__", "a-b."))
]


@pytest.mark.parametrize(("name", "topic"), OTHERS)
def test_of_each_key_the_newest_committed_record_stays(
    name: str, topic: str, corpus: Callable[[str], Path], tmp_path: Path
) -> None:
    directory = tmp_path / f"{topic}-0"
    shutil.copytree(corpus(name) / directory.name, directory)
    view = open_view(directory)
    active = view.segments[-1].base_offset
    before = read(view)
    newest = {r.key: r.offset for r in before if r.offset < active}
    log = log_to_clean(view, 0, active)
    sink = CleanedSink(WritableDirFd(str(directory)), CONFIG, Exchange(directory))
    with replaced(Unsynced()):
        clean(log, OffsetMap(1 << 20), sink)
    assert read(open_view(directory)) == [
        r for r in before if r.offset >= active or (r.key is not None and newest[r.key] == r.offset)
    ]


def below_offset(engine: Engine, topic: str, offset: int) -> list[tuple[int, BatchHeader]]:
    """Returns the batches of the segments that begin below an offset."""
    view = engine.log(topic, 0).view()
    return [(base, header) for base, header, _ in batches(view) if base < offset]
