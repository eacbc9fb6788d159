"""Tests of `kafkafs transactions`."""

from __future__ import annotations

import json

from kafkafs.storage.log_dirs.engine import Engine
from tests.cli.results import Corpus, Kafkafs, lines_of, stderr_of
from tests.conftest import differences, fingerprint


def test_those_that_a_broker_left_open(kafkafs: Kafkafs, corpus: Corpus) -> None:
    root = corpus("kafka43-clean")
    before = fingerprint(root)
    [found] = map(json.loads, lines_of(kafkafs("transactions", root, "--json")))
    assert (found["topic"], found["partition"], found["firstOffset"]) == ("txn-open", 0, 29)
    table = kafkafs("transactions", root).stdout.splitlines()
    assert table[0].split() == [
        "TOPIC", "PARTITION", "PRODUCER", "ID", "EPOCH", "FIRST", "OFFSET", "LAST", "RECORD",
    ]  # fmt: skip
    assert table[1].split()[:3] == ["txn-open", "0", str(found["producerId"])]
    assert kafkafs("transactions", root, "orders").output == ""
    assert differences(before, fingerprint(root)) == []


def test_one_is_ended(kafkafs: Kafkafs, writable_corpus: Corpus) -> None:
    root = writable_corpus("kafka43-clean")
    [found] = map(json.loads, kafkafs("transactions", root, "--json").stdout.splitlines())
    view = Engine(str(root)).log("txn-open", 0).view()
    assert (view.last_stable_offset, view.end_offset) == (29, 61)
    producer = found["producerId"]
    for words in (["--abort", producer, root, "orders"], ["--abort", 987654, root]):
        assert "has no transaction open there" in stderr_of(kafkafs("transactions", *words))
    result = kafkafs("transactions", "--abort", producer, root, "--json")
    assert (result.exit_code, json.loads(result.stdout)) == (0, found)
    assert kafkafs("transactions", root).output == ""
    view = Engine(str(root)).log("txn-open", 0).view()
    assert (view.last_stable_offset, view.end_offset) == (62, 62)
    assert kafkafs("verify", root, "txn-open").exit_code == 0
