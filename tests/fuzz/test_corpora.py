"""Log directories of real brokers with some bytes changed."""

from __future__ import annotations

import functools
import random
import subprocess
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from kafkafs.storage.format.records.columns import Columns
from kafkafs.storage.log_dirs.engine import Engine
from tests import answers
from tests.batches import MUTATIONS, mutated
from tests.fuzz import targets
from tests.logs import Header, walk
from tests.reading import UNCOMMITTED, Plain, open_view, plain, scan

# Every format, codec and feature, in logs small enough to be read hundreds of times.
PARTITIONS = (
    *(
        ("kafka28", f"{topic}-0")
        for topic in ("mixed", "v0-gzip", "v0-lz4", "v1-none", "v1-snappy")
    ),
    *(("kafka28", f"{topic}-0") for topic in ("v1-compacted-gzip", "v1-appendtime", "v2")),
    *(("kafka43-clean", f"{topic}-0") for topic in ("txn", "txn-open", "compacted", "unordered")),
    *(("kafka43-clean", f"{topic}-0") for topic in ("idem", "recompressed", "trimmed", "emptied")),
    ("kafka43-clean", "one-0"),
    ("kafka43-clean", "__consumer_offsets-1"),
    ("compact-after2", "cmp-txn-0"),
    ("compact-after2", "cmp-zstd-0"),
)


@functools.cache
def files(corpus: str, partition: str) -> dict[str, bytes]:
    """Returns a partition's files by name; preallocated indexes are cut to 1 MiB."""
    archive = answers.DATA / "corpora" / f"{corpus}.tar.gz"
    with TemporaryDirectory() as name:
        member = f"{corpus}/{partition}"
        subprocess.run(["tar", "-xzf", archive, "-C", name, member], check=True)
        paths = sorted((Path(name) / member).iterdir())
        return {path.name: path.read_bytes()[: 1 << 20] for path in paths}


def write(directory: Path, contents: dict[str, bytes]) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    for name, data in contents.items():
        (directory / name).write_bytes(data)


def test_the_partitions_are_what_they_are_chosen_for() -> None:
    magics, codecs = set(), set()
    for corpus, partition in PARTITIONS:
        for name, data in files(corpus, partition).items():
            if name.endswith(".log"):
                for header in walk(data):
                    magics.add(header.magic)
                    codecs.add((header.attributes if header.magic == 2 else data[17]) & 7)
    assert magics == {0, 1, 2}
    assert codecs == {0, 1, 2, 3, 4}


@given(
    st.sampled_from(PARTITIONS),
    st.lists(st.tuples(st.integers(0, 1 << 20), MUTATIONS), min_size=1, max_size=5),
)
def test_any_file_of_a_partition_changed_anywhere(
    chosen: tuple[str, str], changes: list[tuple[int, list[tuple[str, int, int]]]]
) -> None:
    contents = dict(files(*chosen))
    names = sorted(contents)
    for which, mutations in changes:
        name = names[which % len(names)]
        contents[name] = mutated(contents[name], mutations)
    with TemporaryDirectory() as root:
        write(Path(root) / chosen[1], contents)
        targets.log_dir(Path(root))


@functools.cache
def records(corpus: str, partition: str) -> dict[int, Plain]:
    """Returns the records of the unchanged partition, by offset."""
    with TemporaryDirectory() as root:
        write(Path(root) / partition, files(corpus, partition))
        found, damage = scan(open_view(Path(root) / partition), isolation=UNCOMMITTED)
        assert not damage
        return {record.offset: record for record in found}


def spoil(
    contents: dict[str, bytes], which: int, mutation: tuple[str, int, int]
) -> tuple[str, list[Header], int]:
    """Changes one batch; returns its file, all original batches, and its number."""
    logs = [name for name, data in sorted(contents.items()) if name.endswith(".log") and data]
    name = logs[which % len(logs)]
    headers = list(walk(contents[name]))
    number = which // len(logs) % len(headers)
    header = headers[number]
    changed = mutated(header.data, [mutation])
    end = header.position + header.size
    contents[name] = contents[name][: header.position] + changed + contents[name][end:]
    return name, headers, number


@given(st.sampled_from(PARTITIONS), st.integers(0, 1 << 30), MUTATIONS.map(lambda some: some[0]))
@example(("kafka28", "v1-snappy-0"), 5, ("flip", 7, 3))
@example(("kafka28", "v0-gzip-0"), 5, ("flip", 6, 1))
def test_a_changed_batch_costs_no_record_but_its_own(
    chosen: tuple[str, str], which: int, mutation: tuple[str, int, int]
) -> None:
    contents = dict(files(*chosen))
    name, headers, number = spoil(contents, which, mutation)
    # Bytes missing at the end of a batch may be taken from its neighbour, which is damaged instead.
    low = headers[number - 2].last_offset if number > 1 else int(name[:20]) - 1
    high = headers[number + 1].last_offset if number + 1 < len(headers) else 1 << 62
    with TemporaryDirectory() as root:
        write(Path(root) / chosen[1], contents)
        found, _ = scan(open_view(Path(root) / chosen[1]), isolation=UNCOMMITTED)
    sound = {offset: r for offset, r in records(*chosen).items() if not low < offset <= high}
    kept = {record.offset: record for record in found if not low < record.offset <= high}
    assert kept == sound


@pytest.mark.parametrize("name", ["kafka43-crash", "kafka28", "compact-after"])
def test_whole_directories_with_damage_in_many_places(
    name: str, writable_corpus: Callable[[str], Path]
) -> None:
    root = writable_corpus(name)
    source = random.Random(name)
    paths = sorted(path for path in root.rglob("*") if path.is_file() and path.stat().st_size)
    for path in source.sample(paths, len(paths) // 3):
        data = bytearray(path.read_bytes()[: 1 << 20])
        for _ in range(source.randint(1, 4)):
            data[source.randrange(len(data))] = source.randrange(256)
        path.write_bytes(data)
    targets.log_dir(root)


def test_a_scan_of_a_changed_corpus_still_yields_columns(corpus: Callable[[str], Path]) -> None:
    """The targets do read: nothing passes because nothing was read."""
    engine = Engine(str(corpus("kafka28")))
    parts = list(engine.log("mixed", 0).view().scan())
    assert sum(len(plain(part)) for part in parts if isinstance(part, Columns)) > 500
