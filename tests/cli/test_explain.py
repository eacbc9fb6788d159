"""Tests of `kafkafs explain`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from tests.cli.results import Corpus, Kafkafs, lines_of, stderr_of

T = 1526384718288


def steps(result: Result, code: int = 0) -> list[dict[str, Any]]:
    assert (result.exit_code, result.stderr) == (code, "")
    found: list[dict[str, Any]] = json.loads(result.stdout)["steps"]
    return found


def test_an_offset_as_the_books_tell_it(kafkafs: Kafkafs, textbook: Path) -> None:
    lines = lines_of(kafkafs("explain", textbook, "textbook/0/offset/600"))
    partition = textbook / "textbook-0"
    below = "its last offset is below the target"
    assert lines == [
        f"textbook-0 in {partition}: offsets 0 to 1140, read_committed",
        "1. Segment 522: greatest base offset at or below 600",
        f"     {partition}/00000000000000000522.log",
        "2. Offset index, entry 1 of 5: (65, 6410)",
        f"     {partition}/00000000000000000522.index",
        "     greatest at or below 600: the batch at position 6410 ends with offset 587, "
        "relative 65",
        "3. Walk from position 6410",
        f"     position  6410,  offsets 565 to 587,  23 records:  {below}",
        "     position  9886,  offsets 588 to 613,  26 records:  taken",
        "4. Found: offset 600",
        "     record 13 of the batch at position 9886, timestamp 1526037611400 "
        "(2018-05-11T11:20:11.400Z)",
    ]


def test_a_time_as_the_books_tell_it(kafkafs: Kafkafs, textbook: Path) -> None:
    lines = lines_of(kafkafs("explain", textbook, f"textbook/1/time/{T}"))
    partition = textbook / "textbook-1"
    older = "its greatest timestamp is below the target"
    assert lines == [
        f"textbook-1 in {partition}: offsets 0 to 339, read_committed",
        "1. Segment 251: largest timestamp at or after the target",
        f"     {partition}/00000000000000000251.log",
        "     largest timestamp 1526396820026 (2018-05-15T15:07:00.026Z), "
        "older segments skipped: 2",
        "2. Time index, entry 5 of 18: (1526384718283, 28)",
        f"     {partition}/00000000000000000251.timeindex",
        "     the last entry before the target: "
        "2018-05-15T11:45:18.283Z at offset 279, relative 28",
        "3. Offset index, entry 4 of 18: (26, 838)",
        f"     {partition}/00000000000000000251.index",
        "     greatest at or below 279: the batch at position 838 ends with offset 277, "
        "relative 26",
        "4. Walk from position 838",
        f"     position   838,  offsets 274 to 277,  4 records:  {older}",
        f"     position   959,  offsets 278 to 279,  2 records:  {older}",
        f"     position  1050,  offsets 280 to 282,  3 records:  {older}",
        "     position  1171,  offsets 283 to 285,  3 records:  taken",
        "5. Found: offset 284",
        f"     record 2 of the batch at position 1171, timestamp {T} (2018-05-15T11:45:18.288Z)",
    ]


def test_a_time_may_be_written_as_a_date(kafkafs: Kafkafs, textbook: Path) -> None:
    one = kafkafs("explain", textbook, f"textbook/1/time/{T}")
    other = kafkafs("explain", textbook, "textbook/1/time/2018-05-15T11:45:18.288Z")
    assert one.stdout == other.stdout


@pytest.mark.parametrize("name", ["0600", "600.json", "600.key"])
def test_every_name_of_a_record(kafkafs: Kafkafs, textbook: Path, name: str) -> None:
    one = kafkafs("explain", textbook, "/textbook/0/offset/600")
    assert kafkafs("explain", textbook, f"textbook/0/offset/{name}").stdout == one.stdout


def test_json_of_an_offset(kafkafs: Kafkafs, textbook: Path) -> None:
    result = kafkafs("explain", "--json", textbook, "textbook/0/offset/600")
    segment, index, before, taken, found = steps(result)
    assert segment["step"] == "segment"
    assert segment["baseOffset"] == 522
    assert index == {
        "step": "offsetIndex", "file": f"{textbook}/textbook-0/{522:020}.index", "slot": 0,
        "entries": 5, "target": 600, "offset": 587, "relativeOffset": 65, "position": 6410,
        "refused": False,
    }  # fmt: skip
    assert (before["step"], before["verdict"], before["position"]) == ("walk", "ends_before", 6410)
    assert (taken["verdict"], taken["baseOffset"], taken["records"]) == ("taken", 588, 26)
    assert (found["step"], found["offset"], found["row"]) == ("found", 600, 12)
    whole = json.loads(result.stdout)
    assert (whole["offset"], whole["found"], whole["error"]) == (600, 600, None)
    assert whole["isolation"] == "read_committed"


def test_json_of_a_time(kafkafs: Kafkafs, textbook: Path) -> None:
    result = kafkafs("explain", "--json", textbook, f"textbook/1/time/{T}")
    kinds = [step["step"] for step in steps(result)]
    assert kinds == ["segment", "timeIndex", "offsetIndex", *["walk"] * 4, "found"]
    whole = json.loads(result.stdout)
    assert (whole["timestamp"], whole["found"]) == (T, 284)


def test_an_offset_behind_the_end(kafkafs: Kafkafs, textbook: Path) -> None:
    result = kafkafs("explain", textbook, "textbook/0/offset/5000")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1] == (
        "1. Not served: offset 5000 is past the end of textbook/0 (0 to 1140)"
    )
    assert steps(kafkafs("explain", "--json", textbook, "textbook/0/offset/5000"), 1) == []


def test_an_offset_that_compaction_removed(kafkafs: Kafkafs, corpus: Corpus) -> None:
    result = kafkafs("explain", corpus("kafka43-clean"), "compacted/0/offset/3400")
    assert result.exit_code == 1
    assert (
        "Not served: no record at offset 3400 of compacted/0: never written, or compacted away"
        in result.stdout
    )


def test_a_record_of_an_aborted_transaction(kafkafs: Kafkafs, corpus: Corpus) -> None:
    directory = corpus("kafka43-clean")
    result = kafkafs("explain", directory, "txn/0/offset/12")
    assert result.exit_code == 1
    assert "offsets 12 to 18,  7 records:  a batch of an aborted transaction" in result.stdout
    shown = kafkafs("explain", "--isolation", "read_uncommitted", directory, "txn/0/offset/12")
    assert shown.exit_code == 0


def test_a_time_behind_all_records(kafkafs: Kafkafs, textbook: Path) -> None:
    result = kafkafs("explain", textbook, "textbook/1/time/2050-01-01")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[1:] == [
        "1. Nothing found: no visible record is from 2050-01-01T00:00:00.000Z or later"
    ]


def test_a_broker_finds_nothing_behind_segments_without_timestamps(
    kafkafs: Kafkafs, corpus: Corpus
) -> None:
    directory = corpus("kafka43-clean")
    result = kafkafs("explain", directory, "compacted/0/time/2026-09-02")
    assert result.exit_code == 0
    assert "Found: offset " in result.stdout
    assert "A broker finds nothing: " in result.stdout.splitlines()[-1]
    assert "file's mtime" in result.stdout.splitlines()[-1]
    found = steps(kafkafs("explain", "--json", directory, "compacted/0/time/2026-09-02"))
    assert (found[-1]["step"], found[-1]["offset"]) == ("broker", -1)


def test_a_broker_names_a_control_record(kafkafs: Kafkafs, corpus: Corpus) -> None:
    """Markers have the broker's time, which was months later than the records' timestamps."""
    result = kafkafs("explain", corpus("kafka43-clean"), "txn/0/time/2026-11-01")
    assert result.exit_code == 1
    assert "Nothing found" in result.stdout
    assert "A broker answers offset 11: a control record" in result.stdout


def test_without_an_index(kafkafs: Kafkafs, writable_corpus: Corpus) -> None:
    root = writable_corpus("kafka43-clean")
    with_index = steps(kafkafs("explain", "--json", root, "orders/0/offset/600"))
    for path in (root / "orders-0").glob("*.index"):
        path.unlink()
    result = kafkafs("explain", root, "orders/0/offset/600")
    lines = result.stdout.splitlines()
    assert "2. Walk from position 0, without an index" in lines
    (left_out,) = [line for line in lines if "…" in line]
    found = steps(kafkafs("explain", "--json", root, "orders/0/offset/600"))
    assert found[-1] == with_index[-1]
    walked = [step for step in found if step["step"] == "walk"]
    assert left_out == f"     … {len(walked) - 10} batches …"


def test_an_index_that_lies(kafkafs: Kafkafs, writable_corpus: Corpus) -> None:
    root = writable_corpus("kafka43-clean")
    path = root / "orders-0" / f"{0:020}.index"
    entries = bytearray(path.read_bytes())
    for at in range(7, len(entries), 8):
        entries[at] ^= 1
    path.write_bytes(entries)
    result = kafkafs("explain", root, "orders/0/offset/600")
    assert result.exit_code == 0
    assert "rejected, walk from the start of the segment" in result.stdout
    assert "Found: offset 600" in result.stdout


def test_a_damaged_record(kafkafs: Kafkafs, corpus: Corpus) -> None:
    level = ["--isolation", "read_uncommitted"]
    result = kafkafs("explain", *level, corpus("kafka43-torn"), "crash-txn/0/offset/2874")
    assert result.exit_code == 1
    assert result.stdout.splitlines()[-1].split(". ", 1)[1].startswith("Not served: /")
    assert "position 10401: batch 2873-2880: crc is" in result.stdout


def test_old_compressed_batches_do_not_say_what_is_in_them(
    kafkafs: Kafkafs, corpus: Corpus
) -> None:
    result = kafkafs("explain", corpus("kafka28"), "v1-gzip/0/offset/20")
    assert result.exit_code == 0
    assert ",  offsets up to " in result.stdout


@pytest.mark.parametrize(
    "path", ["", "textbook", "textbook/0", "textbook/0/offset/x", "textbook/x/offset/1",
             "textbook/0/values/1", "textbook/0/offset/1/2",
             "textbook/0/offset/middle"],
)  # fmt: skip
def test_paths_that_no_lookup_is_behind(kafkafs: Kafkafs, textbook: Path, path: str) -> None:
    problem = stderr_of(kafkafs("explain", textbook, path), 2)
    assert f"{path!r} is neither TOPIC/PARTITION/offset/N nor" in problem


def test_what_is_not_a_time(kafkafs: Kafkafs, textbook: Path) -> None:
    problem = stderr_of(kafkafs("explain", textbook, "textbook/0/time/soon"), 2)
    assert "'soon' is not a time: milliseconds since 1970 or ISO 8601" in problem


@pytest.mark.parametrize(("link", "offset"), [("first", 0), ("last", 1499)])
def test_a_link_is_explained_as_the_offset_behind_it(
    kafkafs: Kafkafs, corpus: Corpus, link: str, offset: int
) -> None:
    clean = corpus("kafka43-clean")
    by_link = kafkafs("explain", clean, f"appendtime/0/offset/{link}")
    by_number = kafkafs("explain", clean, f"appendtime/0/offset/{offset}")
    assert by_link.exit_code == 0
    assert by_link.stdout == by_number.stdout


@pytest.mark.parametrize("link", ["first", "last"])
def test_a_link_that_leads_nowhere(kafkafs: Kafkafs, corpus: Corpus, link: str) -> None:
    result = kafkafs("explain", corpus("kafka43-clean"), f"empty/0/offset/{link}")
    assert result.exit_code == 1


def test_a_topic_that_is_not_there(kafkafs: Kafkafs, textbook: Path) -> None:
    problem = stderr_of(kafkafs("explain", textbook, "txtbook/0/offset/1"))
    assert problem.startswith("kafkafs: no topic txtbook; did you mean textbook?")
