"""Queries of DuckDB on topics answer as the Python API does."""

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkafs
import kafkafs.duckdb
from kafkafs.sql.dataset import TopicDataset
from kafkafs.storage.errors import UnknownTopic
from tests.profiles import percent
from tests.sql.filters import combined

_RECORDS = 300
_MILLISECONDS = pa.timestamp("ms", "UTC")


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "data"
    with kafkafs.open(path, writable=True) as log_directories:
        log_directories.create_topic("orders", 3)
        for number in range(3):
            records = [
                kafkafs.ProducerRecord(
                    f"v{i}".encode(), key=f"k{i % 7}".encode(), timestamp=1000 * i
                )
                for i in range(_RECORDS)
            ]
            log_directories["orders", number].append(records)
    return path


@pytest.fixture(scope="module")
def topic(log_dir: Path) -> Iterator[TopicDataset]:
    with kafkafs.open(log_dir) as log_directories:
        yield TopicDataset(log_directories, "orders")


@pytest.fixture(scope="module")
def everything(log_dir: Path) -> pa.Table:
    with kafkafs.open(log_dir) as log_directories:
        return pa.concat_tables(partition.scan().read_all() for partition in log_directories)


def test_all_columns_equal_those_of_scans(topic: TopicDataset, everything: pa.Table) -> None:
    assert topic.scanner().to_table().equals(everything)


@pytest.mark.parametrize(
    ("query", "answer"),
    [
        ("SELECT count(*) FROM orders", [(3 * _RECORDS,)]),
        (
            "SELECT partition, count(*) FROM orders GROUP BY 1 ORDER BY 1",
            [(0, 300), (1, 300), (2, 300)],
        ),
        ('SELECT value FROM orders WHERE partition = 1 AND "offset" = 299', [(b"v299",)]),
        ("SELECT count(*) FROM orders WHERE key = 'k3'::BLOB", [(3 * 43,)]),
        ("SELECT count(*) FROM orders WHERE epoch_ms(timestamp) < 5000", [(15,)]),
    ],
)
def test_queries(log_dir: Path, query: str, answer: list[tuple[object, ...]]) -> None:
    with duckdb.connect() as connection, kafkafs.duckdb.register(connection, log_dir, "orders"):
        assert connection.execute(query).fetchall() == answer


def test_topics_that_differ_by_case_are_refused(tmp_path: Path) -> None:
    with kafkafs.open(tmp_path / "data", writable=True) as log_directories:
        log_directories.create_topic("twin", 1)
        log_directories.create_topic("Twin", 1)
    with duckdb.connect() as connection, pytest.raises(ValueError, match="Twin and twin"):
        kafkafs.duckdb.register(connection, tmp_path / "data")


def test_a_filter_selects_the_ranges_that_are_read(topic: TopicDataset) -> None:
    [found] = topic.ranges((pc.field("partition") == 2) & (pc.field("offset") == 150))
    assert found.partition == 2
    assert found.start is not None
    assert found.end is not None
    assert found.start <= 150 < found.end < found.start + 10
    assert [part.partition for part in topic.ranges()] == [0, 1, 2]


_integers = st.integers(-2, _RECORDS + 2)
_comparisons = st.one_of(
    st.builds(lambda n: pc.field("partition") == n, st.integers(-1, 4)),
    st.builds(lambda n: pc.field("offset") < n, _integers),
    st.builds(lambda n: pc.field("offset") >= n, _integers),
    st.builds(lambda some: pc.field("offset").isin(some), st.lists(_integers, max_size=4)),
    st.builds(lambda n: pc.field("key") == f"k{n}".encode(), st.integers(0, 8)),
    st.builds(lambda n: pc.field("timestamp") > pa.scalar(1000 * n, _MILLISECONDS), _integers),
)
_filters = combined(_comparisons, max_leaves=6)


@given(filter=_filters)
@settings(max_examples=percent(40))
def test_any_filter_equals_one_of_the_whole_table(
    topic: TopicDataset, everything: pa.Table, filter: pc.Expression
) -> None:
    columns = ["value", "partition", "offset"]
    found = topic.scanner(columns, filter).to_table()
    assert found.equals(everything.filter(filter).select(columns))


def test_only_the_named_topics_and_no_keys_to_count(
    log_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[list[str]] = []
    batches = TopicDataset.batches

    def noted(self: TopicDataset, columns: list[str], *rest: object) -> Iterator[pa.RecordBatch]:
        read.append(columns)
        return batches(self, columns, *rest)

    monkeypatch.setattr(TopicDataset, "batches", noted)
    connection = duckdb.connect()
    with kafkafs.duckdb.register(connection, log_dir, ["orders"]):
        counted = connection.execute("SELECT count(*) FROM orders").fetchall()
        assert (counted, read) == ([(3 * _RECORDS,)], [["partition"]])
        columns = [name for name, *_ in connection.execute("DESCRIBE orders").fetchall()]
        assert columns[:3] == ["key", "value", "topic"]
    for topics in ([], ["none"]):
        other = duckdb.connect()
        if topics:
            with pytest.raises(UnknownTopic):
                kafkafs.duckdb.register(other, log_dir, topics)
        else:
            kafkafs.duckdb.register(other, log_dir, topics).close()
        with pytest.raises(duckdb.CatalogException):
            other.execute("FROM orders")
