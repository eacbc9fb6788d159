"""Kafka's own answers about the corpora, as typed values; data/README.md explains the files."""

from __future__ import annotations

import base64
import functools
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"

#: Every corpus; the name says which version wrote it and in what state it was left.
CORPORA = tuple(sorted(path.name.removesuffix(".tar.gz") for path in (DATA / "corpora").iterdir()))

READ_COMMITTED = "read_committed"
READ_UNCOMMITTED = "read_uncommitted"


@dataclass(frozen=True, slots=True)
class ExpectedRecord:
    """A record as Kafka's consumer delivered it; `leader_epoch` is None for formats v0 and v1."""

    offset: int
    timestamp: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    leader_epoch: int | None


@dataclass(frozen=True, slots=True)
class ExpectedOffsets:
    """The answers to ListOffsets; `max_timestamp` is (offset, timestamp), or None if unknown."""

    beginning: int
    end: int
    last_stable: int
    max_timestamp: tuple[int, int] | None


@dataclass(frozen=True, slots=True)
class ExpectedTime:
    """The answer to offsetsForTimes(`timestamp`); the last two are None if nothing was found."""

    topic: str
    partition: int
    timestamp: int
    offset: int | None
    found_timestamp: int | None


def directory(corpus: str) -> Path:
    """Returns the directory of the answers about `corpus`."""
    return DATA / "expected" / corpus


def partitions(corpus: str) -> list[tuple[str, int]]:
    """Returns every partition that the broker listed, including internal topics, in order."""
    return sorted(offsets(corpus))


def partitions_with_records(corpus: str) -> list[tuple[str, int]]:
    """Returns the partitions for which `records` works; none in the crashed states, which no
    consumer read."""
    folder = directory(corpus) / "records"
    names = {path.name.split(".jsonl")[0] for path in folder.glob("*.jsonl.gz")}
    plain = {name.removesuffix(".committed").removesuffix(".uncommitted") for name in names}
    return sorted(_split(name) for name in plain)


def records(
    corpus: str, topic: str, partition: int, isolation: str = READ_COMMITTED
) -> Iterator[ExpectedRecord]:
    """Returns what a consumer with that `isolation.level` got, in order."""
    folder = directory(corpus) / "records"
    path = folder / f"{topic}-{partition}.jsonl.gz"
    if not path.exists():
        suffix = {READ_COMMITTED: "committed", READ_UNCOMMITTED: "uncommitted"}[isolation]
        path = folder / f"{topic}-{partition}.{suffix}.jsonl.gz"
    return iter(_records(path))


@functools.cache  # many tests ask for the same ones, and parsing takes longer than what they test
def _records(path: Path) -> tuple[ExpectedRecord, ...]:
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return tuple(record(json.loads(line)) for line in lines)


def record(line: dict[str, Any]) -> ExpectedRecord:
    """Parses a line of a records file, or an answer of the live driver, which has the same form."""
    return ExpectedRecord(
        offset=line["offset"],
        timestamp=line["timestamp"],
        timestamp_type=line["timestamp_type"],
        key=_bytes(line["key"]),
        value=_bytes(line["value"]),
        headers=tuple((name, _bytes(value)) for name, value in line["headers"]),
        leader_epoch=line["leader_epoch"],
    )


def isolations(corpus: str, topic: str, partition: int) -> tuple[str, ...]:
    """Returns the isolation levels whose answers differ: only READ_COMMITTED if both levels got the
    same records."""
    both = (directory(corpus) / "records" / f"{topic}-{partition}.jsonl.gz").exists()
    return (READ_COMMITTED,) if both else (READ_COMMITTED, READ_UNCOMMITTED)


def offsets(corpus: str) -> dict[tuple[str, int], ExpectedOffsets]:
    """Returns the start, end and last stable offsets and the largest timestamp of every
    partition."""
    answers = {}
    for name, answer in _json(corpus, "offsets.json").items():
        largest = answer["max_timestamp"]
        answers[_split(name)] = ExpectedOffsets(
            beginning=answer["beginning"],
            end=answer["end"],
            last_stable=answer["end_read_committed"],
            max_timestamp=largest and (largest["offset"], largest["timestamp"]),
        )
    return answers


def times(corpus: str) -> list[ExpectedTime]:
    """Returns every timestamp that was looked up, and what the broker found."""
    with (directory(corpus) / "times.jsonl").open(encoding="utf-8") as lines:
        answers = [json.loads(line) for line in lines]
    return [
        ExpectedTime(
            topic=answer["topic"],
            partition=answer["partition"],
            timestamp=answer["timestamp"],
            offset=answer["offset"],
            found_timestamp=answer["found_timestamp"],
        )
        for answer in answers
    ]


def topic_ids(corpus: str) -> dict[str, str]:
    """Returns the topic IDs by topic, in Kafka's URL-safe base64."""
    return {name: topic["topic_id"] for name, topic in _json(corpus, "partitions.json").items()}


def topic_configs(corpus: str) -> dict[str, dict[str, str]]:
    """Returns the configs set on each topic itself, without those inherited from the broker."""
    return {
        name: {
            setting: config["value"]
            for setting, config in topic["configs"].items()
            if config["source"] == "DYNAMIC_TOPIC_CONFIG"
        }
        for name, topic in _json(corpus, "partitions.json").items()
    }


def damage() -> list[dict[str, Any]]:
    """Returns what was done to the files of kafka43-torn, as described by its torn.json."""
    with (directory("kafka43-torn") / "torn.json").open(encoding="utf-8") as source:
        done: list[dict[str, Any]] = json.load(source)
    return done


@functools.cache
def _json(corpus: str, name: str) -> dict[str, Any]:
    with (directory(corpus) / name).open(encoding="utf-8") as source:
        loaded: dict[str, Any] = json.load(source)
    return loaded


def _split(name: str) -> tuple[str, int]:
    topic, _, partition = name.rpartition("-")
    return topic, int(partition)


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)
