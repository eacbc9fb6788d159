"""The verb `append` of `.kafkafs/control`: the lines that follow it become records."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from kafkafs.storage.errors import BadLine
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.encoder import BatchPlan
from kafkafs.storage.format.records.record_columns import RecordColumns
from kafkafs.storage.lines import json_input, text_input
from kafkafs.storage.lines.line_appender import LineAppender
from kafkafs.storage.lines.text_input import Parse

from ..vfs.errnos import Invalid
from .conversation import Control, Emit, Fed, Row, Work

#: The fields of the verb's JSON object.
FIELDS: Final[Mapping[str, type]] = {
    "topic": str,
    "partition": int,
    "format": str,
    "keySeparator": str,
    "compression": str,
    "batchSize": int,
    "size": int,
    "lines": int,
    "sync": bool,
}
_MAX_BYTES: Final = 64 << 20


def fed_lines(control: Control, given: Mapping[str, Any]) -> Fed:
    """Prepares the verb: `size` bytes of whole lines follow and are appended once they have all
    arrived. `lines` is how many lines were sent before, `sync` whether to flush afterwards. Raises
    Invalid, UnknownTopic or UnknownPartition."""
    size = given.get("size", 0)
    if not 0 <= size <= _MAX_BYTES:
        raise Invalid(f"size must be from 0 to {_MAX_BYTES}")
    writer = control.engine.writer(given.get("topic", ""), given.get("partition", -1))
    parse, plan = _parse(given), _plan(given)

    def append(data: bytes, emit: Emit) -> None:
        done: Row = {"records": 0, "firstOffset": None, "lastOffset": None}

        def take(records: RecordColumns) -> None:
            stamped = records.stamped(control.engine.clock.now_ms())
            appended = writer.append_records(stamped, plan)
            if not done["records"]:
                done["firstOffset"] = appended.first_offset
            done["lastOffset"] = appended.last_offset
            done["records"] += len(records)

        appender = LineAppender(parse, take)
        appender.lines = given.get("lines", 0)
        try:
            appender.append(data)
        except BadLine as bad:
            done["badLine"] = str(bad)
        if given.get("sync", False):
            writer.flush()
        emit({**done, "lines": appender.lines})

    return Fed(size, lambda data: Work(partial(append, data), is_quick=True))


def _parse(given: Mapping[str, Any]) -> Parse:
    form = given.get("format", "lines")
    if form not in ("lines", "jsonl"):
        raise Invalid("format must be lines or jsonl")
    separator = given.get("keySeparator", "").encode("utf-8", "surrogateescape")
    if form == "jsonl":
        return json_input.parse_json
    if not separator:
        return text_input.parse_values
    return lambda data: text_input.parse_keyed(data, separator)


def _plan(given: Mapping[str, Any]) -> BatchPlan:
    try:
        codec = Codec[given.get("compression", "none").upper()]
    except KeyError:
        raise Invalid("compression must be none, gzip, snappy, lz4 or zstd") from None
    size = given.get("batchSize", 16384)
    if size < 1:
        raise Invalid("batchSize must be at least 1")
    return BatchPlan(batch_bytes=size, codec=codec)
