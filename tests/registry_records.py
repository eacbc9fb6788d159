"""Records as a schema registry writes them into its topic."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from kafkafs.storage.format.records.record_columns import SimpleRecord


def record(key: Any, value: Any) -> SimpleRecord:
    """Returns a record with this key and value as JSON; the value None is a tombstone."""
    return SimpleRecord(1000, json.dumps(key).encode(), value and json.dumps(value).encode())


def schema(
    subject: str,
    version: int,
    number: int,
    text: str = '"string"',
    references: Sequence[tuple[str, str, int]] = (),
    **others: Any,
) -> SimpleRecord:
    """Returns the record of a version with the id `number`; `references`: name, subject and version
    of each; `others`: more fields of the value."""
    key = {"keytype": "SCHEMA", "subject": subject, "version": version, "magic": 1}
    fields = ("name", "subject", "version")
    value = {
        "subject": subject,
        "version": version,
        "id": number,
        "schema": text,
        "deleted": False,
        "references": [dict(zip(fields, each, strict=True)) for each in references],
        **others,
    }
    return record(key, value)
