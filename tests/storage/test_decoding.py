"""Keys and values of records, decoded with the schemas that they name."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

import pytest

from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.schemas.catalog import SchemaCatalog
from kafkafs.storage.schemas.decoding import Decoded, Decoders
from tests import answers

Corpus = Callable[[str], Path]
#: What Confluent's deserializers take no notice of, and we show with the value.
BYTES_LEFT: Final = "bytes are left over"


def as_json(found: Decoded, *, is_key: bool) -> dict[str, Any]:
    """Returns a key or value as in the corpus."""
    row: dict[str, Any] = {"kind": found.kind, "value": found.value}
    named = found.named
    if named.framing == "none":
        return row
    row["framing"] = named.framing
    row["schema_id"] = named.schema_id
    if named.guid is not None:
        row["guid"] = str(named.guid)
    if named.message:
        row |= {"message_index": list(named.message_index), "message": named.message}
    if found.error is not None and found.error != BYTES_LEFT:
        row["error"] = found.error
    if named.subject is not None and not is_key:
        row |= {"subject": named.subject.subject, "version": named.subject.version}
    return row


def scanned(engine: Engine, topic: str, number: int) -> Iterator[Columns]:
    for part in engine.log(topic, number).view().scan():
        assert isinstance(part, Columns)
        yield part


@pytest.fixture
def engine(corpus: Corpus) -> Iterator[Engine]:
    with closing(Engine(str(corpus("schemas43")))) as engine:
        yield engine


def test_records_equal_those_of_confluents_deserializers(engine: Engine) -> None:
    lines = (answers.directory("schemas43") / "decoded.jsonl").read_text().splitlines()
    expected = [json.loads(line) for line in lines]
    decoders = Decoders(SchemaCatalog(engine).schemas())
    left_over = 0
    found: dict[tuple[str, int, int], tuple[Decoded, Decoded]] = {}
    for topic, number in dict.fromkeys((row["topic"], row["partition"]) for row in expected):
        decoder = decoders.for_topic(topic)
        for columns in scanned(engine, topic, number):
            keys = decoder.decoded(columns, is_key=True)
            values = decoder.decoded(columns)
            places = ((topic, number, offset) for offset in columns.offsets.tolist())
            found |= dict(zip(places, zip(keys, values, strict=True), strict=True))
    assert len(found) == len(expected)
    for row in expected:
        key, value = found[row["topic"], row["partition"], row["offset"]]
        left_over += value.error == BYTES_LEFT
        for one, name in ((key, "key"), (value, "value")):
            want = row[name]
            subjects = want.pop("subjects", None)
            if subjects is not None:
                assert one.named.schema is not None
                of_id = decoders.schemas.subjects_of(one.named.schema)
                assert [[e.subject, e.version, e.is_deleted] for e in of_id] == subjects
            made = as_json(one, is_key=name == "key")
            assert ("error" in made) == ("error" in want), (row, made)
            if "error" in want and want.pop("error") == "no schema with this id":
                assert made["error"].startswith("no schema with this id")
            made.pop("error", None)
            assert made == want, (row["topic"], row["offset"], name)
    assert left_over == 6
