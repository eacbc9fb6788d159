"""Tests of `kafkafs cat`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result

from kafkafs.storage.format.records.record_columns import RecordColumns, SimpleRecord
from kafkafs.storage.log_manager import LogManager
from tests import answers
from tests.building import build_batch
from tests.cli.results import Corpus, Kafkafs, stderr_of
from tests.cli.terminal import Terminal
from tests.logs import write_partition
from tests.waiting import PATIENCE_SECONDS


def answer(offset: int, topic: str = "orders") -> answers.ExpectedRecord:
    records = answers.records("kafka43-clean", topic, 0)
    return next(record for record in records if record.offset == offset)


def printed(result: Result) -> bytes:
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout_bytes


def test_a_value_byte_for_byte(kafkafs: Kafkafs, clean: Path) -> None:
    assert printed(kafkafs("cat", clean, "orders/0/offset/600")) == answer(600).value


def test_several_files_one_after_the_other(kafkafs: Kafkafs, clean: Path) -> None:
    record = answer(600)
    assert record.value is not None
    assert record.key is not None
    paths = ["orders/0/offset/600", "orders/0/offset/600.key", "orders/0/offset/0600"]
    assert printed(kafkafs("cat", clean, *paths)) == record.value + record.key + record.value


def test_links_are_followed(kafkafs: Kafkafs, clean: Path) -> None:
    time = f"orders/0/time/{answer(600).timestamp}"
    assert printed(kafkafs("cat", clean, time)) == answer(600).value
    assert printed(kafkafs("cat", clean, "orders/0/offset/last")) == answer(6673).value


def test_bytes_that_are_no_text(kafkafs: Kafkafs, clean: Path) -> None:
    records = answers.records("kafka43-clean", "codec-none", 0)
    binary = next(record for record in records if record.value and b"\xff" in record.value)
    assert printed(kafkafs("cat", clean, f"codec-none/0/offset/{binary.offset}")) == binary.value


class TestDecoded:
    def test_keys_and_values_of_a_registry(self, kafkafs: Kafkafs, corpus: Corpus) -> None:
        data = corpus("schemas43")
        text = printed(kafkafs("cat", data, "s-keyed/0/decoded.jsonl", "s-proto/0/decoded.jsonl"))
        rows = [json.loads(line) for line in text.splitlines()]
        assert rows[0]["key"] == {"region": "fjord", "no": -20}
        assert (rows[0]["keySchemaId"], rows[0]["valueSchemaId"]) == (3, 4)
        assert {"text": "zephyr", "marks": ["0", "0", "1099511627776"]} in [
            row["value"] for row in rows
        ]
        row = json.loads(printed(kafkafs("cat", data, "s-mixed/0/offset/3.decoded.json")))
        assert row["error"] == "value: no schema with this id"

    def test_schemas_given_as_files(
        self, kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        (tmp_path / "letter.avsc").write_text(
            '{"type":"record","name":"L","fields":'
            '[{"name":"letter","type":"string"},{"name":"n","type":"int"}]}'
        )
        (tmp_path / "all.properties").write_text("id:99999 = letter.avsc\n")
        line = ("cat", corpus("schemas43"), "s-mixed/0/offset/3.decoded.json")
        for given in (
            ("--schema", "id:99999=letter.avsc"),
            ("--schema", "s-mixed=letter.avsc", "--schema", "s-mixed:framing=auto"),
            ("--schema", "@all.properties"),
            ("-c", "kafkafs.schemas=id:99999=letter.avsc"),
            ("-c", "kafkafs.schemas=id:7=letter.avsc", "--schema", "@all.properties"),
        ):
            row = json.loads(printed(kafkafs(*line, *given)))
            assert (row["value"], row["valueSchemaId"]) == ({"letter": "a", "n": 2}, 99999)
            assert "error" not in row

    def test_a_schema_that_was_deleted(self, kafkafs: Kafkafs, corpus: Corpus) -> None:
        line = ("cat", corpus("schemas43"), "s-hard/0/offset/0.decoded.json")
        row = json.loads(printed(kafkafs(*line)))
        assert row["error"].endswith("is still on the disk (s-hard-value version 1)")
        row = json.loads(printed(kafkafs(*line, "-c", "kafkafs.schemas.deleted=true")))
        assert (row["value"], row["valueSchema"]["version"]) == ({"w": "copper"}, 1)

    @pytest.mark.parametrize("verb", ["cat", "ls", "stat", "mount"])
    def test_a_schema_that_cannot_be_used(
        self, kafkafs: Kafkafs, clean: Path, tmp_path: Path, verb: str
    ) -> None:
        (tmp_path / "bad.avsc").write_text('{"type":"recor"}')
        place = str(tmp_path) if verb == "mount" else "orders/0"
        for given, why in (
            (f"t={tmp_path}/bad.avsc", f"{tmp_path}/bad.avsc: no type is named 'recor'"),
            (f"t={tmp_path}/none.avsc", f"{tmp_path}/none.avsc: no such file"),
            ("t", "t: must be SELECTOR=FILE, such as orders=order.avsc, or @FILE"),
        ):
            result = kafkafs(verb, clean, place, "--schema", given)
            assert (result.exit_code, result.stdout) == (2, "")
            assert result.stderr == f"kafkafs: kafkafs.schemas: {why}\n"


def test_streams(kafkafs: Kafkafs, clean: Path) -> None:
    lines = printed(kafkafs("cat", clean, "orders/0/records.jsonl")).splitlines()
    records = list(answers.records("kafka43-clean", "orders", 0))
    assert [json.loads(line)["offset"] for line in lines] == [r.offset for r in records]
    values = printed(kafkafs("cat", clean, "orders/0/values"))
    assert values == b"".join((record.value or b"") + b"\n" for record in records)


def test_isolation(kafkafs: Kafkafs, clean: Path) -> None:
    assert "an aborted transaction" in stderr_of(kafkafs("cat", clean, "txn/0/offset/12"))
    shown = printed(kafkafs("cat", "--isolation", "read_uncommitted", clean, "txn/0/offset/12"))
    records = answers.records("kafka43-clean", "txn", 0, answers.READ_UNCOMMITTED)
    assert shown == next(record.value for record in records if record.offset == 12)


def test_files_of_the_log_directory(kafkafs: Kafkafs, clean: Path) -> None:
    name = "00000000000000000000.log"
    shown = printed(kafkafs("cat", clean, f"one/0/segments/{name}"))
    assert shown == (clean / "one-0" / name).read_bytes()


def test_what_cannot_be_printed_is_told_and_the_rest_is_printed(
    kafkafs: Kafkafs, clean: Path
) -> None:
    paths = ["orders", "orders/0/keyes", "orders/0/offset/600", "orders/0/offset/600/x", "/"]
    result = kafkafs("cat", clean, *paths)
    assert result.exit_code == 1
    assert result.stdout_bytes == answer(600).value
    assert result.stderr.splitlines() == [
        "kafkafs: orders: is a directory; list it with `kafkafs ls`",
        "kafkafs: orders/0/keyes: orders/0 has no keyes; did you mean keys or key?",
        "kafkafs: orders/0/offset/600/x: 600 is not a directory",
        "kafkafs: /: is a directory; list it with `kafkafs ls`",
    ]


@pytest.mark.parametrize(
    ("path", "why"),
    [
        ("ordres/0", "no topic ordres; did you mean orders or unordered?"),
        ("orders/7", "orders has no partition 7 (it has 0 to 2)"),
        ("orders/07", "orders has no 07; it has the partitions 0 to 2 and config.properties"),
        ("orders/0/ofset/1", "orders/0 has no ofset; did you mean offset?"),
        ("orders/0/compacted/valus", "orders/0/compacted has no valus; did you mean values?"),
        (".kafkafs/statu.json", ".kafkafs has no statu.json; did you mean status.json?"),
        ("orders/0/offset/9000", "offset 9000 is past the end of orders/0 (0 to 6673)"),
        (
            "orders/0/offset/9e3",
            "'9e3' is not an offset; names here are N, N.json, N.decoded.json and N.key",
        ),
        ("trimmed/0/offset/12", "offset 12 was deleted: trimmed/0 begins at 1433"),
        ("compacted/0/offset/1", "no record at offset 1 of compacted/0: never written, or"),
        (
            "txn/0/offset/11",
            "no record at offset 11 of txn/0: it is in a control batch, which",
        ),
        ("txn-open/0/offset/40", "offset 40 of txn-open/0 is not stable: a transaction has been"),
        ("empty/0/offset/0", "offset 0 is past the end of empty/0 (empty, the next offset is 0)"),
        ("empty/0/offset/last", "empty/0 has no last record: none is served (empty, the next"),
        (
            "orders/0/time/2099-01-01",
            "no record of orders/0 has a timestamp of 2099-01-01T00:00:00.000Z or later; the last"
            " is 2026-09-07T00:05:55.854Z",
        ),
        ("empty/0/time/5", "no record of empty/0 has a timestamp"),
        (
            "orders/0/time/yesterdayish",
            "'yesterdayish' is not a time: milliseconds since 1970 or ISO 8601",
        ),
        ("orders/0/key/zzz", "orders/0 has no record with key zzz"),
        ("orders/0/range/abc", "abc: range/A-B needs two offsets from 0 to "),
        ("orders/0/range/1-", "1-: range/A-B needs two offsets from 0 to "),
        ("empty/0/range/x", "x: range/A-B needs two offsets; none is served"),
        ("orders/0/key/%zz", "'%zz' is not the name of a key: a % must be followed by two"),
        ("orders/0/segments/x.log", "orders/0 has no file x.log"),
        ("orders/../orders", "'..' cannot be part of a path here"),
    ],
)
@pytest.mark.parametrize("verb", ["cat", "ls", "stat"])
def test_a_path_that_leads_nowhere_says_why(
    kafkafs: Kafkafs, clean: Path, verb: str, path: str, why: str
) -> None:
    problem = stderr_of(kafkafs(verb, clean, path))
    assert problem.startswith(f"kafkafs: {path}: {why}")
    assert problem.count("\n") == 1


@pytest.mark.parametrize("path", ["t/0/key/ordre-7", "t/0/compacted/latest/ordre-7"])
def test_an_unknown_key_is_compared_with_the_last_keys(
    kafkafs: Kafkafs, tmp_path: Path, path: str
) -> None:
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t")
        records = [SimpleRecord(1000, key, b"v") for key in (b"order-7", b"payment")]
        engine.writer("t", 0).append_records(RecordColumns.from_records(records))
    result = kafkafs("cat", tmp_path / "data", path)
    why = "t/0 has no record with key ordre-7; did you mean order-7?"
    assert (result.exit_code, result.stderr) == (1, f"kafkafs: {path}: {why}\n")


def test_a_stray_partition_is_named_as_it_can_be_read(kafkafs: Kafkafs, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with LogManager(str(data)) as engine:
        engine.create_topic("lost")
        records = [SimpleRecord(1000, None, b"v")]
        engine.writer("lost", 0).append_records(RecordColumns.from_records(records))
    stray = f"lost-3.{'a' * 32}-stray"
    (data / "lost-0").rename(data / stray)
    problem = stderr_of(kafkafs("cat", data, "lost/3/values"))
    hint = f"a broker set its partitions aside as stray, read them as {stray}/3"
    assert problem == f"kafkafs: lost/3/values: no topic lost; {hint}\n"
    assert kafkafs("cat", data, f"{stray}/3/values").stdout == "v\n"
    assert hint in kafkafs("why", data, "lost/3").stderr


def test_output_goes_on_behind_damage(kafkafs: Kafkafs, corpus: Corpus) -> None:
    torn = corpus("kafka43-torn")
    listed = kafkafs("ls", torn, "crash-txn/0/offset").stdout.splitlines()[2:]
    result = kafkafs("cat", torn, "crash-txn/0/records.jsonl", "crash-txn/0/keys")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert [str(json.loads(line)["offset"]) for line in lines[: len(listed)]] == listed
    assert len(lines) == 2 * len(listed)
    assert [line.split(": ")[1] for line in result.stderr.splitlines()] == [
        "crash-txn/0/records.jsonl",
        "crash-txn/0/keys",
    ]


def test_a_damaged_record(kafkafs: Kafkafs, corpus: Corpus) -> None:
    level = ["--isolation", "read_uncommitted"]
    problem = stderr_of(kafkafs("cat", *level, corpus("kafka43-torn"), "crash-txn/0/offset/2874"))
    assert "2648.log: position 10401: batch 2873-2880: crc is 1e6826b3" in problem


@contextmanager
def running(
    programs: Path, environment: Mapping[str, str], *arguments: object
) -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(
        [programs / "kafkafs", *map(str, arguments)],
        env=dict(environment),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    with process:
        try:
            yield process
        finally:
            process.kill()


def test_following_ends_with_ctrl_c(
    programs: Path, environment: Mapping[str, str], writable_corpus: Corpus
) -> None:
    root = writable_corpus("kafka43-clean")
    log = root / "one-0" / f"{0:020}.log"
    with running(programs, environment, "cat", root, "one/0/follow.jsonl") as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["offset"] == 0
        batch = bytearray(log.read_bytes())
        batch[7] = 1  # the same batch, at offset 1
        with log.open("ab") as appended:
            appended.write(batch)
        assert json.loads(process.stdout.readline())["offset"] == 1
        process.send_signal(signal.SIGINT)
        rest, errors = process.communicate(timeout=PATIENCE_SECONDS)
    assert (process.returncode, rest, errors) == (130, b"", b"")


def peak_memory(pid: int) -> int:
    """Returns the peak resident size of a process in bytes, 0 if it has exited. ru_maxrss would
    include the size of this process at the fork."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) << 10 if found else 0


def test_a_stream_needs_little_memory(
    programs: Path, environment: Mapping[str, str], clean: Path
) -> None:
    """Peak memory stays below the size of the output: nothing is kept."""
    path = "codec-none/0/segments/00000000000000000000.log"
    with running(programs, environment, "cat", clean, *[path] * 200) as process:
        assert process.stdout is not None
        size = most = 0
        while chunk := process.stdout.read(1 << 20):
            size += len(chunk)
            most = max(most, peak_memory(process.pid))
        assert process.wait(PATIENCE_SECONDS) == 0
    assert size == 200 * (clean / "codec-none-0" / f"{0:020}.log").stat().st_size
    assert size > 100 << 20
    assert 0 < most < 100 << 20


def test_what_compaction_would_leave_at_another_time(kafkafs: Kafkafs, corpus: Corpus) -> None:
    """Retention and min.compaction.lag.ms are evaluated at the time given by --at. The last records
    of cmp-delete have a later timestamp."""
    before, cleaned = corpus("compact-before"), 1795248995048
    for topic in ("cmp-lag", "cmp-delete", "cmp-tomb"):
        path = f"{topic}/0/compacted/records.jsonl"
        left = printed(kafkafs("cat", corpus("compact-after"), f"{topic}/0/records.jsonl"))
        lines = left.splitlines(keepends=True)
        expected = [line for line in lines if json.loads(line)["timestamp"] <= cleaned]
        assert printed(kafkafs("cat", "--at", cleaned, before, path)) == b"".join(expected)
    lag = "cmp-lag/0/compacted/summary.json"
    now, later = (
        json.loads(printed(kafkafs("cat", "--at", at, before, lag)))
        for at in (cleaned, "2027-01-01")
    )
    assert (now["at"], later["at"]) == (cleaned, 1798761600000)
    assert now["bound"] == "it has records younger than min.compaction.lag.ms"
    assert later["bound"] == "it is the active segment"
    assert later["records"]["after"] < now["records"]["after"]


def test_a_terminal_gets_no_control_characters_and_a_pipe_all_bytes(
    kafkafs: Kafkafs, programs: Path, environment: Mapping[str, str], tmp_path: Path
) -> None:
    """Holds for characters split between two reads and for incomplete ones, too."""
    value = b"a\x1b[31mred\x07\r\tb\n\xc2\x9b\xff" + "é€😀".encode() + b"\xf0\x9f"
    data = str(tmp_path)
    write_partition(tmp_path / "t-0", [build_batch([SimpleRecord(5, b"k", value)])])
    assert kafkafs("cat", data, "t/0/offset/0").stdout_bytes == value
    surroundings = {**environment, "PATH": f"{programs}:{environment['PATH']}"}
    with Terminal(["kafkafs", "cat", data, "t/0/offset/0"], surroundings) as terminal:
        assert terminal.exit_code() == 0
        raw = terminal.raw
    safe = "a\\x1b[31mred\\x07\\r\tb\r\n\\x9b\\xffé€😀\\xf0\\x9f"
    assert raw == safe.encode()
    log = f"{data}/t-0/{0:020}.log"
    with Terminal(["kafkafs", "dump", "--print-data-log", log], surroundings) as terminal:
        assert terminal.exit_code() == 0
        raw = terminal.raw
    assert b"payload: a\\x1b[31mred\\x07\\r\tb" in raw
    assert b"\x1b" not in raw
    assert b"\x1b[31mred\x07" in kafkafs("dump", "--print-data-log", log).stdout_bytes
