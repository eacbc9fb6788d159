"""Checks every file of log directories against Kafka's rules, in partitions and beside them.

A finding is a violated rule, with file and position. What is merely unusual is not reported: files
waiting for deletion, unfinished output of a cleaner, gaps left by compaction. The effects of a
crash are reported: a torn end is torn, even if recovery can handle it.

Nothing is changed, and nothing is trusted except batches with correct checksums: indexes, snapshots
and checkpoints are compared with them.

A broker may be writing. It changes files one after the other, so a reading that sees two states of
a log can find rules violated that hold in either. A finding is true if nothing changed meanwhile.
Otherwise the log is read again, and a finding is true if every reading has it.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeVar

from ..config.topic_file import read_topic_configs
from ..errors import CorruptError, SegmentGone, UnknownTopic
from ..format.files import names
from ..format.files.checkpoints import (
    MetaProperties,
    parse_clean_shutdown,
    parse_meta_properties,
    parse_offsets,
    parse_partition_metadata,
)
from ..format.files.names import PartitionState, TopicPartition
from ..format.records.decoder import Decoder
from ..ingest.commit_file import read_commit_records
from ..io.directory import Directory
from ..io.lock import who_holds
from ..io.retry import ATTEMPTS
from ..log.check.partition_listing import PartitionListing
from ..log.check.verify import FindChecked, LogCheck
from ..log_dirs.engine import Engine
from ..log_dirs.log_dir import LogDir, PartitionDir
from ..segment.check.verify import SegmentCheck, SegmentFacts
from ..segment.check.verify_digest import DigestCheck, SegmentDigest
from ..segment.check.verify_index import BEYOND_END, Finding
from ..transactions.decisions import read_decisions

T = TypeVar("T")

_MAX_BYTES = 64 << 20

# The offset checkpoints that must lie within the log: the file, and what an offset above the log
# end means.
_OFFSET_FILES = {
    names.RECOVERY_POINT_FILE: "some flushed records are missing",
    names.LOG_START_OFFSET_FILE: "no record is left",
    names.HIGH_WATERMARK_FILE: "some records that consumers could read are missing",
    names.CLEANER_OFFSET_FILE: "some cleaned records are missing",
}


# The pauses between readings, in seconds. A broker may be suspended after appending to a log and
# before appending to an index; and it writes high watermarks every 5 s
# (replica.high.watermark.checkpoint.interval.ms).
_PAUSES: Final = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6, 3.2)


def fingerprint(directory: Directory) -> str:
    """Returns a value that differs after any change of a file in a partition's directory. A broker
    writes to an index without changing the file's size or mtime, but only after it appended to the
    log. Raises SegmentGone if the directory was removed."""
    rows = sorted(
        (entry.name, entry.inode, entry.stat and (entry.stat.st_size, entry.stat.st_mtime_ns))
        for entry in directory.list(lambda _: True)
    )
    return hashlib.blake2b(repr(rows).encode(), digest_size=16).hexdigest()


@dataclass(slots=True)
class _DirFiles:
    """The small files of a log directory, as far as they can be read."""

    meta: MetaProperties | None = None
    offsets: dict[str, dict[TopicPartition, int]] = field(default_factory=dict)


class Verifier:
    """Checks the directories of an engine.

    Call `directories` first, which reads the small files; then `partition` for each of
    `partitions`, in any order.
    """

    def __init__(self, engine: Engine, pause: Callable[[float], None] = time.sleep) -> None:
        """`pause` waits for that many seconds between two readings of a changing log."""
        self._engine = engine
        self._pause = pause
        self._files: dict[str, _DirFiles] = {}
        self._topic_ids: dict[str, tuple[str, PartitionDir]] = {}  # id, and its partition directory

    def partitions(self) -> list[PartitionDir]:
        """Returns all partitions in normal use."""
        return [
            found
            for log_dir in self._engine.log_dirs.dirs
            for found in log_dir.partitions()
            if found.state is PartitionState.NORMAL
        ]

    def directories(self) -> Iterator[Finding]:
        """Yields the findings outside the partitions."""
        found = list(self._directories())
        if found:
            again = set(self._directories())
            found = [finding for finding in found if finding in again]
        yield from found

    def _directories(self) -> Iterator[Finding]:
        seen: dict[tuple[int, str, int], str] = {}
        for log_dir in self._engine.log_dirs.dirs:
            files = self._files[log_dir.path] = _DirFiles()
            yield from self._small_files(log_dir, files)
            yield from _own_files(log_dir)
            for found in log_dir.partitions():
                if found.state is PartitionState.NORMAL:
                    replica = (log_dir.meta.node_id, found.topic, found.partition)
                    first = seen.setdefault(replica, found.path)
                    if first != found.path:
                        yield Finding(found.path, -1, f"the same partition is also in {first}")
            yield from _strange_directories(log_dir)
        for log_dir, why in self._engine.log_dirs.of_other_clusters():
            yield Finding(log_dir.path, -1, why)

    def partition(self, found: PartitionDir) -> Iterator[Finding]:
        """Yields the findings of one partition, and of what its directory says about it."""
        yield from self.metadata(found)
        yield from self.log(found)

    def log(
        self,
        found: PartitionDir,
        find_checked: FindChecked = lambda facts: None,
        before: str | None = None,
    ) -> Iterator[Finding]:
        """Yields the findings of a partition's log, none if it is deleted meanwhile.

        `find_checked` as LogCheck's; `before`: the directory's `fingerprint` before those segments
        were read, None to take it now.
        """
        gone: SegmentGone | None = None
        for _ in range(ATTEMPTS):
            present = next((d for d in found.log_dir.partitions() if d.name == found.name), None)
            if present is None:  # deleted
                return
            try:
                yield from self._confirmed(present, find_checked, before)
                return
            except SegmentGone as error:  # retention or the cleaner removed it: read again
                gone, before, find_checked = error, None, lambda facts: None
        assert gone is not None
        yield Finding(
            gone.file, -1, "the file vanished each time it was read; is a broker running?"
        )

    def _confirmed(
        self, found: PartitionDir, find_checked: FindChecked, before: str | None
    ) -> Sequence[Finding]:
        """Returns the findings that hold in every state the log has while it is read. Raises
        SegmentGone."""
        if before is None:
            before = fingerprint(found.directory)
        files = self._files.get(found.log_dir.path, _DirFiles())
        findings = list(self._log(found, files, find_checked))
        sound = _SoundSegments(self._engine, found)
        for pause in _PAUSES:
            if self._is_settled(found, findings, before):
                break
            self._pause(pause)
            before = fingerprint(found.directory)
            again = list(self._log(found, self._offsets(found.log_dir), sound.look_up()))
            if not self._is_settled(found, again, before):
                lasting = {finding.identity for finding in findings}
                again = [finding for finding in again if finding.identity in lasting]
            findings = again
        return findings

    def _is_settled(self, found: PartitionDir, findings: Sequence[Finding], before: str) -> bool:
        """Returns whether nothing changed while these were found. Even if nothing changes, a
        broker's checkpoints may still refer to another log of that name, deleted some seconds
        ago."""
        if not findings:
            return True
        if fingerprint(found.directory) != before:
            return False
        is_about_log = all(finding.file.startswith(found.path) for finding in findings)
        return is_about_log or not who_holds(found.log_dir.directory)

    def _offsets(self, log_dir: LogDir) -> _DirFiles:
        """Reads the small files again; their own findings are reported elsewhere."""
        files = _DirFiles()
        list(self._small_files(log_dir, files))
        return files

    def _log(
        self, found: PartitionDir, files: _DirFiles, find_checked: FindChecked
    ) -> Iterator[Finding]:
        key = (found.topic, found.partition)
        check = LogCheck(
            found.directory,
            files.offsets.get(names.LOG_START_OFFSET_FILE, {}).get(key, 0),
            # The quorum's log is recovered at every start, whatever the clean shutdown marker says.
            found.log_dir.is_clean and found.topic != names.METADATA_TOPIC,
            self._may_have_gaps(found, files),
            self._engine.context.limits,
            find_checked,
        )
        yield from check.findings()
        for name, meaning in _OFFSET_FILES.items():
            offset = files.offsets.get(name, {}).get(key)
            if offset is not None and not 0 <= offset <= check.end_offset:
                where = f"{found.name}: offset {offset}, but its log ends at {check.end_offset}"
                path = found.log_dir.directory.path_of(name)
                lasting = f"{found.name}: {BEYOND_END}"
                yield Finding(path, -1, f"{where}: {meaning}", lasting)

    def _may_have_gaps(self, found: PartitionDir, files: _DirFiles) -> bool:
        """Returns whether the log is compacted, according to its configs or the cleaner's
        checkpoint, or whether its broker leaves gaps in any log."""
        if found.directory.may_have_gaps:
            return True
        cleaned = files.offsets.get(names.CLEANER_OFFSET_FILE, {})
        if (found.topic, found.partition) in cleaned:
            return True
        try:
            config = self._engine.topic_config(found.topic).config
        except UnknownTopic:
            raise SegmentGone(found.path) from None
        return "compact" in config.cleanup_policy

    def metadata(self, found: PartitionDir) -> Iterator[Finding]:
        """Yields the findings of what a partition's directory says about its topic."""
        path = found.directory.path_of(names.PARTITION_METADATA_FILE)
        try:
            topic_id = _topic_id(found)
        except CorruptError as error:
            yield Finding(path, error.position, error.what)
            return
        first_id, first = self._topic_ids.get(found.topic, ("", found))
        if topic_id and topic_id != first_id and first_id:
            # The topic may have been deleted and created again after the first one was read.
            with suppress(CorruptError):
                first_id = _topic_id(first)
        if topic_id and first_id not in ("", topic_id):
            where = first.directory.path_of(names.PARTITION_METADATA_FILE)
            yield Finding(path, -1, f"topic id {topic_id}, but {where} has {first_id}")
        elif topic_id:
            self._topic_ids[found.topic] = topic_id, found

    def _small_files(self, log_dir: LogDir, files: _DirFiles) -> Iterator[Finding]:
        for name in _OFFSET_FILES:
            offsets = yield from _read(log_dir, name, parse_offsets)
            files.offsets[name] = offsets or {}
        files.meta = yield from _read(log_dir, names.META_PROPERTIES_FILE, parse_meta_properties)
        yield from _read(log_dir, names.CLEAN_SHUTDOWN_FILE, parse_clean_shutdown)


class _SoundSegments:
    """A partition's inactive segments without findings, which need not be read again."""

    def __init__(self, engine: Engine, found: PartitionDir) -> None:
        self._directory = found.directory
        self._log_dir = found.log_dir
        self._key = found.topic, found.partition
        self._limit = engine.context.limits.max_batch_bytes
        self._decoder = Decoder(self._limit)
        self._digests: dict[tuple[SegmentFacts, tuple[int, ...]], SegmentDigest] = {}

    def look_up(self) -> FindChecked:
        """Returns the lookup for one reading of the log. Raises SegmentGone."""
        start = self._log_dir.log_start_offsets.get(self._key, 0)
        return partial(self._find, PartitionListing(self._directory).stops(start))

    def _find(self, all_stops: Sequence[int], facts: SegmentFacts) -> DigestCheck | None:
        if facts.next_base < 0:
            return None
        stops = tuple(s for s in all_stops if facts.base_offset <= s <= facts.next_base)
        digest = self._digests.get((facts, stops))
        if digest is None:
            check = SegmentCheck(self._directory, facts, self._decoder, self._limit)
            digest = SegmentDigest.of(check, facts, stops)
            if not digest.findings:
                self._digests[facts, stops] = digest
        return DigestCheck(digest)


def _topic_id(found: PartitionDir) -> str:
    """Returns the id in partition.metadata, "" if there is no such file. Raises CorruptError."""
    try:
        data = found.directory.read_small(names.PARTITION_METADATA_FILE, _MAX_BYTES)
    except SegmentGone:
        return ""
    return parse_partition_metadata(data).topic_id


def _read(
    log_dir: LogDir, name: str, parse: Callable[[bytes], T]
) -> Generator[Finding, None, T | None]:
    """Returns the value of a small file, None if it is missing or unreadable; yields a finding for
    the latter."""
    try:
        return parse(log_dir.directory.read_small(name, _MAX_BYTES))
    except SegmentGone:
        return None
    except CorruptError as error:
        yield Finding(log_dir.directory.path_of(name), error.position, error.what)
        return None


def _own_files(log_dir: LogDir) -> Iterator[Finding]:
    """Yields the malformed ones among the files that kafkafs itself writes: topic configs,
    unfinished writes, decided transactions. Not what deleted partitions were: they wait for
    deletion, and a power cut may leave that file torn."""
    for read in (read_topic_configs, read_commit_records, read_decisions):
        try:
            read(log_dir.directory)
        except CorruptError as error:
            yield Finding(error.file, error.position, error.what)


def _strange_directories(log_dir: LogDir) -> Iterator[Finding]:
    for entry in sorted(log_dir.directory.list(), key=lambda entry: entry.name):
        is_known = names.parse_partition_dir(entry.name) or entry.name == names.REMOTE_INDEX_CACHE
        if entry.is_dir and not is_known:
            what = "not a partition directory name: a broker would not start"
            yield Finding(log_dir.directory.path_of(entry.name), -1, what)
