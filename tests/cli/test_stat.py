"""Tests of `kafkafs stat`."""

from __future__ import annotations

import json
from pathlib import Path

from click.testing import Result

from tests import answers
from tests.cli.results import Kafkafs, rows_of


def fields(result: Result) -> dict[str, str]:
    """Returns the names and values in the lines below the path."""
    assert (result.exit_code, result.stderr) == (0, "")
    lines = (line.strip().partition(" ") for line in result.stdout.splitlines()[1:])
    return {name: value.strip() for name, _, value in lines}


def test_a_record(kafkafs: Kafkafs, clean: Path) -> None:
    result = kafkafs("stat", clean, "orders/0/offset/600")
    assert result.stdout.startswith("orders/0/offset/600\n  kind  ")
    found = fields(result)
    assert found["kind"] == "file"
    assert found["mode"] == "0444"
    assert found["size"] == "110"
    assert found["mtime"] == "2026-09-01T12:35:44.663Z"
    assert found["user.kafka.key"] == "customer-519"
    assert found["user.kafka.timestamp"] == "1788266144663"
    assert json.loads(found["user.kafka.batch"])["position"] == 106619


def test_json(kafkafs: Kafkafs, clean: Path) -> None:
    record, root = rows_of(kafkafs("stat", "--json", clean, "orders/0/offset/600", "/"))
    assert record["path"] == "orders/0/offset/600"
    assert record["mtime"] == 1788266144663
    assert record["xattrs"]["user.kafka.codec"] == "none"
    assert int(record["inode"]) > 0
    assert (root["path"], root["kind"], root["xattrs"]) == ("/", "directory", {})


def test_the_root_is_meant_without_a_path(kafkafs: Kafkafs, clean: Path) -> None:
    assert fields(kafkafs("stat", clean))["kind"] == "directory"


def test_links(kafkafs: Kafkafs, clean: Path) -> None:
    itself = fields(kafkafs("stat", clean, "orders/0/offset/last"))
    assert (itself["kind"], itself["target"]) == ("link", "6673")
    led_to = fields(kafkafs("stat", "-L", clean, "orders/0/offset/last"))
    assert (led_to["kind"], led_to["user.kafka.offset"]) == ("file", "6673")


def test_values_that_are_no_text(kafkafs: Kafkafs, clean: Path) -> None:
    records = answers.records("kafka43-clean", "codec-none", 0)
    record = next(r for r in records if dict(r.headers).get("bytes") == b"\xff\xfe\x00\x80\n")
    path = f"codec-none/0/offset/{record.offset}"
    assert fields(kafkafs("stat", clean, path))["user.kafka.header.bytes"] == "0xfffe00800a"
    (found,) = rows_of(kafkafs("stat", "--json", clean, path))
    assert found["xattrs"]["user.kafka.header.bytes"] == {"base64": "//4AgAo="}


def test_what_is_not_there(kafkafs: Kafkafs, clean: Path) -> None:
    result = kafkafs("stat", "--json", clean, "orders/0/offset/6674", "orders")
    assert result.exit_code == 1
    assert json.loads(result.stdout)["path"] == "orders"
    assert result.stderr == (
        "kafkafs: orders/0/offset/6674: offset 6674 is past the end of orders/0 (0 to 6673)\n"
    )
