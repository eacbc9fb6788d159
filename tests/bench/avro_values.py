"""Rows 43 and 48: flat Avro values as columns, through `scan(decode=True)`, and as the lines of
`decoded.jsonl`, against a loop of fastavro."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any, Final

import fastavro

import kafkafs
from tests import registry_records
from tests.bench.data import TOPIC, kept
from tests.bench.machine import last_core
from tests.bench.plan import Plan
from tests.bench.race import Outcomes, python_task, race, versus

SCHEMA: Final[dict[str, Any]] = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "order", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "quantity", "type": "int"},
        {"name": "price", "type": "double"},
        {"name": "paid", "type": "boolean"},
        {"name": "note", "type": ["null", "string"]},
    ],
}
#: The bytes of Confluent's framing before each datum.
PREFIX: Final = b"\0\0\0\0\x07"
_APPENDED: Final = 50_000


def scan(plan: Plan) -> Outcomes:
    """Row 43. Ours includes reading the log; fastavro has the values in memory, as bytes. Both have
    one core."""
    records = max(plan.records // 8, 1)
    log, core = str(_log(records)), last_core()
    seconds = race(
        {
            "ours": python_task("decoded", log, core=core),
            "fastavro": python_task("fastavro", log, core=core),
        },
        plan.repetitions,
    )
    yield versus(
        43, "scan with flat Avro values decoded, one core", (seconds["ours"], seconds["fastavro"]),
        "fastavro in a loop", 10.0, amount=records / 1e6, unit="M rec/s",
    )  # fmt: skip


def lines(plan: Plan) -> Outcomes:
    """Row 48. Ours includes reading the log, and all that a line has beside the value; the peers
    have the values in memory, and the second makes their JSON text only. All have one core."""
    records = max(plan.records // 8, 1)
    log, core = str(_log(records)), last_core()
    seconds = race(
        {
            "ours": python_task("decoded_lines", log, core=core),
            "fastavro": python_task("fastavro", log, core=core),
            "json": python_task("fastavro", log, "json", core=core),
        },
        plan.repetitions,
    )
    for peer, name in (("fastavro", "fastavro in a loop"), ("json", "the same and json.dumps")):
        yield versus(
            48, "decoded.jsonl of flat Avro values, one core", (seconds["ours"], seconds[peer]),
            name, 3.0, amount=records / 1e6, unit="M rec/s",
        )  # fmt: skip


def _log(records: int) -> Path:
    return kept(f"avro-{records}", lambda directory: _write(directory, records))


def _write(directory: Path, records: int) -> None:
    version = registry_records.schema(f"{TOPIC}-value", 1, 7, json.dumps(SCHEMA))
    with kafkafs.open(directory, writable=True) as d:
        for topic in ("_schemas", TOPIC):
            d.create_topic(topic)
        d["_schemas", 0].append([kafkafs.ProducerRecord(version.value, key=version.key)])
        schema = fastavro.parse_schema(SCHEMA)
        for first in range(0, records, _APPENDED):
            numbers = range(first, min(first + _APPENDED, records))
            d[TOPIC, 0].append([_value(schema, number) for number in numbers])


def _value(schema: Any, number: int) -> bytes:
    out = io.BytesIO()
    out.write(PREFIX)
    order = {
        "order": number,
        "customer": f"customer-{number % 977}",
        "quantity": number % 10,
        "price": number / 7,
        "paid": number % 3 == 0,
        "note": None if number % 4 else "a gift",
    }
    fastavro.schemaless_writer(out, schema, order)
    return out.getvalue()
