"""The schemas of a registry through the Python API."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import kafkafs
from tests import answers

Corpus = Callable[[str], Path]


def test_versions_are_those_of_the_registry(corpus: Corpus) -> None:
    expected = json.loads((answers.directory("schemas43") / "registry.json").read_text())
    with kafkafs.open(corpus("schemas43")) as d:
        versions = d.schemas()
        [first, second] = d.schemas("s-avro-value")
    served = [each for each in versions if each.deletion != "hard"]
    assert {(each.subject, str(each.version)): each.schema.id for each in served} == {
        (subject, number): version["id"]
        for subject, numbers in expected["subjects"].items()
        for number, version in numbers.items()
    }
    assert first.schema.text == expected["schemas"]["1"]["schema"]
    assert second.schema.type == "AVRO"
    assert [each.schema.id for each in versions if each.deletion == "hard"] == [12, 13]


def test_before_the_registry_wrote(corpus: Corpus) -> None:
    with kafkafs.open(corpus("schemas43")) as d:
        assert d.schemas(at=0) == []
        with pytest.raises(kafkafs.UnknownSchema, match="no subject nobody"):
            d.schemas("nobody")


def test_damage_is_raised_or_reported(corpus: Corpus, tmp_path: Path) -> None:
    log_dir = shutil.copytree(corpus("schemas43"), tmp_path / "data")
    [log] = (log_dir / "_schemas-0").glob("*.log")
    data = bytearray(log.read_bytes())
    data[data.index(b"Shorts_soft")] ^= 0xFF
    log.write_bytes(data)
    errors: list[Exception] = []
    with kafkafs.open(log_dir) as d:
        with pytest.raises(kafkafs.CorruptError, match=r"\.log: position \d+: "):
            d.schemas()
        assert d.schemas(on_damage=errors.append)
    assert errors
