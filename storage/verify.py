"""Whether log directories are what Kafka's rules say: every file of every partition, and the small
ones beside them.

A finding is a rule that is broken, with file and position. What is merely unusual is none: files
that wait for being deleted, a cleaner's output that was not finished, gaps that compaction left.
What a crash leaves is found: a torn end is torn, even if recovery knows what to do about it.

Nothing is changed, and nothing is taken for granted but the batches whose checksums are right: they
are what indexes, snapshots and checkpoints are held against.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

from .engine import Engine
from .errors import CorruptError, SegmentGone
from .format import names
from .format.checkpoints import (
    MetaProperties,
    parse_clean_shutdown,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)
from .format.names import PartitionState
from .log.verify import FindChecked, LogCheck
from .log_dir import LogDir, PartitionDir, TopicPartition
from .segment.verify_index import Finding

T = TypeVar("T")

_MAX_BYTES = 64 << 20

# The offsets of a log directory that must lie in the log: the file, and what one above the log's
# end means.
_OFFSET_FILES = {
    names.RECOVERY_POINT_FILE: "what was known to be on the disk is not all there",
    names.LOG_START_OFFSET_FILE: "no record is left in front of the start",
    names.HIGH_WATERMARK_FILE: "what consumers could read is not all there",
    names.CLEANER_OFFSET_FILE: "what was cleaned is not all there",
}


@dataclass(slots=True)
class _DirFiles:
    """The small files of a log directory as far as they can be read."""

    meta: MetaProperties | None = None
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)


class Verifier:
    """What is wrong with the directories of an engine.

    First `directories`, which reads the small files; then `partition` for each of `partitions`, in
    any order.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._files: dict[str, _DirFiles] = {}
        self._topic_ids: dict[str, tuple[str, str]] = {}  # id, and where it was read

    def partitions(self) -> list[PartitionDir]:
        """All that are in normal use."""
        return [
            found
            for log_dir in self._engine.log_dirs.dirs
            for found in log_dir.partitions()
            if found.state is PartitionState.NORMAL
        ]

    def directories(self) -> Iterator[Finding]:
        """What is wrong beside the partitions."""
        seen: dict[TopicPartition, str] = {}
        for log_dir in self._engine.log_dirs.dirs:
            files = self._files[log_dir.path] = _DirFiles()
            yield from self._small_files(log_dir, files)
            for found in log_dir.partitions():
                if found.state is PartitionState.NORMAL:
                    first = seen.setdefault((found.topic, found.partition), found.path)
                    if first != found.path:
                        yield Finding(found.path, -1, f"the same partition is in {first}")
            yield from _strange_directories(log_dir)
        yield from self._strangers()

    def partition(self, found: PartitionDir) -> Iterator[Finding]:
        """What is wrong with one partition, and with what its directory says of it."""
        yield from self.metadata(found)
        yield from self.log(found)

    def log(
        self, found: PartitionDir, find_checked: FindChecked = lambda facts: None
    ) -> Iterator[Finding]:
        """What is wrong with a partition's log; `find_checked` as LogCheck's."""
        try:
            yield from self._log(found, find_checked)
        except SegmentGone as gone:
            yield Finding(gone.file, -1, "it went while it was looked at: is a broker running?")

    def _log(self, found: PartitionDir, find_checked: FindChecked) -> Iterator[Finding]:
        key = (found.topic, found.partition)
        files = self._files.get(found.log_dir.path, _DirFiles())
        check = LogCheck(
            found.directory,
            files.offsets.get(names.LOG_START_OFFSET_FILE, {}).get(key, 0),
            # The quorum's log is recovered at every start, whatever the marker says of the others.
            found.log_dir.is_clean and found.topic != names.METADATA_TOPIC,
            self._may_have_gaps(found),
            self._engine.context.limits,
            find_checked,
        )
        yield from check.findings()
        for name, meaning in _OFFSET_FILES.items():
            offset = files.offsets.get(name, {}).get(key)
            if offset is not None and not 0 <= offset <= check.end_offset:
                where = f"{found.name}: offset {offset}, its log ends at {check.end_offset}"
                path = found.log_dir.directory.path_of(name)
                yield Finding(path, -1, f"{where}: {meaning}")

    def _may_have_gaps(self, found: PartitionDir) -> bool:
        """Whether the log is compacted, as its settings or the cleaner's checkpoint say."""
        cleaned = self._files.get(found.log_dir.path, _DirFiles()).offsets
        if (found.topic, found.partition) in cleaned.get(names.CLEANER_OFFSET_FILE, {}):
            return True
        return "compact" in self._engine.topic_config(found.topic).config.cleanup_policy

    def metadata(self, found: PartitionDir) -> Iterator[Finding]:
        """What is wrong with what a partition's directory says of its topic."""
        path = found.directory.path_of(names.PARTITION_METADATA_FILE)
        try:
            data = found.directory.read_small(names.PARTITION_METADATA_FILE, _MAX_BYTES)
            topic_id = parse_partition_metadata(data).topic_id
        except SegmentGone:
            return
        except CorruptError as error:
            yield Finding(path, error.position, error.what)
            return
        first_id, where = self._topic_ids.setdefault(found.topic, (topic_id, path))
        if topic_id != first_id:
            yield Finding(path, -1, f"topic id {topic_id}, {where} says {first_id}")

    def _small_files(self, log_dir: LogDir, files: _DirFiles) -> Iterator[Finding]:
        for name in _OFFSET_FILES:
            offsets = yield from _read(log_dir, name, parse_offsets)
            files.offsets[name] = offsets or {}
        files.meta = yield from _read(log_dir, names.META_PROPERTIES_FILE, parse_meta_properties)
        yield from _read(log_dir, names.CLEAN_SHUTDOWN_FILE, parse_clean_shutdown)

    def _strangers(self) -> Iterator[Finding]:
        """Directories of another cluster or broker than the first; Kafka does not start on them."""
        known = [(path, files.meta) for path, files in self._files.items() if files.meta]
        for path, meta in known[1:]:
            first_path, first = known[0]
            for what, one, other in (
                ("cluster", first.cluster_id, meta.cluster_id),
                ("node", first.node_id, meta.node_id),
            ):
                if one != other:
                    yield Finding(path, -1, f"of {what} {other}, {first_path} is of {one}")


def _read(
    log_dir: LogDir, name: str, parse: Callable[[bytes], T]
) -> Generator[Finding, None, T | None]:
    """The value of a small file, None where there is none or it cannot be read; the latter is a
    finding."""
    try:
        return parse(log_dir.directory.read_small(name, _MAX_BYTES))
    except SegmentGone:
        return None
    except CorruptError as error:
        yield Finding(log_dir.directory.path_of(name), error.position, error.what)
        return None


def _strange_directories(log_dir: LogDir) -> Iterator[Finding]:
    for entry in sorted(log_dir.directory.list(), key=lambda entry: entry.name):
        is_known = names.parse_partition_dir(entry.name) or entry.name == names.REMOTE_INDEX_CACHE
        if entry.is_dir and not is_known:
            what = "not the name of a partition: a broker does not start with it"
            yield Finding(log_dir.directory.path_of(entry.name), -1, what)
