"""A log directory that changes as a broker changes it: appends, rolls, retention, cleaning."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from pathlib import Path

from kafkafs.storage.format.layout import Codec
from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.building import BatchFields, build_batch
from tests.logs import TopicSettings, write_checkpoint, write_partition, write_topic

TIMESTAMP = 1_526_384_718_000


def value(offset: int) -> bytes:
    return b"value %d" % offset


def batch(offset: int, count: int = 1) -> bytes:
    """Returns a batch with a record for each offset, a second apart."""
    records = [
        SimpleRecord(TIMESTAMP + 1000 * at, b"key %d" % at, value(at))
        for at in range(offset, offset + count)
    ]
    return build_batch(records, BatchFields(base_offset=offset))


def _replace_by_link(path: Path) -> None:
    path.rename(path.parent.parent / path.name)
    path.symlink_to(path.parent.parent / path.name)


def _replace_by_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _replace_by_directory(path: Path) -> None:
    path.unlink()
    path.mkdir()


#: What replaces a segment's `.log` by something that is no regular file.
NO_FILE: dict[str, Callable[[Path], None]] = {
    "symbolic link": _replace_by_link,
    "FIFO": _replace_by_fifo,
    "directory": _replace_by_directory,
}


class LiveLog:
    """The partition `t-0` in `directory`: offsets 0 to 5, two in each of three segments."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.partition = directory / "t-0"
        self.end = 6
        self.large: dict[int, int] = {}  # sizes of large values, by offset
        settings = TopicSettings(segment_bytes=2 * len(batch(0)))
        write_topic(directory, map(batch, range(self.end)), settings)

    def log(self, base_offset: int) -> Path:
        return self.partition / f"{base_offset:020}.log"

    def active(self) -> Path:
        return max(self.partition.glob("*.log"))

    def append(self, count: int = 1) -> list[int]:
        """Appends records; returns their offsets."""
        with self.active().open("ab") as file:
            file.write(batch(self.end, count))
        self.end += count
        return list(range(self.end - count, self.end))

    def append_large(self, size: int) -> None:
        """Appends a record with a value of `size` letters, which takes little space in the log."""
        record = SimpleRecord(TIMESTAMP + 1000 * self.end, b"key %d" % self.end, b"x" * size)
        fields = BatchFields(base_offset=self.end, codec=Codec.ZSTD)
        with self.active().open("ab") as file:
            file.write(build_batch([record], fields))
        self.large[self.end] = size
        self.end += 1

    def append_misleading(self) -> int:
        """Appends segments of small records, with large ones where sampling of the log misses them.
        Returns the least number of bytes that `values` has of them."""
        for number in range(24):
            self.roll()
            if number % 3 == 1:
                self.append_large(1 << 20)
            else:
                self.append(100)
        self.roll()
        return 8 << 20

    def lines(self) -> bytes:
        """Returns the contents of `values`, if all records were written here and none was
        deleted."""
        large = {offset: b"x" * size for offset, size in self.large.items()}
        return b"".join(large.get(at, value(at)) + b"\n" for at in range(self.end))

    def roll(self) -> None:
        """Starts a new segment at the end."""
        self.log(self.end).touch()

    def delete_before(self, base_offset: int) -> None:
        """Renames older segments to `.deleted`, as retention does."""
        for path in sorted(self.partition.iterdir()):
            base = path.name.partition(".")[0]
            if base.isdigit() and int(base) < base_offset and path.suffix != ".snapshot":
                path.rename(f"{path}.deleted")

    def start_at(self, offset: int) -> None:
        """Moves the log start offset, as DeleteRecords does."""
        write_checkpoint(self.directory / "log-start-offset-checkpoint", [f"t 0 {offset}"])

    def replace(self, base_offset: int, kept: Iterable[int]) -> None:
        """Swaps in a cleaned segment with only the `kept` offsets."""
        swap = self.log(base_offset).with_suffix(".log.swap")
        swap.write_bytes(b"".join(map(batch, kept)))
        for suffix in (".index", ".timeindex"):
            self.log(base_offset).with_suffix(suffix).write_bytes(b"")
        os.replace(swap, self.log(base_offset))

    def damage(self, offset: int) -> Path:
        """Flips a bit in the batch of an offset written by the constructor; returns its file."""
        log, size = self.log(offset // 2 * 2), len(batch(0))
        data = bytearray(log.read_bytes())
        data[offset % 2 * size + size - 3] ^= 4
        log.write_bytes(data)
        return log

    def delete(self) -> None:
        """Renames the partition's directory, as the deletion of its topic does."""
        self.partition.rename(self.directory / f"t-0.{'0' * 32}-delete")

    def create(self, values: Iterable[bytes]) -> None:
        """Recreates the partition with other records."""
        shutil.rmtree(self.partition, ignore_errors=True)
        batches = [
            build_batch([SimpleRecord(TIMESTAMP, None, value)], BatchFields(base_offset=at))
            for at, value in enumerate(values)
        ]
        write_partition(self.partition, batches, TopicSettings(), topic_id=b"\x02" * 16)
