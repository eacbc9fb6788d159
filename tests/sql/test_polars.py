"""Lazy frames of Polars answer as the whole table does."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import kafkafs
import kafkafs.polars
from kafkafs.polars import _ranges_of
from kafkafs.sql.dataset import TopicDataset
from kafkafs.storage import UnknownTopic
from tests.profiles import percent
from tests.sql.filters import combined

_RECORDS = 200
_START = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("polars") / "data"
    start = int(_START.timestamp() * 1000)
    with kafkafs.open(path, writable=True) as log_directories:
        log_directories.create_topic("orders", 3)
        for number in range(3):
            for first in range(0, _RECORDS, 20):
                records = [
                    kafkafs.ProducerRecord(f"v{i}".encode(), timestamp=start + 1000 * (i * 7 % 150))
                    for i in range(first, first + 20)
                ]
                log_directories["orders", number].append(records)
    return path


@pytest.fixture(scope="module")
def everything(log_dir: Path) -> pl.DataFrame:
    return kafkafs.polars.scan(log_dir, "orders").collect()


def test_the_frame_has_all_records(log_dir: Path, everything: pl.DataFrame) -> None:
    with kafkafs.open(log_dir) as log_directories:
        values = [record.value for part in log_directories for record in part.records()]
    assert everything["value"].to_list() == values
    assert everything.height == 3 * _RECORDS


def test_the_number_of_rows_is_pushed_down(log_dir: Path, everything: pl.DataFrame) -> None:
    frame = kafkafs.polars.scan(log_dir, "orders")
    assert frame.head(250).collect().equals(everything.head(250))
    assert frame.select(pl.len()).collect().item() == 3 * _RECORDS
    limited = frame.head(250).filter(pl.col("partition") == 1)
    assert limited.collect().height == 50


def test_an_unknown_topic_is_refused_at_once(log_dir: Path) -> None:
    with pytest.raises(UnknownTopic, match="did you mean orders"):
        kafkafs.polars.scan(log_dir, "order")


_integers = st.integers(-2, _RECORDS + 2)
_times = st.builds(lambda n: pl.lit(_START + timedelta(seconds=n)), st.integers(-2, 152))
_comparisons = st.one_of(
    st.builds(lambda n: pl.col("partition") == n, st.integers(-1, 4)),
    st.builds(lambda n: pl.col("offset") < n, _integers),
    st.builds(lambda n: n <= pl.col("offset"), _integers),
    st.builds(lambda n: pl.lit(n) > pl.col("offset"), _integers),
    st.builds(lambda some: pl.col("offset").is_in(some), st.lists(_integers, max_size=4)),
    st.builds(lambda some: pl.col("partition").is_in(some), st.lists(st.integers(-1, 4))),
    st.builds(lambda low, n: pl.col("offset").is_between(low, low + n), _integers, _integers),
    st.builds(lambda n: pl.col("value") == f"v{n}".encode(), _integers),
    st.builds(lambda at: pl.col("timestamp") > at, _times),
    st.builds(lambda at: pl.col("timestamp") <= at, _times),
)
_predicates = combined(_comparisons)


@given(predicate=_predicates)
@settings(max_examples=percent(40))
def test_any_predicate_equals_one_of_the_whole_table(
    log_dir: Path, everything: pl.DataFrame, predicate: pl.Expr
) -> None:
    columns = ["offset", "value"]
    found = kafkafs.polars.scan(log_dir, "orders").filter(predicate).select(columns).collect()
    assert found.equals(everything.filter(predicate).select(columns))


@pytest.mark.parametrize(
    ("predicate", "partitions"),
    [
        (pl.col("partition").is_in([0, 2]), [0, 2]),
        (pl.col("partition").is_in(list(range(1, 100))), [1, 2]),
        (pl.col("partition").is_between(1, 1), [1]),
        (pl.col("partition").is_in([1]) & pl.col("offset").is_in([5]), [1]),
    ],
)
def test_what_is_in_a_list_selects_what_is_read(
    log_dir: Path, predicate: pl.Expr, partitions: list[int]
) -> None:
    with kafkafs.open(log_dir) as log_directories:
        plan = TopicDataset(log_directories, "orders").plan(_ranges_of(predicate))
    assert [part.partition for part in plan.slices] == partitions
    assert plan.selected < plan.offsets
