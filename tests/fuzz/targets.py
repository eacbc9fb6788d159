"""The functions that the fuzz suite feeds with bytes from hypothesis, mutated corpora or atheris.

A target returns if the bytes were read or properly refused. Anything else is a finding: an
exception that is not the engine's, a crash, a hang, or an access out of bounds.
"""

from __future__ import annotations

import itertools
import json
import os
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from kafkafs.storage.cleaner.cleaning import clean
from kafkafs.storage.cleaner.offset_map import OffsetMap
from kafkafs.storage.config.kafka import TopicConfig
from kafkafs.storage.config.topic_file import parse_topic_configs
from kafkafs.storage.errors import CorruptError, OffsetNotFound, Refused, StorageError
from kafkafs.storage.format.files.checkpoints import (
    parse_leader_epochs,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)
from kafkafs.storage.format.files.quorum_state import parse_quorum_state
from kafkafs.storage.format.files.snapshot import parse_producer_snapshot
from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.messages.control import control_type
from kafkafs.storage.format.records.arrow import to_record_batch
from kafkafs.storage.format.records.batch import MAGIC, BatchTable, scan
from kafkafs.storage.format.records.codecs import Scratch, decompress
from kafkafs.storage.format.records.columns import KEY_START, VALUE_START, Columns, Damage
from kafkafs.storage.format.records.decoder import BadBatch, Decoder
from kafkafs.storage.format.records.encoder import put_checksums
from kafkafs.storage.format.records.validate import AppendOrigin, ValidationRules, validate_batches
from kafkafs.storage.lines.json_input import parse_json
from kafkafs.storage.lines.json_output import json_lines, keys_lines, values_lines
from kafkafs.storage.lines.text_input import parse_keyed, parse_values
from kafkafs.storage.log.read.explain import broker_answer
from kafkafs.storage.log.read.transactions import Isolation
from kafkafs.storage.log.read.view import View
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations import why
from kafkafs.storage.operations.groups import (
    ListGroups,
    ListMembers,
    list_groups,
    list_members,
)
from kafkafs.storage.transactions.decisions import parse_decisions
from tests.cleaning import Rewritten, log_to_clean
from tests.reading import lines, lines_by_columns

MAX_BATCH_BYTES = 1 << 20
_DECODER = Decoder(MAX_BATCH_BYTES)


def batches(data: bytes) -> None:
    """Reads bytes as batches, assuming that checksums are right: decodes every header that parses,
    and renders the result in every form."""
    table, _ = scan(data, len(data), 0, BatchTable.empty(64), whole=True)
    for part in _DECODER.decode(memoryview(data), 0, table, "file"):
        if isinstance(part, BadBatch):
            assert part.error.what
        else:
            rendered(part)
    control_type(data)


def sent(data: bytes) -> None:
    """Appends bytes that a client may send, both as they are and with corrected checksums. Whatever
    is accepted must be readable."""
    buffer = bytearray(data)
    table, _ = scan(data, len(data), 0, BatchTable.empty(64), whole=True)
    put_checksums(memoryview(buffer), table.select(table.column(MAGIC) == 2))
    for origin, codec in itertools.product(AppendOrigin, (None, Codec.NONE, Codec.LZ4)):
        rules = ValidationRules(codec=codec, max_batch_bytes=MAX_BATCH_BYTES)
        for each in (data, bytes(buffer)):
            with suppress(Refused):
                batches(bytes(validate_batches(each, rules, origin, now_ms=0).data))


def payload(data: bytes) -> None:
    """Decompresses a payload; the first byte selects codec and magic."""
    if data:
        codec = (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)[data[0] % 4]
        with suppress(CorruptError):
            decompress(
                codec, memoryview(data), 1, len(data), data[0] >> 6, Scratch(MAX_BATCH_BYTES)
            )


def small_file(data: bytes) -> None:
    """Parses one of the small files of a log directory, or lines to append."""
    for parse in (
        parse_offsets,
        parse_leader_epochs,
        parse_meta_properties,
        parse_partition_metadata,
        parse_quorum_state,
        parse_producer_snapshot,
        parse_topic_configs,
        parse_decisions,
    ):
        with suppress(CorruptError):
            parse(data)
    for parsed in (parse_json(data), parse_values(data), parse_keyed(data, b":")):
        assert len(parsed.records) <= data.count(b"\n") + 1


def log_dir(path: Path) -> None:
    """Reads a log directory and everything in it."""
    try:
        engine = Engine(str(path), {"kafkafs.max.batch.bytes": str(MAX_BATCH_BYTES)})
    except StorageError:
        return
    for topic, numbers in engine.topics().items():
        with suppress(StorageError):
            engine.topic_id(topic)
            engine.topic_config(topic)
        for number in numbers:
            with suppress(StorageError):
                view = engine.log(topic, number).view()
                partition(view)
    for row in itertools.chain(
        list_groups(engine, ListGroups()), list_members(engine, ListMembers())
    ):
        json.dumps(row.as_json())
    assert all(isinstance(problem, str) for problem in engine.problems)


def is_file(path: str) -> bool:
    """Returns whether it is a regular file and not a link to one."""
    return stat.S_ISREG(os.lstat(path).st_mode)


def cleaned(view: View) -> None:
    """Cleans all segments but the active one, discarding the output."""
    if len(view.segments) > 1:
        first, active = view.segments[0].base_offset, view.segments[-1].base_offset
        sink = Rewritten()
        with suppress(CorruptError):
            result = clean(log_to_clean(view, first, active), OffsetMap(1 << 12), sink)
            assert len(sink.data) == result.bytes_after
            batches(bytes(sink.data))


def explained(view: View) -> None:
    """Explains why each segment is present; this must work, and serialize, whatever a segment
    contains."""
    config = replace(TopicConfig(), cleanup_policy=("compact", "delete"))
    found = why.explained(view, config, checkpoint=None, now_ms=0)
    assert len(found.segments) == len(view.segments)
    json.dumps(found.as_json())


def partition(view: View) -> None:
    """Runs every query on a partition."""
    assert 0 <= view.start_offset <= view.last_stable_offset <= view.end_offset
    times = {0, view.max_timestamp}
    for isolation in Isolation:
        previous = view.start_offset - 1
        for part in view.scan(isolation=isolation):
            if isinstance(part, Damage):
                assert part.error.file
                # Positions are missing only if it is not a regular file.
                assert part.error.position >= 0 or not is_file(part.error.file)
                continue
            assert int(part.offsets[0]) > previous
            previous = int(part.offsets[-1])
            times.update(part.timestamps[:: max(len(part) // 3, 1)].tolist())
            rendered(part)
        assert previous < view.bound(isolation)
        for field in (KEY_START, VALUE_START):
            expected = lines_by_columns(view, field, isolation=isolation)
            assert lines(view, field, isolation=isolation) == expected
        for offset in _some_offsets(view):
            with suppress(OffsetNotFound, CorruptError):
                assert view.find(offset, isolation).offset == offset
        for time in sorted(times)[:8]:
            with suppress(CorruptError):
                view.offset_for_time(time, isolation)
                broker_answer(view, time, isolation)
        assert (view.first(isolation) is None) == (view.last(isolation) is None)
    explained(view)
    cleaned(view)


def _some_offsets(view: View) -> Iterator[int]:
    step = max((view.end_offset - view.start_offset) // 20, 1)
    yield from range(view.start_offset - 1, view.end_offset + 2, step)
    for segment in list(view.segments)[:8]:
        yield from (segment.base_offset - 1, segment.base_offset)


def rendered(columns: Columns) -> None:
    """Renders records in every output format."""
    rows = len(columns)
    assert bytes(values_lines(columns, "t", 0)).count(b"\n") >= rows
    assert bytes(keys_lines(columns, "t", 0)).count(b"\n") >= rows
    objects = bytes(json_lines(columns, "t", 0)).split(b"\n")
    assert len(objects) == rows + 1
    for line in (objects[0], objects[rows - 1]) if rows else ():
        json.loads(line)
    to_record_batch(columns, "t", 0).validate(full=True)
    for row in {0, rows - 1} if rows else ():
        record = columns.record(row)
        assert record.offset == int(columns.offsets[row])
