"""A session answers queries on topics and on what describes them, and reaches nothing else."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import kafkafs
from kafkafs.api import LogDirectories
from kafkafs.sql.dataset import TopicDataset
from kafkafs.sql.session import QueryError, Session
from kafkafs.storage import Engine
from kafkafs.storage.errors import CorruptError
from tests.cli.test_dump import damage


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("session") / "data"
    with kafkafs.open(path, writable=True) as log_directories:
        for topic, partitions in (("orders", 3), ("my.topic-x", 1), ("Twin", 1), ("twin", 1)):
            log_directories.create_topic(topic, partitions)
            for number in range(partitions):
                records = [
                    kafkafs.ProducerRecord(f'{{"n":{i}}}', key=f"k{i % 7}", timestamp=1000 * i)
                    for i in range(100)
                ]
                log_directories[topic, number].append(records)
        log_directories.create_topic("groups", 1)
    return path


@pytest.fixture
def session(log_dir: Path) -> Iterator[Session]:
    engine = Engine(str(log_dir))
    with Session(LogDirectories(engine), engine) as session:
        yield session
    engine.close()


def answer(session: Session, text: str) -> list[tuple[Any, ...]]:
    """Returns the rows of all results of a text."""
    rows: list[tuple[Any, ...]] = []
    for statement in session.statements(text):
        for batch in session.run(statement) or ():
            rows += zip(*(column.to_pylist() for column in batch.columns), strict=True)
    return rows


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT count(*) FROM orders", [(300,)]),
        ('SELECT count(*) FROM "my.topic-x" WHERE partition = 0', [(100,)]),
        (
            "SELECT partition, count(*), sum((decode(value)->>'n')::int) FROM orders"
            " GROUP BY 1 ORDER BY 1",
            [(0, 100, 4950), (1, 100, 4950), (2, 100, 4950)],
        ),
        ("SELECT count(*) FROM orders a JOIN orders b USING (key) WHERE a.partition < 0", [(0,)]),
        (
            "SELECT \"offset\" FROM orders WHERE timestamp >= '1970-01-01 00:01:38+00'"
            " AND partition = 1",
            [(98,), (99,)],
        ),
        ("FROM Twin SELECT count(DISTINCT topic), any_value(topic)", [(1, "Twin")]),
        ("SELECT any_value(topic) FROM twin", [("twin",)]),
        ("SELECT topic, partitions FROM topics WHERE topic LIKE 'o%'", [("orders", 3)]),
        ("SELECT sum(\"endOffset\") FROM partitions WHERE topic = 'orders'", [(300,)]),
        ('SELECT max("largestTimestamp")::VARCHAR FROM segments', [("1970-01-01 00:01:39+00",)]),
        ("SELECT count(*) FROM groups", [(0,)]),
        ('SELECT count("group") FROM kafkafs.groups', [(0,)]),
        ("FROM schemas; FROM transactions", []),
        ('CREATE TABLE mine AS FROM orders WHERE "offset" < 2; SELECT count(*) FROM mine', [(6,)]),
        (
            "BEGIN; SELECT count(*) FROM orders; ROLLBACK; SELECT 1 FROM orders LIMIT 1",
            [(300,), (1,)],
        ),
        ("PIVOT (SELECT partition p FROM orders) ON p USING count(*)", [(100, 100, 100)]),
    ],
)
def test_answers(session: Session, query: str, rows: list[tuple[Any, ...]]) -> None:
    assert answer(session, query) == rows


@pytest.mark.parametrize(
    "query",
    [
        "SELECT name FROM (SHOW TABLES)",
        "PRAGMA show_tables",
        "SELECT name FROM (DESCRIBE)",
        "SELECT viewname FROM pg_views",
        "SELECT view_name FROM duckdb_views() WHERE NOT internal",
    ],
)
def test_all_topics_are_listed(session: Session, query: str) -> None:
    found = {row[0] for row in answer(session, query)}
    assert {"orders", "my.topic-x", "groups", "topics"} <= found


def test_times_beyond_those_of_sql_are_the_last_one(tmp_path: Path) -> None:
    """A producer sent nanoseconds."""
    with kafkafs.open(tmp_path / "data", writable=True) as writable:
        writable.create_topic("t", 1, {"message.timestamp.after.max.ms": str((1 << 63) - 1)})
        for timestamp in (1_526_384_718_288, 1_526_384_718_288_000_000):
            writable["t", 0].append([kafkafs.ProducerRecord(b"", timestamp=timestamp)])
    engine = Engine(str(tmp_path / "data"))
    with Session(LogDirectories(engine), engine) as session:
        seen = "SELECT epoch_ms(timestamp) FROM t"
        assert answer(session, seen) == [(1_526_384_718_288,), (9_223_372_036_854_775,)]
        later = "SELECT count(*) FROM t WHERE timestamp > '2026-01-01 00:00+00'"
        assert answer(session, later) == [(1,)]
        largest = 'SELECT max(epoch_ms("largestTimestamp")) FROM segments'
        assert answer(session, largest) == [(9_223_372_036_854_775,)]
    engine.close()


def test_a_query_equals_the_same_in_python(session: Session, log_dir: Path) -> None:
    query = (
        "SELECT key, max(\"offset\"), count(*) FROM orders WHERE timestamp < '1970-01-01 00:01+00'"
    )
    found = answer(session, f"{query} GROUP BY key ORDER BY key")
    last: dict[bytes, list[int]] = {}
    with kafkafs.open(log_dir) as log_directories:
        for number in log_directories.topics["orders"]:
            for record in log_directories["orders", number].records():
                if record.timestamp < 60_000 and record.key is not None:
                    last.setdefault(record.key, []).append(record.offset)
    assert found == [(key, max(each), len(each)) for key, each in sorted(last.items())]


def test_the_plan_says_what_is_read(session: Session) -> None:
    query = 'EXPLAIN SELECT value FROM orders WHERE partition = 2 AND "offset" < 10'
    (_, plan), (_, scan) = answer(session, query)
    assert "Filters" in plan
    assert scan == "orders: reads 1 of 3 partitions, 10 of 300 offsets"


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "FROM ordrs",
            "there is no topic or table ordrs at line 1, column 6; did you mean orders?",
        ),
        ('FROM "TWIN"', "topics Twin and twin differ only by case"),
        ("SELECT offset FROM orders", 'the column is "offset", in double quotes'),
        ("SELECT 1;\nSELECT nothing", "Binder Error: .*nothing"),
        ("SELECT x FROM orders WHER y", "Parser Error: .* at line 1, column 27"),
        ("FROM my.topic-x", 'column .*; the name of topic my.topic-x needs double quotes: "my'),
        ("SET threads = 1", "locked; --files lets statements do this"),
        ("COPY orders TO 'x'", "disabled by configuration; --files lets statements do this"),
    ],
)
def test_errors_are_one_line(session: Session, query: str, message: str) -> None:
    with pytest.raises(QueryError, match=message) as caught:
        answer(session, query)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "query",
    [
        "FROM read_csv('/etc/passwd')",
        "FROM '/etc/passwd'",
        "FROM read_text('/etc/passwd')",
        "FROM read_blob('/etc/passwd')",
        "FROM read_json('/etc/passwd')",
        "FROM parquet_scan('/etc/passwd')",
        "FROM glob('/etc/*')",
        "FROM sniff_csv('/etc/passwd')",
        "FROM read_csv('https://localhost/x')",
        "SELECT getenv('HOME')",
        "COPY orders TO '{place}'",
        "COPY (SELECT 1) TO '/dev/stdout'",
        "EXPORT DATABASE '{place}'",
        "IMPORT DATABASE '/etc'",
        "ATTACH '{place}'",
        "INSTALL httpfs",
        "LOAD httpfs",
        "CREATE SECRET s (TYPE s3)",
        "SET enable_external_access = true",
        "SET lock_configuration = false",
        "RESET lock_configuration",
        "SET python_enable_replacements = true",
        "SET temp_directory = '{place}'",
        "SET threads = 1",
        "SET log_query_path = '{place}'",
        "PRAGMA profiling_output = '{place}'",
        "CALL enable_logging(storage = 'file', storage_path = '{place}')",
        "FROM local_table",
    ],
)
def test_no_other_file_or_object_can_be_reached(
    session: Session, tmp_path: Path, query: str
) -> None:
    local_table = [1]
    with pytest.raises(QueryError):
        answer(session, query.format(place=tmp_path / "out"))
    assert list(tmp_path.iterdir()) == []
    assert local_table == [1]


def test_files_can_be_allowed(log_dir: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    engine = Engine(str(log_dir))
    with Session(LogDirectories(engine), engine, files=True) as session:
        answer(session, f"COPY (SELECT count(*) AS n FROM orders) TO '{out}'")
        assert answer(session, f"FROM '{out}'") == [(300,)]
    engine.close()


def test_damage_is_an_error(damaged_log: Path) -> None:
    engine = Engine(str(damaged_log.parents[1]))
    with Session(LogDirectories(engine), engine) as session:
        with pytest.raises(CorruptError, match=r"t-0/0+\.log.*position"):
            answer(session, "SELECT count(DISTINCT value) FROM t")
        assert answer(session, "SELECT count(*) FROM t") == [(3,)]  # as the headers tell
        assert answer(session, 'SELECT count(*) FROM t WHERE "offset" < 0') == [(0,)]
        damage(damaged_log, 57, to=b"\0\0\0\0")  # the first batch's number of records
        with pytest.raises(CorruptError, match=r"t-0/0+\.log.*position 0"):
            answer(session, "SELECT count(*) FROM t")
        assert answer(session, "SELECT 1") == [(1,)]
    engine.close()


@pytest.mark.parametrize(
    ("error", "seen", "message"),
    [
        (MemoryError(), QueryError, "too little memory is left to decode records"),
        (LookupError("a defect"), LookupError, "a defect"),
    ],
)
def test_an_error_of_a_scan_is_not_one_of_duckdb(
    session: Session, monkeypatch: pytest.MonkeyPatch, error: Exception, seen: Any, message: str
) -> None:
    def fail(*_: object) -> Any:
        raise error

    monkeypatch.setattr(TopicDataset, "_records", fail)
    with pytest.raises(seen, match=f"^'?{message}'?$"):
        answer(session, "SELECT max(value) FROM orders")


def test_a_query_is_interrupted(session: Session) -> None:
    timer = threading.Timer(0.3, session.interrupt)
    began = time.monotonic()
    timer.start()
    with pytest.raises(QueryError, match="Interrupted"):
        answer(session, "SELECT count(*) FROM range(100_000_000_000) t(a), orders")
    assert time.monotonic() - began < 10
    assert answer(session, "SELECT count(*) FROM orders") == [(300,)]


def test_what_is_spilled_is_removed(log_dir: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    engine = Engine(str(log_dir))
    with Session(LogDirectories(engine), engine, files=True) as session:
        answer(session, "SET memory_limit = '60MB'; SET threads = 1")
        query = "SELECT a, repeat('x', 100) || a AS b FROM range(1_500_000) t(a) ORDER BY b"
        assert answer(
            session, f"SELECT count(*) FROM (SELECT row_number() OVER (ORDER BY b) FROM ({query}))"
        ) == [(1_500_000,)]
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []
    engine.close()


def test_no_space_for_what_is_spilled(log_dir: Path, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    engine = Engine(str(log_dir))
    with Session(LogDirectories(engine), engine, files=True) as session:
        answer(session, "SET memory_limit = '30MB'; SET threads = 1")
        answer(session, "SET max_temp_directory_size = '1MB'")
        query = "SELECT repeat('x', 100) || a AS b FROM range(1_500_000) t(a) ORDER BY b"
        with pytest.raises(QueryError, match=r"nor into .* are free\): set TMPDIR to") as caught:
            answer(session, f"SELECT max(b) FROM (SELECT b, row_number() OVER () FROM ({query}))")
        assert str(tmp_path) in str(caught.value)
    engine.close()
