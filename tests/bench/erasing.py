"""Row 40: erasing one key, and a tenth of the keys, beside a compaction of the same bytes.

Both write again every segment but one. What they cost depends on how much they keep, since that is
copied or compressed again. So the compaction that counts is one that keeps about as many records as
the erasure, of a log of the same size whose records mostly have different keys. The other one is of
the very same log, and keeps a tenth of it. An erasure uses all processors and computes two SHA-256
of each segment; a compaction uses one, and an offset map.
"""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path

from kafkafs.storage.format.layout import Codec
from kafkafs.storage.log_dirs.selection import Selection
from kafkafs.storage.log_manager import LogManager
from kafkafs.storage.operations.erase import Erase, ErasedFile, erase
from tests.bench.compacting import compact, linked, scratch_directory
from tests.bench.data import TOPIC, keyed_log, keyed_segment_bytes, rolled_logs
from tests.bench.plan import Plan
from tests.bench.race import Call, Outcomes, race, versus

#: So few records have a key that another has, too, that nine of ten are kept.
_KEYS_OF_A_RECORD = 5
#: Enough for them.
_MAP_BYTES = 512 << 20


def against_compaction(plan: Plan) -> Outcomes:
    """Row 40, uncompressed and with zstd."""
    for codec in (Codec.NONE, Codec.ZSTD):
        yield from _of_codec(plan, codec)


def _of_codec(plan: Plan, codec: Codec) -> Outcomes:
    few = keyed_log(plan.compacted, plan.keys, codec)
    many = keyed_log(plan.compacted, plan.compacted * _KEYS_OF_A_RECORD, codec)
    size = keyed_segment_bytes(plan.compacted, codec)
    tenth = [b"key-%012d" % key for key in range(0, plan.keys, 10)]
    with scratch_directory() as scratch:

        def erased(keys: Collection[bytes]) -> Call:
            return Call(lambda: _erase(linked(scratch / "log", few), keys))

        def compacted(source: Path) -> Call:
            return Call(lambda: compact(linked(scratch / "log", source), size, _MAP_BYTES))

        seconds = race(
            {
                "one": erased(tenth[:1]),
                "tenth": erased(tenth),
                "many": compacted(many),
                "few": compacted(few),
            },
            plan.repetitions,
        )
    nbytes = sum(path.stat().st_size for path in rolled_logs(few / f"{TOPIC}-0"))
    name = codec.kafka_name
    for ours, what in (("one", "one key"), ("tenth", "a tenth of the keys")):
        for theirs, peer, target in (
            ("many", "compaction that keeps as many records", 1.0),
            ("few", "compaction of the same log, which keeps a tenth", None),
        ):
            yield versus(
                40, f"erase {what}, {name} ({nbytes / 1e6:,.0f} MB)",
                (seconds[ours], seconds[theirs]), peer, target,
            )  # fmt: skip


def _erase(log_dir: Path, keys: Collection[bytes]) -> float:
    """Erases all records of the keys. Returns the seconds."""
    with LogManager(str(log_dir)) as engine:
        started = time.perf_counter()
        rows = list(erase(engine, Erase(Selection.of(TOPIC), keys=frozenset(keys))))
        taken = time.perf_counter() - started
    assert rows
    assert all(isinstance(row, ErasedFile) for row in rows)
    return taken
