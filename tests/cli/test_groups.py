"""Tests of `kafkafs groups`."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kafkafs.cli.verbs.groups import duration_text
from tests.building import build_batch
from tests.cli.results import Corpus, Kafkafs, lines_of, rows_of, stderr_of, stdout_of
from tests.group_records import commit
from tests.logs import write_topic
from tests.storage.test_groups import answered

# What kafka-consumer-groups showed, a moment after billing-walker's eighth round.
AT = 1795474350409


def test_a_table(kafkafs: Kafkafs, corpus: Corpus) -> None:
    head, *rows = lines_of(
        kafkafs("groups", corpus("groups43"), "billing-walker", "billing-beyond")
    )
    assert head.split("  ")[0] == "GROUP"
    assert head.endswith("PROBLEM")
    cells = [[cell.strip() for cell in row.split("  ") if cell.strip()] for row in rows]
    assert cells[0][:9] == [
        *("billing-walker", "Classic", "Empty", "main", "0", "136", "0", "270", "134")
    ]
    assert cells[0][10:] == ["2026-11-23T22:52:40.795Z", "-"]
    assert [row[-1] for row in cells[3:]] == ["-", "beyond the log end offset"]


def test_json_is_what_the_broker_answered(kafkafs: Kafkafs, corpus: Corpus) -> None:
    rows = rows_of(kafkafs("groups", "--json", corpus("groups43")))
    expected = answered("groups.jsonl")
    assert [(row["group"], row["topic"], row["offset"], row["lag"]) for row in rows] == [
        (row["group"], row["topic"], row["offset"], row["lag"]) for row in expected
    ]


def test_as_of_a_time(kafkafs: Kafkafs, corpus: Corpus) -> None:
    result = kafkafs("groups", "--json", "--at", AT, corpus("groups43"), "billing-walker")
    assert [(row["partition"], row["offset"], row["metadata"]) for row in rows_of(result)] == [
        (row["partition"], row["offset"], row["metadata"])
        for row in answered("groups-at.jsonl")
        if row["at"] == AT and row["group"] == "billing-walker"
    ]


def test_members(kafkafs: Kafkafs, corpus: Corpus) -> None:
    root = corpus("groups43")
    found = rows_of(kafkafs("groups", "--members", "--json", root, "billing-kip848"))
    assert [(row["clientId"], row["instanceId"], row["assignment"]) for row in found] == [
        ("k-amber", None, ["main-0", "trim-0", "trim-1"]),
        ("consumer-billing-kip848-k-inst", "k-inst", ["main-1", "main-2"]),
    ]
    head, *rows = lines_of(kafkafs("groups", "--members", root, "billing-kip848"))
    assert head.endswith("ASSIGNMENT")
    assert rows[0].endswith("main-0,trim-0,trim-1")


def test_partitions_that_are_not_here_are_reported(
    kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path
) -> None:
    log_dir = shutil.copytree(corpus("groups43"), tmp_path / "data")
    shutil.rmtree(log_dir / "__consumer_offsets-1")
    result = kafkafs("groups", "--json", log_dir)
    assert (result.exit_code, result.stderr) == (
        0,
        "kafkafs: groups in __consumer_offsets partitions 1 are not shown: these are not in the"
        " directories; add those of the other brokers\n",
    )
    assert '"group":"billing-stable"' in result.stdout
    assert '"group":"billing-walker"' not in result.stdout
    assert stderr_of(kafkafs("groups", log_dir, "billing-walker")) == (
        "kafkafs: no group billing-walker; __consumer_offsets-1, which records it, is not in these"
        " directories\n"
    )


def test_every_row_is_a_line_whatever_a_group_is_called(kafkafs: Kafkafs, tmp_path: Path) -> None:
    records = [commit("a\nb  Classic", "\x1b[2J", 0, 1), commit("", "t\rx", 0, 1)]
    write_topic(tmp_path, [build_batch(records)], topic="__consumer_offsets")
    _, *rows = lines_of(kafkafs("groups", tmp_path))
    assert [row.split()[0] for row in rows] == ["-", "a\\nb"]
    assert [r"\x1b[2J" in row or r"t\rx" in row for row in rows] == [True, True]
    found = rows_of(kafkafs("groups", "--json", tmp_path))
    assert [row["group"] for row in found] == ["", "a\nb  Classic"]


def test_no_groups(kafkafs: Kafkafs, corpus: Corpus) -> None:
    root = corpus("kafka43-crash")
    nothing = "kafkafs: no groups are recorded in these directories\n"
    result = kafkafs("groups", root)
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", nothing)
    assert stdout_of(kafkafs("groups", "--json", root)) == ""
    members = kafkafs("groups", "--members", corpus("groups43"), "billing-early")
    assert (members.stdout, members.stderr) == ("", "kafkafs: none of these groups has members\n")
    assert stderr_of(kafkafs("groups", root, "x")) == (
        "kafkafs: no group x; no groups are recorded in these directories\n"
    )


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        *((0, "0s"), (1234, "1.23s"), (59_999, "60s"), (61_000, "1m 1s"), (3_600_000, "1h 0m")),
        *((90_000_000, "1d 1h"), (-61_000, "-1m 1s"), (86_400_000 * 400, "400d 0h")),
    ],
)
def test_durations(milliseconds: int, text: str) -> None:
    assert duration_text(milliseconds) == text
