"""`kafkafs cat`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import Result

from tests import answers

Kafkafs = Callable[..., Result]
Corpus = Callable[[str], Path]


@pytest.fixture
def clean(corpus: Corpus) -> Path:
    return corpus("kafka43-clean")


def told(offset: int, topic: str = "orders") -> answers.ExpectedRecord:
    records = answers.records("kafka43-clean", topic, 0)
    return next(record for record in records if record.offset == offset)


def printed(result: Result) -> bytes:
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout_bytes


def test_a_value_byte_for_byte(kafkafs: Kafkafs, clean: Path) -> None:
    assert printed(kafkafs("cat", clean, "orders/0/offset/600")) == told(600).value


def test_several_files_one_after_the_other(kafkafs: Kafkafs, clean: Path) -> None:
    record = told(600)
    assert record.value is not None
    assert record.key is not None
    paths = ["orders/0/offset/600", "orders/0/offset/600.key", "orders/0/offset/0600"]
    assert printed(kafkafs("cat", clean, *paths)) == record.value + record.key + record.value


def test_links_are_followed(kafkafs: Kafkafs, clean: Path) -> None:
    time = f"orders/0/time/{told(600).timestamp}"
    assert printed(kafkafs("cat", clean, time)) == told(600).value
    assert printed(kafkafs("cat", clean, "orders/0/offset/last")) == told(6673).value


def test_bytes_that_are_no_text(kafkafs: Kafkafs, clean: Path) -> None:
    records = answers.records("kafka43-clean", "codec-none", 0)
    binary = next(record for record in records if record.value and b"\xff" in record.value)
    assert printed(kafkafs("cat", clean, f"codec-none/0/offset/{binary.offset}")) == binary.value


def test_streams(kafkafs: Kafkafs, clean: Path) -> None:
    lines = printed(kafkafs("cat", clean, "orders/0/records.jsonl")).splitlines()
    records = list(answers.records("kafka43-clean", "orders", 0))
    assert [json.loads(line)["offset"] for line in lines] == [r.offset for r in records]
    values = printed(kafkafs("cat", clean, "orders/0/values"))
    assert values == b"".join((record.value or b"") + b"\n" for record in records)


def test_isolation(kafkafs: Kafkafs, clean: Path) -> None:
    hidden = kafkafs("cat", clean, "txn/0/offset/12")
    assert (hidden.exit_code, hidden.stdout) == (1, "")
    assert "an aborted transaction" in hidden.stderr
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
    paths = ["orders", "orders/0/nope", "orders/0/offset/600", "orders/0/offset/600/x", "/"]
    result = kafkafs("cat", clean, *paths)
    assert result.exit_code == 1
    assert result.stdout_bytes == told(600).value
    assert result.stderr.splitlines() == [
        "kafkafs: orders: a directory; `kafkafs ls` shows what is in it",
        "kafkafs: orders/0/nope: no such path; `kafkafs ls` shows what is there",
        "kafkafs: orders/0/offset/600/x: no such path; `kafkafs ls` shows what is there",
        "kafkafs: /: a directory; `kafkafs ls` shows what is in it",
    ]


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
    result = kafkafs("cat", *level, corpus("kafka43-torn"), "crash-txn/0/offset/2874")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "2648.log: position 10401: batch 2873-2880: crc is 1e6826b3" in result.stderr


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
        rest, errors = process.communicate(timeout=20)
    assert (process.returncode, rest, errors) == (130, b"", b"")


def peak_memory(pid: int) -> int:
    """Most bytes that a process has had in memory, 0 when it has ended. Its ru_maxrss would count
    what this process had when it forked."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(found[1]) << 10 if found else 0


def test_a_stream_needs_little_memory(
    programs: Path, environment: Mapping[str, str], clean: Path
) -> None:
    """Less than what is printed: nothing is kept."""
    path = "codec-none/0/segments/00000000000000000000.log"
    with running(programs, environment, "cat", clean, *[path] * 200) as process:
        assert process.stdout is not None
        size = most = 0
        while chunk := process.stdout.read(1 << 20):
            size += len(chunk)
            most = max(most, peak_memory(process.pid))
        assert process.wait(30) == 0
    assert size == 200 * (clean / "codec-none-0" / f"{0:020}.log").stat().st_size
    assert size > 100 << 20
    assert 0 < most < 100 << 20


def test_what_compaction_would_leave_at_another_time(kafkafs: Kafkafs, corpus: Corpus) -> None:
    """Retention and min.compaction.lag.ms are of the time that is asked for."""
    before, cleaned = corpus("compact-before"), 1795248995048
    for topic in ("cmp-lag", "cmp-delete", "cmp-tomb"):
        path = f"{topic}/0/compacted/records.jsonl"
        expected = printed(kafkafs("cat", corpus("compact-after"), f"{topic}/0/records.jsonl"))
        assert printed(kafkafs("cat", "--at", cleaned, before, path)) == expected
    lag = "cmp-lag/0/compacted/summary.json"
    now, later = (
        json.loads(printed(kafkafs("cat", "--at", at, before, lag)))
        for at in (cleaned, "2027-01-01")
    )
    assert (now["at"], later["at"]) == (cleaned, 1798761600000)
    assert now["bound"] == "it has records younger than min.compaction.lag.ms"
    assert later["bound"] == "it is the active segment"
    assert later["records"]["after"] < now["records"]["after"]
