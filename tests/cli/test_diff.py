"""Tests of `kafkafs diff`."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cli.results import Corpus, Kafkafs, stderr_of


def test_exit_codes_are_those_of_diff(kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path) -> None:
    before, after = corpus("compact-before"), corpus("compact-after")
    equal = kafkafs("diff", before, before)
    assert (equal.exit_code, equal.output) == (0, "")
    different = kafkafs("diff", before, after, "cmp-plain")
    assert different.exit_code == 1
    assert different.output == (
        f"cmp-plain/0: offsets 0 to 2317 (2178 records): only in {before}: compacted away in"
        f" {after}\n"
    )
    assert "no topic nope" in stderr_of(kafkafs("diff", before, after, "nope"), 2)
    assert "no such directory" in stderr_of(kafkafs("diff", before, tmp_path / "none"), 2)
    damaged = tmp_path / "damaged"
    shutil.copytree(before, damaged)
    log = damaged / "cmp-plain-0" / f"{0:020}.log"
    log.write_bytes(b"x" + log.read_bytes()[1:])
    trouble = kafkafs("diff", before, damaged, "cmp-plain")
    assert trouble.exit_code == 2
    assert f"{log}: position 0" in trouble.stderr


def test_a_line_or_an_object_for_each_difference(
    kafkafs: Kafkafs, corpus: Corpus, tmp_path: Path
) -> None:
    first, second = corpus("kafka43-clean"), tmp_path / "copy"
    shutil.copytree(first, second)
    shutil.rmtree(second / "orders-1")
    shutil.rmtree(second / "one-0")
    (second / "meta.properties").write_text(
        (second / "meta.properties").read_text().replace("cluster.id=", "cluster.id=x")
    )
    (second / "orders-0" / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n3 600\n")
    words = ("diff", first, second)
    text = kafkafs(*words).stdout.splitlines()
    assert text[0].startswith("cluster id: ")
    assert text[1:] == [
        f"one: only in {first}",
        f"orders/0: the copies diverge at offset 600: leader epoch 0 in {first}, 3 in {second};"
        f" {second} is more up to date",
        f"orders/1: only in {first}",
    ]
    rows = [json.loads(line) for line in kafkafs(*words, "--json").stdout.splitlines()]
    assert [row["difference"] for row in rows] == [
        "cluster id", "topic", "divergence", "partition",
    ]  # fmt: skip


def test_two_lives_of_a_topic_are_called_so(kafkafs: Kafkafs, corpus: Corpus) -> None:
    one, two = (f"{corpus('cluster43')}/{node}" for node in (1, 2))
    assert kafkafs("diff", one, two, "reborn").stdout.splitlines() == [
        f"reborn: two lives of the topic: topic id lEJzfSo2S0-hzSjQs9redw in {one},"
        f" rOU1hbxXQ2OD9HXCXYwjLQ in {two}",
        "reborn/0: offsets 0 to 19 (20 records): different records",
        f"reborn/0: offsets 20 to 49: only in {two}: past the log end offset in {one}",
    ]


def test_either_side_may_have_the_preferred_directory(kafkafs: Kafkafs, corpus: Corpus) -> None:
    one, two, three = (f"{corpus('cluster43')}/{node}" for node in (1, 2, 3))
    for sides in ((f"{one},{two}", three), (three, f"{one},{two}")):
        refused = kafkafs("diff", *sides, "reborn")
        assert "-c kafkafs.prefer.dir=DIRECTORY" in stderr_of(refused, 2)
        same = kafkafs("diff", *sides, "reborn", "-c", f"kafkafs.prefer.dir={one}")
        assert (same.exit_code, same.stdout, same.stderr) == (0, "", "")
        wrong = kafkafs("diff", *sides, "-c", "kafkafs.prefer.dir=/other")
        assert f"must be one of {sides[0].replace(',', ', ')} (got" in stderr_of(wrong, 2)
