"""Compares the dump of every index and snapshot in the corpora with Kafka's own dump tool.

data/dumps.json has, for each file, the number of lines that DumpLogSegments of the broker's own
version printed, and the first 16 hexadecimal digits of the SHA-256 of those lines joined by
newlines (0 if it printed none).
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kafkafs.storage.io.disk import DirFd
from kafkafs.storage.segment.dump.dump import Dump, DumpOptions
from kafkafs.storage.segment.offset_index import OffsetIndex
from kafkafs.storage.segment.time_index import TimeIndex
from tests import answers

DUMPS = json.loads((answers.DATA / "dumps.json").read_text())


@pytest.mark.parametrize("name", DUMPS)
def test_files_read_as_kafka_dumps_them(name: str, corpus: Callable[[str], Path]) -> None:
    root = corpus(name)
    wrong = [path for path, digest in DUMPS[name].items() if digest_of(root / path) != digest]
    assert not wrong


@pytest.mark.parametrize("name", DUMPS)
def test_every_entry_is_found_by_looking_it_up(name: str, corpus: Callable[[str], Path]) -> None:
    root = corpus(name)
    for path in (path for path in DUMPS[name] if path.endswith("index")):
        directory, base = DirFd(str((root / path).parent)), int(Path(path).stem)
        if path.endswith(".index"):
            offsets = OffsetIndex.open(directory, Path(path).name, base)
            for slot, position in enumerate(offsets.entries()):
                assert offsets.lookup(position.offset) == offsets.entry(slot) == position
                assert offsets.lookup_position(position.position + 1) == position
                assert offsets.floor_slot(position.offset) == slot
        elif path.endswith(".timeindex"):
            times = TimeIndex.open(directory, Path(path).name, base)
            for slot, time in enumerate(times.entries()):
                assert times.lookup(time.timestamp) == times.entry(slot) == time
                assert times.floor_slot(time.timestamp) == slot


def digest_of(path: Path) -> int | list[int | str]:
    dump = Dump()
    dumped = dump.lines(DirFd(str(path.parent)), path.name, path.name)
    lines = [line for line in dumped if not line.endswith(" is empty.")]
    if "kafka28" in path.parts:
        lines = [as_by_2_8(line) for line in lines]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]
    return [len(lines), digest] if lines else 0


def as_by_2_8(line: str) -> str:
    """Converts a line about a producer to 2.8.2's form: no timestamp, and Scala's options."""
    line = re.sub(r" lastTimestamp: \d+", "", line)
    line = re.sub(r"OptionalLong\[(\d+)\]", r"Some(\1)", line)
    return line.replace("OptionalLong.empty", "None")


@given(
    st.sampled_from(["log", "index", "timeindex", "txnindex", "snapshot"]),
    st.lists(st.tuples(st.floats(0, 0.999), st.binary(max_size=9)), min_size=1, max_size=4),
)
def test_damage_is_told_and_ends_nothing(
    tmp_path_factory: pytest.TempPathFactory,
    corpus: Callable[[str], Path],
    kind: str,
    changes: list[tuple[float, bytes]],
) -> None:
    """Any bytes yield lines and complaints, and no other error."""
    directory = tmp_path_factory.mktemp("damaged")
    files = [directory / file.name for file in (corpus("kafka43-clean") / "txn-0").glob("*11.*")]
    for file in files:
        file.write_bytes((corpus("kafka43-clean") / "txn-0" / file.name).read_bytes())
    damaged = next(file for file in files if file.suffix == f".{kind}")
    data = bytearray(damaged.read_bytes())
    for at, new in changes:
        data[int(at * len(data)) : int(at * len(data)) + 1] = new
    damaged.write_bytes(data)
    for options in (DumpOptions(deep=True, contents=True), DumpOptions(is_sanity_check=True)):
        dump = Dump(options)
        found = [list(dump.lines(DirFd(str(directory)), each.name, "it")) for each in files]
        assert any(found)
        assert all(re.match(f"{directory}|[A-Z]", heading) for heading in dump.complaints)
