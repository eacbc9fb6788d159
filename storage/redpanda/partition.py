"""A partition of Redpanda as the directory that a Kafka broker would have of it.

A `.log` for each segment that has records, named after its first offset in Kafka, with its indexes;
and the leader epochs, which are the terms in the segments' names. To know the offsets, the headers
of all batches must have been walked: at the first look at a partition, and again of what is new.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from ..errors import CorruptError, SegmentGone
from ..format.files.checkpoints import EpochEntry, format_leader_epochs
from ..format.files.names import LEADER_EPOCH_FILE, FileKind, segment_file
from ..format.layout import MAX_INT32, NO_LEADER_EPOCH
from ..io.assembled import (
    AssembledDirectory,
    AssembledListing,
    FileOfBytes,
    directory_status,
    file_status,
)
from ..io.directory import Directory, DirectoryEntry, FileType, HeldDirectory, ReadableFile
from ..wording import printable
from .log_start import SNAPSHOT_FILE, LogStart, read_log_start
from .names import LOG_SUFFIX, RECORD_VERSION, SegmentName, parse_segment
from .translation import (
    TranslatedFile,
    TranslatedIndex,
    Translation,
    identity_of,
    offset_entries,
    time_entries,
    unseen_below,
)

#: The config that says whether to serve partitions whose offsets in Kafka are not known.
OFFSETS_CONFIG: Final = "kafkafs.redpanda.offsets"

Identity = tuple[int, int]


@dataclass(frozen=True, slots=True)
class _Source:
    """One of Redpanda's segments as listed: a regular file, or something else of such a name."""

    file_name: str
    name: SegmentName
    status: os.stat_result

    @property
    def identity(self) -> Identity:
        return self.status.st_dev, self.status.st_ino


@dataclass(frozen=True, slots=True)
class _Served:
    """A file in the directory of a broker: the `kind` one of a segment.

    `base`: Kafka's offset of the segment, `shift`: what is to be subtracted from Redpanda's first
    offset to get it.
    """

    kind: FileKind
    source: _Source
    translation: Translation
    base: int
    shift: int
    is_last: bool

    @property
    def epoch(self) -> int:
        term = self.source.name.term
        return term if term <= MAX_INT32 else NO_LEADER_EPOCH


# A file made up here, and why a segment cannot be served.
_Content = _Served | bytes | CorruptError


class RedpandaPartition(AssembledDirectory):
    """The directory of a partition. One object for each, which keeps what walks have found."""

    __slots__ = (
        "_listing",
        "_lock",
        "_may_shift",
        "_recorded",
        "_source",
        "_translations",
        "problems_found",
    )

    def __init__(
        self,
        source: Directory,
        name: str,
        parent: Directory,
        recorded: Callable[[int], LogStart | None],
        may_shift: bool,
    ) -> None:
        """`source`: the directory of Redpanda. `recorded` returns what the key-value store knows
        of the start of a log whose first segment has that base offset. `may_shift`: if Kafka's
        offsets are not known, to serve those that are too high by a constant."""
        super().__init__(source.path, name, parent)
        self._source = source
        self._recorded = recorded
        self._may_shift = may_shift
        self._lock = threading.Lock()  # guards the attributes below
        self._translations: dict[Identity, Translation] = {}
        self._listing: tuple[object, Mapping[str, _Content]] | None = None
        self.problems_found: tuple[str, ...] = ()

    @property
    def may_have_gaps(self) -> bool:
        return True  # batches that begin transactions have offsets that clients see

    def hold(self, parent: HeldDirectory | None = None) -> _PartitionListing:
        held = self._source.hold()
        status = held.stat()
        return _PartitionListing(self, held, status, self._contents(held))

    def stat(self, name: str | None = None) -> os.stat_result:
        if name is not None:
            return self.hold().status_of(name)
        return _as_directory(self._source.stat())

    def path_of(self, name: str) -> str:
        found = None if self._listing is None else self._listing[1].get(name)
        if isinstance(found, _Served):
            return self._source.path_of(found.source.file_name)
        return super().path_of(name)

    def served_as(self, file_name: str) -> str | None:
        """Returns the name of the `.log` of one of Redpanda's segments, None if it is not served,
        as it has no records."""
        contents = self._contents(self._source.hold())
        for name, found in contents.items():
            if isinstance(found, _Served) and found.source.file_name == file_name:
                return name
        return None

    def log_start(self) -> LogStart | None:
        """Returns where the log begins, None if that is not known or nothing was removed."""
        try:
            found = read_log_start(self._source)
        except (CorruptError, OSError):
            return None
        return found if found is not None and found.unseen >= 0 else None

    def _contents(self, held: HeldDirectory) -> Mapping[str, _Content]:
        """Returns the files by name; the same mapping as before if nothing changed."""
        files, others = held.files(LOG_SUFFIX, SNAPSHOT_FILE)
        version = (
            tuple(
                (name, status.st_ino, status.st_size, status.st_mtime_ns)
                for name, status in sorted(files.items())
                if status is not None
            ),
            tuple(sorted((entry.name, entry.kind) for entry in others)),
        )
        with self._lock:
            if self._listing is None or self._listing[0] != version:
                self._listing = (version, self._listed(held, files, others))
            return self._listing[1]

    def _listed(
        self,
        held: HeldDirectory,
        files: Mapping[str, os.stat_result | None],
        others: Sequence[DirectoryEntry],
    ) -> Mapping[str, _Content]:
        problems: list[str] = []
        sources = []
        for file_name, status in files.items():
            if status is None or not file_name.endswith(LOG_SUFFIX):
                continue
            name = parse_segment(file_name)
            if name is not None and name.version == RECORD_VERSION:
                sources.append(_Source(file_name, name, status))
            else:
                problems.append(f"{printable(held.path_of(file_name))}: {_not_a_segment(name)}")
        for entry in others:
            if entry.name.endswith(LOG_SUFFIX) or entry.name == SNAPSHOT_FILE:
                path = printable(held.path_of(entry.name))
                problems.append(f"{path}: a {entry.kind}, not a regular file; it is not read")
        sources.sort(key=lambda each: each.name)
        found = dict(self._names(held, sources, problems))
        self.problems_found = tuple(problems)
        return found

    def _names(
        self, held: HeldDirectory, sources: Sequence[_Source], problems: list[str]
    ) -> Iterator[tuple[str, _Content]]:
        """Yields the files of a broker's directory."""
        translations = [self._translated(held, each) for each in sources]
        self._translations = {
            source.identity: each for source, each in zip(sources, translations, strict=True)
        }
        _report_faults(held, sources, translations, problems)
        try:
            start = read_log_start(held)
        except CorruptError as error:
            problems.append(str(error))
            start = None
        first = _first_shift(held, start, sources, translations)
        if first is None:
            recorded = self._recorded(sources[0].name.base_offset)
            first = _first_shift(held, recorded, sources, translations)
        if first is None and not self._may_shift:
            base = sources[0].name.base_offset
            refusal = _unknown_offsets(held, sources[0])
            problems.append(str(refusal))
            yield segment_file(base, FileKind.LOG), refusal
            return
        if first is None:
            path = printable(held.path_of(sources[0].file_name))
            problems.append(
                f"{path}: the offsets of this partition are counted from Redpanda's own of this"
                f" segment ({OFFSETS_CONFIG}=shifted); in Kafka all are lower by the same number"
            )
        served: dict[int, _Served] = {}
        for each in _served(sources, translations, first or 0):
            if served.setdefault(each.base, each) is not each:
                path = printable(held.path_of(each.source.file_name))
                problems.append(f"{path}: an earlier segment has the same offsets; not served")
        yield LEADER_EPOCH_FILE, format_leader_epochs(_epochs(list(served.values())))
        for each in served.values():
            for kind in (FileKind.LOG, FileKind.INDEX, FileKind.TIMEINDEX):
                file = _Served(
                    kind, each.source, each.translation, each.base, each.shift, each.is_last
                )
                yield segment_file(each.base, kind), file
        if not served:
            base = 0 if start is None else start.offset - max(start.unseen, 0)
            yield segment_file(base, FileKind.LOG), b""

    def _translated(self, held: HeldDirectory, source: _Source) -> Translation:
        known = self._translations.get(source.identity)
        file = held.open(source.file_name)
        status = file.stat()
        if known is None:
            return Translation(file, status)
        known.refreshed(file, status)
        return known


class _PartitionListing(AssembledListing):
    """What a partition has at one moment."""

    __slots__ = ("_contents", "_held", "_status")

    def __init__(
        self,
        directory: Directory,
        held: HeldDirectory,
        status: os.stat_result,
        contents: Mapping[str, _Content],
    ) -> None:
        super().__init__(directory)
        self._held = held
        self._status = status
        self._contents = contents

    def stat(self) -> os.stat_result:
        return _as_directory(self._status)

    def entries(self, wants_stat: Callable[[str], bool] | None) -> list[DirectoryEntry]:
        return [DirectoryEntry(name, FileType.FILE, 0) for name in self._contents]

    def status_of(self, name: str) -> os.stat_result:
        found = self._contents.get(name)
        if isinstance(found, CorruptError):
            return file_status(identity_of(self._status, name), 1, 0)
        return self.open(name).stat()

    def open(self, name: str) -> ReadableFile:
        found = self._contents.get(name)
        path = self.path_of(name)
        if found is None:
            raise SegmentGone(path)
        if isinstance(found, CorruptError):
            raise found.at(found.file)
        if isinstance(found, bytes):
            return FileOfBytes(
                path, found, identity_of(self._status, name), self._status.st_mtime_ns
            )
        if found.kind is FileKind.LOG:
            file = self._held.open(found.source.file_name)
            if file.identity != found.source.identity:
                raise SegmentGone(path)
            return TranslatedFile(file, found.translation, found.shift, found.epoch)
        status = found.source.status
        identity = identity_of(status, found.kind)
        there = file_status(identity, 0, status.st_mtime_ns)
        return TranslatedIndex(path, there, _entries(found))

    def is_removed(self) -> bool:
        return self._held.is_removed()


def _entries(served: _Served) -> Callable[[], bytes]:
    """Returns the function that makes an index of what the last walk has found."""
    if served.kind is FileKind.INDEX:
        return lambda: offset_entries(served.translation.walked, served.base, served.shift)
    return lambda: time_entries(
        served.translation.walked, served.base, served.shift, not served.is_last
    )


def _as_directory(status: os.stat_result) -> os.stat_result:
    return directory_status((status.st_dev, status.st_ino), status.st_size, status.st_mtime_ns)


def _served(
    sources: Sequence[_Source], translations: Sequence[Translation], shift: int
) -> Iterator[_Served]:
    """Yields the segments that a broker would have. One without a record is left out, because the
    next one may have the same offset in Kafka, except the last. The first one begins where the log
    does."""
    first: int | None = None
    for number, (source, translation) in enumerate(zip(sources, translations, strict=True)):
        walked, is_last = translation.walked, number == len(sources) - 1
        base = source.name.base_offset - shift
        first = base if first is None else first
        if walked.size or is_last:
            yield _Served(FileKind.LOG, source, translation, first, shift, is_last)
            first = None
        shift += walked.unseen


def _epochs(served: Sequence[_Served]) -> list[EpochEntry]:
    entries: list[EpochEntry] = []
    for each in served:
        if each.epoch > (entries[-1].epoch if entries else NO_LEADER_EPOCH):
            entries.append(EpochEntry(each.epoch, each.base))
    return entries


def _first_shift(
    held: HeldDirectory,
    start: LogStart | None,
    sources: Sequence[_Source],
    translations: Sequence[Translation],
) -> int | None:
    """Returns what is to be subtracted from Redpanda's offsets in the first segment, None if that
    is not known."""
    if not sources or sources[0].name.base_offset == 0:
        return 0
    if start is None or start.unseen < 0:
        return None
    unseen = start.unseen
    for source, translation in zip(sources, translations, strict=True):
        if source.name.base_offset >= start.offset:
            break
        if translation.walked.next_offset <= start.offset:
            unseen -= translation.walked.unseen
        else:
            file = held.open(source.file_name)
            unseen -= unseen_below(file, translation.walked, start.offset)
    return unseen if 0 <= unseen <= sources[0].name.base_offset else None


def _report_faults(
    held: HeldDirectory,
    sources: Sequence[_Source],
    translations: Sequence[Translation],
    problems: list[str],
) -> None:
    """Adds the offsets between segments that none has, and the bytes that are no batch."""
    for (_, following), translation in zip(pairwise(sources), translations, strict=False):
        end, base = translation.walked.next_offset, following.name.base_offset
        path = printable(held.path_of(following.file_name))
        if end < base and translation.walked.size + translation.walked.unseen:
            problems.append(
                f"{path}: Redpanda's offsets {end} to {base - 1} are in no segment; if a segment"
                " is missing, later offsets are too high by the number of those in it that Kafka"
                " hides"
            )
    for source, translation in zip(sources, translations, strict=True):
        for damage in translation.walked.damage:
            error = CorruptError(damage.what, held.path_of(source.file_name), damage.position)
            problems.append(str(error))


def _not_a_segment(name: SegmentName | None) -> str:
    if name is None:
        return "not the name of a segment (<base offset>-<term>-v1.log), not served"
    return f"a segment of version {name.version}, known is {RECORD_VERSION}; it is not served"


def _unknown_offsets(held: HeldDirectory, first: _Source) -> CorruptError:
    what = (
        f"the log begins at Redpanda's offset {first.name.base_offset}, and neither the file"
        f" `{SNAPSHOT_FILE}` beside it nor redpanda/kvstore says how many before that Kafka hides:"
        " the offsets are not known; add what is missing, or count from Redpanda's own offset with"
        f" -c {OFFSETS_CONFIG}=shifted: all are then too high by the same number"
    )
    return CorruptError(what, held.path_of(first.file_name))
