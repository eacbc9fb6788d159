"""`kafkafs sql` answers statements in each format, on terminals and in pipes, and in its shell."""

import csv
import io
import json
import os
import re
import signal
import stat
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import kafkafs as api
from kafkafs.cli import installation
from kafkafs.cli.query.box import box
from kafkafs.cli.query.running import interruptible, opened
from tests import answers
from tests.cli.results import Kafkafs, Shell, rows_of, stderr_of, stdout_of
from tests.cli.terminal import Terminal
from tests.cli.test_main import imported_by
from tests.waiting import PATIENCE_SECONDS

_ALL = 'SELECT key, value, partition, "offset", timestamp FROM orders ORDER BY ALL'


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("sql") / "data"
    with api.open(path, writable=True) as log_directories:
        log_directories.create_topic("orders", 2)
        values = ["plain", 'with "quotes", | and\nlines', b"\xff\x00", None, "é"]
        for number in range(2):
            records = [
                api.ProducerRecord(value, key=f"k{i}", timestamp=1000 * i)
                for i, value in enumerate(values)
            ]
            log_directories["orders", number].append(records)
    return path


@pytest.fixture(scope="module")
def rows(log_dir: Path) -> pa.Table:
    with api.open(log_dir) as log_directories:
        columns = ["key", "value", "partition", "offset", "timestamp"]
        tables = [part.scan(columns=columns).read_all() for part in log_directories]
    return pa.concat_tables(tables).sort_by([(name, "ascending") for name in columns])


def test_values_are_decoded_by_the_registry_or_a_file(
    kafkafs: Kafkafs, corpus: Callable[[str], Path], tmp_path: Path
) -> None:
    """Confluent's deserializers gave these answers."""
    lines = (answers.directory("schemas43") / "decoded.jsonl").read_text().splitlines()
    values = [each["value"] for each in map(json.loads, lines) if each["topic"] == "s-avro"]
    expected = Counter(each["value"]["customer"] for each in values if each["kind"] == "avro")
    query = (
        'SELECT decoded.customer AS customer, count(*) AS count FROM "s-avro"'
        " WHERE decoded IS NOT NULL AND decodeError IS NULL GROUP BY 1"
    )
    data = corpus("schemas43")
    found = rows_of(kafkafs("sql", data, query, "--format", "jsonl"))
    assert {row["customer"]: row["count"] for row in found} == expected

    (tmp_path / "n.avsc").write_text('"int"')
    with api.open(tmp_path / "data", writable=True) as log_directories:
        log_directories.create_topic("plain", 1)
        log_directories["plain", 0].append([api.ProducerRecord(each) for each in (b"\x54", b"")])
    given = ("--schema", f"plain={tmp_path / 'n.avsc'}")
    query = "SELECT decoded, decodeError IS NULL AS fits FROM plain ORDER BY 1"
    found = rows_of(kafkafs("sql", *given, tmp_path / "data", query, "--format", "jsonl"))
    assert found == [{"decoded": 42, "fits": True}, {"decoded": None, "fits": False}]
    unknown = kafkafs("sql", data, 'SELECT decoded FROM "s-hard"')
    assert unknown.exit_code == 1
    assert "the schema of its values is unknown: there is no subject s-hard-value" in unknown.stderr
    refused = kafkafs("sql", "--schema", f"plain={tmp_path}/no.avsc", tmp_path / "data", query)
    assert refused.exit_code == 2
    assert "no.avsc: no such file" in refused.stderr


def test_csv_is_the_format_in_a_pipe(kafkafs: Kafkafs, log_dir: Path) -> None:
    found = stdout_of(kafkafs("sql", log_dir, _ALL))
    header, *lines = csv.reader(io.StringIO(found))
    assert header == ["key", "value", "partition", "offset", "timestamp"]
    assert lines[0] == ["k0", "plain", "0", "0", "1970-01-01T00:00:00Z"]
    assert [line[1] for line in lines[2::2]] == [
        'with "quotes", | and\nlines', "0xff00", "", "é"
    ]  # fmt: skip
    assert len(lines) == 10


def test_json(kafkafs: Kafkafs, log_dir: Path) -> None:
    found = rows_of(kafkafs("sql", log_dir, _ALL, "--format", "jsonl"))
    assert found == json.loads(stdout_of(kafkafs("sql", log_dir, _ALL, "--format", "json")))
    assert [row["value"] for row in found[::2]] == [
        "plain",
        'with "quotes", | and\nlines',
        {"base64": "/wA="},
        None,
        "é",
    ]
    assert found[2]["timestamp"] == "1970-01-01T00:00:01Z"
    empty = kafkafs("sql", log_dir, "FROM orders WHERE partition > 7", "--format", "json")
    assert stdout_of(empty) == "[]\n"


@pytest.mark.parametrize("form", ["arrow", "parquet"])
def test_files_of_columns_hold_the_result(
    kafkafs: Kafkafs, log_dir: Path, rows: pa.Table, tmp_path: Path, form: str
) -> None:
    path = tmp_path / f"out.{form}"
    path.write_text("old")
    assert stdout_of(kafkafs("sql", log_dir, _ALL, "-o", path)) == ""
    read = pq.read_table if form == "parquet" else lambda each: pa.ipc.open_stream(each).read_all()
    found = read(path)
    assert found.to_pylist() == rows.to_pylist()
    assert os.listdir(tmp_path) == [path.name]


def test_a_file_is_replaced_only_by_a_complete_one(
    kafkafs: Kafkafs, log_dir: Path, tmp_path: Path
) -> None:
    path = tmp_path / "out.json"
    path.write_text("old")
    error = stderr_of(kafkafs("sql", log_dir, "SELECT 1; SELECT 2", "-o", path))
    assert error == "kafkafs: --format json holds one result, not several\n"
    stderr_of(kafkafs("sql", log_dir, "SELECT 1; FROM nowhere", "-o", path, "--format", "csv"))
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == [path.name]


def test_markdown(kafkafs: Kafkafs, log_dir: Path) -> None:
    query = 'SELECT value, partition FROM orders WHERE "offset" = 1'
    found = stdout_of(kafkafs("sql", log_dir, query, "--format", "markdown"))
    row = 'with "quotes", \\| and<br>lines'
    assert found == f"| value | partition |\n| --- | --- |\n| {row} | 0 |\n| {row} | 1 |\n"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("TIMESTAMP '29000-01-02'", "29000-01-02T00:00:00"),
        ("TIMESTAMPTZ '29000-01-02 03:04:05.5'", "29000-01-02T03:04:05.500000Z"),
        ("DATE '0044-03-15 (BC)'", "-0043-03-15"),
        ("'infinity'::TIMESTAMP", "infinity"),
        ("'-infinity'::DATE", "-infinity"),
        ("TIMESTAMP_NS '2026-01-02 03:04:05.123456789'", "2026-01-02T03:04:05.123456789"),
        ("[DATE '29000-01-02', NULL]", ["29000-01-02", None]),
        ("{a: {b: DATE '29000-01-02'}}", {"a": {"b": "29000-01-02"}}),
        ("map {1: DATE '29000-01-02'}", {"1": "29000-01-02"}),
        ("[DATE '29000-01-02']::DATE[1]", ["29000-01-02"]),
    ],
)
def test_times_that_python_does_not_have(
    kafkafs: Kafkafs, log_dir: Path, value: str, text: object
) -> None:
    query = f"SELECT {value} AS at"
    assert rows_of(kafkafs("sql", log_dir, query, "--format", "jsonl")) == [{"at": text}]
    [_, [cell]] = csv.reader(io.StringIO(stdout_of(kafkafs("sql", log_dir, query))))
    assert cell == (text if isinstance(text, str) else json.dumps(text))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("INTERVAL '1.5 seconds'", "00:00:01.5"),
        ("INTERVAL '0 seconds'", "00:00:00"),
        ("INTERVAL '-25 months 1 day'", "-2 years -1 month 1 day"),
        ("INTERVAL '2 days -3 microseconds'", "2 days -00:00:00.000003"),
        ("{a: [INTERVAL '100 hours']}", {"a": ["100:00:00"]}),
        ("map {'a': 1, 'b': NULL}", {"a": 1, "b": None}),
        ("map {[1]: {'a': map {}}}", {"[1]": {"a": {}}}),
        ("['nan'::DOUBLE, '-inf'::FLOAT, 0.5]", ["NaN", "-Infinity", 0.5]),
        ("[union_value(a := 1)]", [1]),
    ],
)
def test_values_are_those_of_decoded_lines_and_of_duckdb(
    kafkafs: Kafkafs, log_dir: Path, value: str, text: object
) -> None:
    query = f"SELECT {value} AS v"
    assert rows_of(kafkafs("sql", log_dir, query, "--format", "jsonl")) == [{"v": text}]
    [_, [cell]] = csv.reader(io.StringIO(stdout_of(kafkafs("sql", log_dir, query))))
    assert cell == (text if isinstance(text, str) else json.dumps(text))


def test_intervals_are_text_in_parquet(kafkafs: Kafkafs, log_dir: Path, tmp_path: Path) -> None:
    """pyarrow has no form for them: DuckDB's own text is expected."""
    path = tmp_path / "out.parquet"
    query = """
        SELECT n, CASE WHEN n % 3 > 0 THEN {0} END AS a,
            CASE WHEN n % 5 > 0 THEN {{x: {0}, y: [{0}, NULL]}} END AS b,
            CASE WHEN n % 2 > 0 THEN map {{n: {0}}} END AS c,
            CASE n % 4 WHEN 0 THEN [] WHEN 1 THEN [{{z: {0}}}] END AS d,
        FROM range(20000) t(n)"""
    stdout_of(kafkafs("sql", log_dir, query.format("to_hours(n)"), "-o", path))
    found = pq.read_table(path)
    stdout_of(kafkafs("sql", log_dir, query.format("to_hours(n)::VARCHAR"), "-o", path))
    assert found.equals(pq.read_table(path))
    for value in ("[to_days(1)]::INTERVAL[1]", "union_value(a := 1)"):
        error = stderr_of(kafkafs("sql", log_dir, f"SELECT {value}", "-o", path))
        assert "; cast such a column, as to VARCHAR\n" in error


def test_a_record_may_have_any_timestamp(kafkafs: Kafkafs, tmp_path: Path) -> None:
    configs = {"log.message.timestamp.after.max.ms": str(2**63 - 1)}
    with api.open(tmp_path / "data", writable=True, configs=configs) as log_directories:
        log_directories.create_topic("t", 1)
        latest = 253_402_300_800_000  # the first millisecond of the year 10000
        log_directories["t", 0].append([api.ProducerRecord(b"v", timestamp=latest)])
    found = kafkafs("sql", tmp_path / "data", "SELECT timestamp FROM t", "--format", "jsonl")
    assert rows_of(found) == [{"timestamp": "10000-01-01T00:00:00Z"}]


def test_a_query_imports_only_what_it_needs(log_dir: Path, environment: Mapping[str, str]) -> None:
    """pandas alone, which pyarrow would import, takes as long as everything that it needs."""
    found = imported_by(
        environment, "sql", log_dir, "SELECT partition, count(*) FROM orders GROUP BY 1"
    )
    assert {"duckdb", "pyarrow.dataset"} <= found
    heavy = {"pandas", "prompt_toolkit", "pyarrow.parquet", "kafkafs.storage.schemas.catalog"}
    heavy |= {"kafkafs.storage.operations.groups", "kafkafs.storage.operations.transactions"}
    assert not heavy & found


def test_a_box_fits_the_width() -> None:
    names = [f"column{number}" for number in range(9)]
    batch = pa.RecordBatch.from_pydict({name: ["x" * 30, None] for name in names})
    for columns in (200, 120, 60, 30, 15):
        lines = list(box([batch], columns))
        assert max(map(len, lines)) <= columns
        assert lines[-1] == "2 rows"
    assert "NULL" in "\n".join(box([batch], 200))


def test_a_box_ends_after_its_rows() -> None:
    batch = pa.RecordBatch.from_pydict({"n": list(range(80))})
    *_, last = box(iter([batch, batch]), 80)
    assert last == "the first 100 rows; there are more (--format or -o writes all)"


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["FROM ordres"], 1, "there is no topic or table ordres"),
        (["SELECT 1", "-f", "/dev/null"], 2, "QUERY cannot be used with --file"),
        (["SELECT 1", "--format", "xml"], 2, "'xml' is not one of"),
        (["SELECT 1", "-o", "{log_dir}/x.csv"], 2, "is in the log directory"),
        (["FROM orders", "-c", "no.such=1"], 2, "no.such"),
    ],
)
def test_refusals(
    kafkafs: Kafkafs, log_dir: Path, arguments: list[str], code: int, message: str
) -> None:
    result = kafkafs("sql", log_dir, *(each.format(log_dir=log_dir) for each in arguments))
    assert message in stderr_of(result, code)


def test_a_missing_extra(kafkafs: Kafkafs, log_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation, "missing", lambda extra: ["duckdb"])
    error = stderr_of(kafkafs("sql", log_dir, "SELECT 1"))
    assert error == (
        "kafkafs: sql needs duckdb, which is not installed: pip install 'kafkafs[sql]'\n"
    )


def test_as_of_a_time(kafkafs: Kafkafs, log_dir: Path) -> None:
    found = rows_of(
        kafkafs(
            "sql", "--at", "3000", log_dir, "SELECT count(*) AS n FROM orders", "--format", "jsonl"
        )
    )
    assert found == [{"n": 8}]


def test_statements_from_a_file_and_from_stdin(shell: Shell, log_dir: Path, tmp_path: Path) -> None:
    script = tmp_path / "script.sql"
    script.write_text("-- two\nSELECT 1 AS a;\nSELECT count(*) AS b FROM orders;\n")
    expected = '"a"\n1\n"b"\n10\n'
    done = shell(f"kafkafs sql {log_dir} -f {script} && kafkafs sql {log_dir} < {script}")
    assert (done.stdout, done.stderr) == (expected * 2, "")


def test_statements_that_are_no_text(
    kafkafs: Kafkafs, shell: Shell, log_dir: Path, tmp_path: Path
) -> None:
    script = tmp_path / "script.sql"
    script.write_bytes(b"SELECT 1;\n\xff")
    error = stderr_of(kafkafs("sql", log_dir, "-f", script))
    assert error == f"kafkafs: {script}: not UTF-8 at position 10\n"
    for rest in ("", "-f -"):
        done = shell(f"kafkafs sql {log_dir} {rest} < {script}")
        assert (done.returncode, done.stdout) == (1, "")
        assert re.fullmatch(r"kafkafs: <?stdin>?: not UTF-8 at position 10\n", done.stderr)
    assert "QUERY: not UTF-8 at position 8" in stderr_of(kafkafs("sql", log_dir, "SELECT '\udcff'"))
    script.write_bytes(b"\xef\xbb\xbfSELECT 1 AS n")  # as editors on Windows begin a file
    assert stdout_of(kafkafs("sql", log_dir, "-f", script)) == '"n"\n1\n'


def test_closed_streams(shell: Shell, log_dir: Path, tmp_path: Path) -> None:
    done = shell(f"kafkafs sql {log_dir} <&-")
    assert (done.returncode, done.stdout) == (2, "")
    assert "there are no statements: stdin is closed" in done.stderr
    done = shell(f"kafkafs sql {log_dir} 'SELECT 1 AS n' -o {tmp_path}/n.csv <&- >&-")
    assert (done.returncode, done.stderr) == (0, "")
    assert (tmp_path / "n.csv").read_text() == '"n"\n1\n'


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, -15)])
def test_a_query_is_ended_by_a_signal(
    log_dir: Path, environment: Mapping[str, str], tmp_path: Path, number: int, code: int
) -> None:
    # Alone, the second would take longer than the patience.
    query = "SELECT 1; SELECT count(*) FROM range(100_000_000_000) t(a), orders"
    command = [sys.executable, "-m", "kafkafs", "sql", str(log_dir), query]
    spilling = {**environment, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, env=spilling, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b'"1"\n'
        process.send_signal(number)
        assert process.wait(PATIENCE_SECONDS) == code
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_ends_a_query_that_has_just_begun(log_dir: Path) -> None:
    """While its thread starts, and before anything waits for it; then the next can run."""
    long = "SELECT count(*) FROM range(100_000_000_000) t(a), orders"
    opening = opened((str(log_dir),), (), at=None, isolation="read_committed", files=False)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with opening as (session, _):

            def run() -> None:
                os.kill(os.getpid(), signal.SIGINT)
                for statement in session.statements(long):
                    session.run(statement)

            for _ in range(20):
                with pytest.raises(KeyboardInterrupt):
                    interruptible(session, run)
                assert session.columns("orders")
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_signal_ends_a_query_that_does_not_end(
    log_dir: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    """It is blocked, because nothing reads the pipe that it writes to."""
    program = (
        "from kafkafs.cli.query import running; from kafkafs.cli.main import main;"
        "running._ENDING_SECONDS = 0.2; main()"
    )
    command = [sys.executable, "-c", program, "sql", str(log_dir), "FROM range(10_000_000)"]
    spilling = {**environment, "TMPDIR": str(tmp_path)}
    pipe, stderr = subprocess.PIPE, subprocess.PIPE
    with subprocess.Popen(command, env=spilling, stdout=pipe, stderr=stderr) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(4096)
        process.send_signal(signal.SIGINT)
        said = process.stderr.read().decode()
        assert process.wait(PATIENCE_SECONDS) == -signal.SIGINT
    assert said == "kafkafs: the query does not end, so the program does\n"
    assert list(tmp_path.iterdir()) == []


def test_a_closed_pipe_ends_a_query(shell: Shell, log_dir: Path, tmp_path: Path) -> None:
    query = "FROM range(100_000_000)"
    done = shell(f"TMPDIR={tmp_path} kafkafs sql {log_dir} '{query}' | head -2")
    assert (done.stdout, done.stderr) == ('"range"\n0\n', "")
    assert list(tmp_path.iterdir()) == []


def test_a_query_that_cannot_be_written_ends_in_order(
    environment: Mapping[str, str], tmp_path: Path
) -> None:
    """Threads read ahead of what is written."""
    with api.open(tmp_path / "data", writable=True) as log_directories:
        log_directories.create_topic("t", 8)
        for number in range(8):
            log_directories["t", number].append([os.urandom(1000) for _ in range(2000)])
    command = [sys.executable, "-m", "kafkafs", "sql", str(tmp_path / "data"), "FROM t"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command, env=dict(environment), stdout=full, stderr=subprocess.PIPE, check=False
        )
    assert (done.returncode, done.stderr.count(b"\n")) == (1, 1), done.stderr
    assert b"No space left on device" in done.stderr


@pytest.mark.parametrize("form", ["table", "csv", "jsonl", "markdown"])
def test_records_cannot_control_a_terminal(
    environment: Mapping[str, str], tmp_path: Path, form: str
) -> None:
    path = tmp_path / "data"
    with api.open(path, writable=True) as log_directories:
        log_directories.create_topic("t", 1)
        log_directories["t", 0].append(["\x1b[31mred\x9b2J"])
    command = [sys.executable, "-m", "kafkafs", "sql", str(path), "SELECT value FROM t"]
    with Terminal([*command, "--format", form], environment) as terminal:
        assert terminal.exit_code() == 0, terminal.seen
        assert b"\x1b" not in terminal.raw
        assert b"\xc2\x9b" not in terminal.raw
        assert "red" in terminal.seen


def test_the_shell(log_dir: Path, environment: Mapping[str, str], tmp_path: Path) -> None:
    variables = {**environment, "XDG_STATE_HOME": str(tmp_path), "TERM": "xterm"}
    variables["PROMPT_TOOLKIT_NO_CPR"] = "1"
    command = [sys.executable, "-m", "kafkafs", "sql", str(log_dir)]
    with Terminal(command, variables) as terminal:

        def enter(text: str, answer: str) -> None:
            # What is typed before the prompt is there, Ctrl-C would discard.
            terminal.wait_for_last("kafkafs>")
            terminal.type(text)
            terminal.wait_for(answer)

        enter("SELECT count(*) AS total\r", "...>")
        terminal.type("FROM orders;\r")
        terminal.wait_for(" 10 │")
        enter(".tables ord\r", "\norders\n")
        enter(".schema segments\r", "largestTimestamp")
        enter("FROM nowhere;\r", "there is no topic or table nowhere")
        enter("SELECT max(timestampT\t", "timestampType")
        terminal.type(") + 41 FROM orders;\r")
        terminal.wait_for(" 41 │")
        # Before the answer of the first, Ctrl-C may come when no query runs.
        enter("SELECT 7; SELECT count(*) FROM range(100_000_000_000) t(a), orders;\r", " 7 │")
        terminal.type("\x03")
        terminal.wait_for("the query was interrupted")
        enter("SELECT 40 + 2;\r", " 42 │")
        enter("SELECT half", "SELECT half")
        terminal.type("\x03")
        terminal.wait_for_last("kafkafs>")
        terminal.type("\x04")
        assert terminal.exit_code() == 0, terminal.seen
    history = tmp_path / "kafkafs" / "sql_history"
    assert "+SELECT count(*) AS total\n+FROM orders;" in history.read_text()
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
