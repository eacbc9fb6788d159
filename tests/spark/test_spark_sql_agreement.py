"""The same questions to `kafkafs sql`, to Spark SQL, and to plain Python over records."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path

import pytest
from click.testing import CliRunner
from pyspark.sql import SparkSession

import kafkafs
from kafkafs.cli.main import cli
from kafkafs.storage import Record
from tests import answers

Corpus = Callable[[str], Path]
Rows = set[tuple[object, ...]]
NOON, NEXT_NOON = 1788264000000, 1788350400000
TOTAL = "DECIMAL(18, 2)"


def numbered(path: Path, topic: str) -> Iterator[tuple[int, Record]]:
    with kafkafs.open(path) as d:
        for number in d.topics[topic]:
            yield from ((number, record) for record in d[topic, number].records())


def records(path: Path, topic: str) -> Iterator[Record]:
    return (record for _, record in numbered(path, topic))


def counts_by_partition(path: Path) -> Rows:
    return set(Counter(number for number, _ in numbered(path, "orders")).items())


def offsets_of_a_day(path: Path) -> Rows:
    return {
        (number, each.offset)
        for number, each in numbered(path, "orders")
        if NOON <= each.timestamp < NEXT_NOON and 1000 <= each.offset <= 1200
    }


def total(path: Path) -> Rows:
    values = (
        json.loads(each.value or b"", parse_float=Decimal) for each in records(path, "orders")
    )
    return {(str(sum((each["total"] for each in values), Decimal())),)}


def frequent_keys(path: Path) -> Rows:
    found: defaultdict[bytes, list[int]] = defaultdict(list)
    for each in records(path, "orders"):
        found[each.key or b""].append(each.offset)
    return {(key.decode(), len(of), max(of)) for key, of in found.items() if len(of) > 45}


def customers(path: Path) -> Rows:
    """As Confluent's deserializers answered."""
    lines = (answers.directory("schemas43") / "decoded.jsonl").read_text().splitlines()
    values = [each["value"] for each in map(json.loads, lines) if each["topic"] == "s-avro"]
    named = (each["value"]["customer"] for each in values if each["kind"] == "avro")
    return set(Counter(named).items())


def committed(path: Path) -> Rows:
    offsets = [each.offset for topic in ("txn", "txn-open") for each in records(path, topic)]
    return {(len(offsets), min(offsets), max(offsets), sum(offsets))}


def header_names(path: Path) -> Rows:
    named = (name for each in records(path, "codec-gzip") for name, _ in each.headers)
    return set(Counter(named).items())


@dataclass(frozen=True)
class Question:
    """`text` is SQL that both understand, with names in double quotes; `spark` that of Spark if it
    needs other functions. `options`: those of a read with Spark."""

    answer: Callable[[Path], Rows]
    topics: tuple[str, ...]
    text: str
    spark: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    corpus: str = "kafka43-clean"


QUESTIONS = (
    Question(
        counts_by_partition,
        ("orders",),
        'SELECT partition, count(*) FROM "orders" GROUP BY partition',
    ),
    Question(
        offsets_of_a_day,
        ("orders",),
        'SELECT partition, "offset" FROM "orders"'
        " WHERE timestamp >= TIMESTAMP '2026-09-01 12:00:00'"
        " AND timestamp < TIMESTAMP '2026-09-02 12:00:00' AND \"offset\" BETWEEN 1000 AND 1200",
    ),
    Question(
        total,
        ("orders",),
        f"SELECT sum(CAST(decode(value)::JSON ->> '$.total' AS {TOTAL}))::VARCHAR FROM orders",
        f"SELECT string(sum(CAST(get_json_object(string(value), '$.total') AS {TOTAL})))"
        " FROM orders",
    ),
    Question(
        frequent_keys,
        ("orders",),
        'SELECT decode(key), count(*), max("offset") FROM "orders" GROUP BY key'
        " HAVING count(*) > 45",
        "SELECT string(key), count(*), max(offset) FROM orders GROUP BY key HAVING count(*) > 45",
    ),
    Question(
        customers,
        ("s-avro",),
        'SELECT decoded.customer, count(*) FROM "s-avro"'
        " WHERE decoded IS NOT NULL AND decodeError IS NULL GROUP BY decoded.customer",
        options={"decodeValue": "registry"},
        corpus="schemas43",
    ),
    Question(
        committed,
        ("txn", "txn-open"),
        'SELECT count(*), min("offset"), max("offset"), CAST(sum("offset") AS BIGINT) FROM'
        ' (SELECT "offset" FROM "txn" UNION ALL SELECT "offset" FROM "txn-open")',
        options={"kafka.isolation.level": "read_committed"},
    ),
    Question(
        header_names,
        ("codec-gzip",),
        "SELECT h.key, count(*) FROM"
        ' (SELECT unnest(headers) AS h FROM "codec-gzip") GROUP BY h.key',
        "SELECT h.key, count(*) FROM"
        " (SELECT explode(headers) AS h FROM `codec-gzip`) GROUP BY h.key",
        options={"includeHeaders": "true"},
    ),
)


@pytest.mark.spark
@pytest.mark.parametrize("question", QUESTIONS, ids=lambda each: each.answer.__name__)
def test_all_three_answer_alike(spark: SparkSession, corpus: Corpus, question: Question) -> None:
    path = corpus(question.corpus)
    expected = question.answer(path)
    assert expected
    arguments = ["sql", str(path), question.text, "--format", "jsonl"]
    done = CliRunner().invoke(cli, arguments)
    assert (done.exit_code, done.stderr) == (0, "")
    found = [tuple(json.loads(line).values()) for line in done.stdout.splitlines()]
    assert len(found) == len(expected)
    assert set(found) == expected

    for topic in question.topics:
        reader = spark.read.format("kafkafs").options(subscribe=topic, **question.options)
        reader.load(str(path)).createOrReplaceTempView(f"`{topic}`")
    text = question.spark or question.text.replace('"', "`")
    rows = [tuple(row) for row in spark.sql(text).toLocalIterator()]
    assert len(rows) == len(expected)
    assert set(rows) == expected
