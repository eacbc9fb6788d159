"""What a scan of a topic spares to read can hold no record that the filter selects."""

import json
import random
from collections.abc import Collection, Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkafs
from kafkafs.api.arrow import ArrowForm
from kafkafs.sql.dataset import TopicDataset
from kafkafs.storage import Columns, CorruptError, DecodedColumns, processors
from kafkafs.storage.format.layout import CRC_COVERS_FROM, RECORD_BATCH_OVERHEAD
from tests.cli.test_dump import damage
from tests.profiles import percent
from tests.sql.filters import combined

_RECORDS = 600
_MILLISECONDS = pa.timestamp("ms", "UTC")
_CONFIGS = {"internal.segment.bytes": "4000", "index.interval.bytes": "200"}
#: The topics: times ascend, are in disorder, or are often missing.
_TOPICS = ("ascending", "shuffled", "missing")
_ISOLATIONS = ("read_committed", "read_uncommitted")


def _timestamp(topic: str, number: int, some: random.Random) -> int:
    if topic == "ascending":
        return 1000 * number
    if topic == "missing" and some.random() < 0.5:
        return -1
    return 1000 * some.randrange(_RECORDS)


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Topics of many segments, with transactions, some of them aborted, and compressed batches."""
    path = tmp_path_factory.mktemp("dataset") / "data"
    some = random.Random(7)
    with kafkafs.open(path, writable=True, configs=_CONFIGS) as log_directories:
        for topic in _TOPICS:
            log_directories.create_topic(topic, 2)
            for first in range(0, _RECORDS, 30):
                records = [
                    kafkafs.ProducerRecord(b"v" * 40, timestamp=_timestamp(topic, i, some))
                    for i in range(first, first + 30)
                ]
                log_directories[topic, 0].append(records, compression=some.choice(["none", "lz4"]))
                try:
                    with log_directories.transaction() as transaction:
                        transaction.append(topic, 1, records)
                        if first % 90 == 0:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    continue
    return path


@pytest.fixture(scope="module")
def log_directories(log_dir: Path) -> Iterator[kafkafs.LogDirectories]:
    with kafkafs.open(log_dir) as found:
        yield found


@pytest.fixture(scope="module")
def tables(log_directories: kafkafs.LogDirectories) -> dict[tuple[str, str], pa.Table]:
    return {
        (topic, level): pa.concat_tables(
            log_directories[topic, number].scan(isolation=level).read_all() for number in range(2)
        )
        for topic in _TOPICS
        for level in _ISOLATIONS
    }


_integers = st.integers(-2, _RECORDS + 2)
_time_bounds = st.builds(lambda n: pa.scalar(1000 * n, _MILLISECONDS), _integers)
_comparisons = st.one_of(
    st.builds(lambda n: pc.field("partition") == n, st.integers(-1, 2)),
    st.builds(lambda n: pc.field("offset") < n, _integers),
    st.builds(lambda n: pc.field("offset") >= n, _integers),
    st.builds(lambda at: pc.field("timestamp") > at, _time_bounds),
    st.builds(lambda at: pc.field("timestamp") >= at, _time_bounds),
    st.builds(lambda at: pc.field("timestamp") < at, _time_bounds),
    st.builds(lambda at: pc.field("timestamp") == at, _time_bounds),
    st.builds(lambda some: pc.field("timestamp").isin(some), st.lists(_time_bounds, max_size=3)),
    st.just(pc.field("timestamp").is_null()),
)
_filters = combined(_comparisons)


@given(topic=st.sampled_from(_TOPICS), level=st.sampled_from(_ISOLATIONS), filter=_filters)
@settings(max_examples=percent(80))
def test_any_filter_equals_one_of_the_whole_table(
    log_directories: kafkafs.LogDirectories,
    tables: dict[tuple[str, str], pa.Table],
    topic: str,
    level: str,
    filter: pc.Expression,
) -> None:
    dataset = TopicDataset(log_directories, topic, isolation=level)
    columns = ["partition", "offset"]
    found = dataset.scanner(columns, filter).to_table()
    assert found.equals(tables[topic, level].filter(filter).select(columns))


@pytest.mark.parametrize("topic", _TOPICS)
@pytest.mark.parametrize("level", _ISOLATIONS)
def test_headers_count_what_is_read(
    log_directories: kafkafs.LogDirectories,
    tables: dict[tuple[str, str], pa.Table],
    topic: str,
    level: str,
) -> None:
    dataset = TopicDataset(log_directories, topic, isolation=level)
    found = dataset.scanner(["partition", "topic"]).to_table()
    assert found.equals(tables[topic, level].select(["partition", "topic"]))
    assert found.num_rows == (1200 if level == "read_uncommitted" else 990)


def test_a_count_below_the_first_record_and_within_batches(
    log_directories: kafkafs.LogDirectories, tables: dict[tuple[str, str], pa.Table]
) -> None:
    [_, view] = log_directories.views("shuffled")
    offsets = tables["shuffled", "read_committed"].filter(pc.field("partition") == 1)["offset"]
    for start, end in ((None, None), (7, 400), (45, 46), (300, None), (None, 29), (5000, None)):
        expected = [
            offset
            for offset in offsets.to_pylist()
            if (start is None or offset >= start) and (end is None or offset < end)
        ]
        counts = [each for each in view.record_counts(start, end) if isinstance(each, int)]
        assert sum(counts) == len(expected)


@pytest.mark.parametrize("at", range(CRC_COVERS_FROM, RECORD_BATCH_OVERHEAD))
def test_a_wrong_header_never_changes_a_count(tmp_path: Path, at: int) -> None:
    """In a log as a producer writes it, of batches with several records each."""
    path = tmp_path / "data"
    with kafkafs.open(path, writable=True) as writable:
        writable.create_topic("t", 1)
        for number in range(3):
            writable["t", 0].append([kafkafs.ProducerRecord(b"value")] * (number + 2))
    log = path / "t-0" / f"{0:020}.log"
    with log.open("r+b") as file:
        file.seek(at)
        before = file.read(1)[0]
    for bit in range(8):
        damage(log, at, to=bytes([before ^ 1 << bit]))
        with kafkafs.open(path) as reading:
            batches = TopicDataset(reading, "t").batches(["partition"])
            try:
                assert sum(map(len, batches)) == 9
            except CorruptError:
                continue


def test_what_compaction_leaves_is_verified_to_be_counted(tmp_path: Path) -> None:
    """Its batches have fewer records than offsets, so that nothing confirms their number."""
    path = tmp_path / "data"
    configs = {"internal.segment.bytes": "2000", "cleanup.policy": "compact"}
    with kafkafs.open(path, writable=True, configs=configs) as writable:
        writable.create_topic("t", 1)
        for _ in range(30):
            keys = [b"%d" % (number % 7) for number in range(20)]
            writable["t", 0].append([kafkafs.ProducerRecord(b"v" * 20, key=key) for key in keys])
        assert writable.compact("t", force=True)
    with kafkafs.open(path) as reading:
        dataset = TopicDataset(reading, "t")
        count = sum(map(len, dataset.batches(["partition"])))
        assert count == reading["t", 0].scan().read_all().num_rows < 600
    log = sorted((path / "t-0").glob("*.log"))[0]
    damage(log, RECORD_BATCH_OVERHEAD + 10, to=b"\xff\xff")
    with kafkafs.open(path) as reading, pytest.raises(CorruptError, match="position 0"):
        list(TopicDataset(reading, "t").batches(["partition"]))


def test_many_decoded_columns_are_made_of_few_records_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a whole unit would not fit into memory."""
    fields = [{"name": f"f{number}", "type": "boolean"} for number in range(1000)]
    schema = tmp_path / "wide.avsc"
    schema.write_text(json.dumps({"type": "record", "name": "Wide", "fields": fields}))
    values = [bytes([number % 2]) * len(fields) for number in range(500)]
    with kafkafs.open(tmp_path / "data", writable=True) as writable:
        writable.create_topic("t", 2)
        writable["t", 0].append(values)
        writable["t", 1].append(values[:3])
    monkeypatch.setattr("kafkafs.storage.schemas.typed.decoder._MAX_CELLS", 1003 * 50)
    made: list[int] = []
    arrays = DecodedColumns.arrays

    def counted(self: DecodedColumns, columns: Columns, names: Collection[str]) -> object:
        made.append(len(columns))
        return arrays(self, columns, names)

    monkeypatch.setattr(DecodedColumns, "arrays", counted)
    with kafkafs.open(tmp_path / "data", configs={"kafkafs.schemas": f"t={schema}"}) as reading:
        batches = TopicDataset(reading, "t", encoded=True).batches(["decoded", "partition"])
        rows = next(batches)["decoded"].to_pylist()
        assert len(made) <= processors() + 2
        for batch in batches:
            rows += batch["decoded"].to_pylist()
        assert batch["partition"].to_pylist() == [1] * 3
    assert max(made) <= 50
    assert [each["f7"] for each in rows] == [bool(value[7]) for value in (*values, *values[:3])]


def test_batches_wait_in_bounded_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A unit of the log may be compressed a hundredfold."""
    value = bytes(1 << 16)
    with kafkafs.open(tmp_path / "data", writable=True) as writable:
        writable.create_topic("t", 3)
        for number in range(3):
            for _ in range(20):
                writable["t", number].append([value] * 10, compression="zstd")
    monkeypatch.setattr("kafkafs.sql.dataset._HELD_BYTES", 1 << 20)
    monkeypatch.setattr("kafkafs.storage.log.read.scan.RUN_BYTES", 1)
    made: list[int] = []
    batch = ArrowForm.batch

    def counted(self: ArrowForm, piece: Columns, topic: str, partition: int) -> pa.RecordBatch:
        made.append(len(piece))
        return batch(self, piece, topic, partition)

    monkeypatch.setattr(ArrowForm, "batch", counted)
    with kafkafs.open(tmp_path / "data") as reading:
        batches = TopicDataset(reading, "t").batches(["value", "partition"])
        rows = len(next(batches))
        assert sum(made) < 300
        found = pa.Table.from_batches(list(batches))
    assert rows + found.num_rows == 600
    assert set(found["value"].to_pylist()) == {value}
    assert found["partition"].to_pylist() == sorted(found["partition"].to_pylist())


def test_times_select_ranges(log_directories: kafkafs.LogDirectories) -> None:
    """Of partition 0: markers of the transactions in the other have the time of this test."""
    dataset = TopicDataset(log_directories, "ascending")
    in_first = pc.field("partition") == 0
    since = pc.field("timestamp") >= pa.scalar(1000 * 500, _MILLISECONDS)
    plan = dataset.plan(since & in_first)
    [found] = plan.slices
    assert found.start is not None
    assert 450 < found.start <= 500
    assert (plan.partitions, plan.selected) == (2, _RECORDS - found.start)
    never = pc.field("timestamp") > pa.scalar(1000 * _RECORDS, _MILLISECONDS)
    assert dataset.plan(never & in_first).selected == 0


def test_a_damaged_batch_ends_a_scan(damaged_log: Path) -> None:
    with kafkafs.open(damaged_log.parents[1]) as reading:
        dataset = TopicDataset(reading, "t")
        with pytest.raises(CorruptError, match=r"\.log.*position"):
            list(dataset.batches(["value"]))
        damage(damaged_log, 16, to=b"\x09")  # the magic of the first batch: no header to count by
        with pytest.raises(CorruptError, match=r"\.log.*position 0"):
            list(TopicDataset(reading, "t").batches(["partition"]))
