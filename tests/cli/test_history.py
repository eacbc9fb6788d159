"""Tests of `kafkafs history`."""

from __future__ import annotations

from pathlib import Path

from tests.cli.results import Corpus, Kafkafs, lines_of, rows_of, stderr_of


def test_a_table_and_json_lines(kafkafs: Kafkafs, clean: Path) -> None:
    rows = rows_of(kafkafs("history", "--json", clean, "compacted", "key-29"))
    assert [row["offset"] for row in rows] == [1689, 2654, 2871, 3007, 3041, 3410, 4764]
    head, *table = lines_of(kafkafs("history", clean, "compacted/0", "key-29"))
    assert head.split() == ["PARTITION", "OFFSET", "TIMESTAMP", "STATE", "FILE", "VALUE"]
    assert [line.split()[1] for line in table] == [str(row["offset"]) for row in rows]
    assert table[0].endswith("00001405.log.deleted  " + rows[0]["value"])
    assert " served " in table[-1]


def test_tombstones_and_all_partitions(kafkafs: Kafkafs, corpus: Corpus, clean: Path) -> None:
    table = lines_of(kafkafs("history", corpus("compact-after"), "cmp-tomb", "key-100"))
    assert any(line.endswith("(tombstone)") for line in table)
    rows = rows_of(kafkafs("history", "--json", clean, "orders", "customer-519"))
    assert {row["key"] for row in rows} == {"customer-519"}
    single = rows_of(kafkafs("history", "--json", clean, "orders/0", "customer-519"))
    assert [row for row in rows if row["partition"] == 0] == single


def test_what_does_not_exist(kafkafs: Kafkafs, clean: Path) -> None:
    error = stderr_of(kafkafs("history", clean, "compacted/0", "nobody"))
    assert error == "kafkafs: compacted/0: no record with key nobody is on the disk\n"
    assert "did you mean compacted" in stderr_of(kafkafs("history", clean, "compactd", "k"))
    assert "(it has 0)" in stderr_of(kafkafs("history", clean, "compacted/3", "k"))
    assert "missing argument 'KEY'" in stderr_of(kafkafs("history", clean, "compacted"), 2)
