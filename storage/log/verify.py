"""One partition held against Kafka's rules: its segments, and what is beside them.

The batches whose checksums are right are believed. From them follow the leader epochs, the state of
the producers at any offset, and which transactions were aborted: snapshots, transaction indexes and
the epoch file are held against that, as far as the log still has what they were made from.
"""

from __future__ import annotations

from collections.abc import Iterator

from ..disk import Directory, Entry
from ..format.decoder import Decoder
from ..format.names import FileKind, FileState, parse_segment_file, segment_file
from ..segment.verify import SegmentCheck, SegmentFacts
from ..segment.verify_index import Finding
from .context import ReadLimits
from .verify_aborts import Aborts
from .verify_epochs import EpochCheck
from .verify_gaps import Gaps
from .verify_producers import ProducerCheck

_INDEXES = (FileKind.INDEX, FileKind.TIMEINDEX, FileKind.TXNINDEX)


class LogCheck:
    """A partition while it is gone through.

    When `findings` is used up, `base_offset` and `end_offset` say which offsets its segments hold.
    """

    def __init__(
        self,
        directory: Directory,
        start_offset: int,
        is_closed: bool,
        may_have_gaps: bool,
        limits: ReadLimits,
    ) -> None:
        """`start_offset`: the log's, as checkpointed. `is_closed`: the last stop was a clean one.
        `may_have_gaps`: the log is compacted, or may be, so that a missing offset means nothing."""
        self.base_offset = self.end_offset = 0
        self._directory = directory
        self._start_offset = start_offset
        self._is_closed = is_closed
        self._may_have_gaps = may_have_gaps
        self._limits = limits
        self._decoder = Decoder(limits.max_batch_bytes)

    def findings(self) -> Iterator[Finding]:
        """All that is wrong, file by file. SegmentGone when the directory has gone."""
        listed = _Listed()
        for entry in self._directory.list(lambda name: name.endswith(FileKind.LOG)):
            listed.add(entry)
        yield from self._orphans(listed)
        epochs = EpochCheck(self._directory, self._start_offset)
        yield from epochs.read()
        bases = sorted(listed.sizes)
        self.base_offset = self.end_offset = bases[0] if bases else 0
        producers = ProducerCheck(self._directory, listed.snapshots, self.base_offset)
        gaps = Gaps(self.base_offset)
        for base, next_base in zip(bases, [*bases[1:], -1], strict=False):
            is_closed = self._is_closed or next_base >= 0
            files = frozenset(kind for kind in _INDEXES if base in listed.files[kind])
            facts = SegmentFacts(base, listed.sizes[base], next_base, is_closed, files)
            yield from self._segment(facts, epochs, producers, gaps)
        yield from epochs.finish(self.end_offset)
        yield from producers.finish(self.end_offset)
        if not self._may_have_gaps:
            yield from gaps.findings()

    def _segment(
        self, facts: SegmentFacts, epochs: EpochCheck, producers: ProducerCheck, gaps: Gaps
    ) -> Iterator[Finding]:
        limit = self._limits.max_batch_bytes
        check = SegmentCheck(self._directory, facts, self._decoder, limit)
        aborts = Aborts()
        for table in check.tables():
            gaps.batches(check, table)
            epochs.batches(check, table)
            producers.batches(check, table, aborts, gaps.has_all)
        gaps.end_of(check)
        self.end_offset = check.next_offset
        entries = check.aborted() if FileKind.TXNINDEX in facts.files else []
        knows_all = gaps.has_all and producers.knows_all
        check.findings += aborts.held_against(entries, facts, check, knows_all)
        yield from sorted(check.findings)

    def _orphans(self, listed: _Listed) -> Iterator[Finding]:
        for entry in listed.no_files:
            what = f"a {entry.kind}, not a regular file"
            yield Finding(self._directory.path_of(entry.name), -1, what)
        for kind in _INDEXES:
            for base in sorted(listed.files[kind] - listed.sizes.keys()):
                name = segment_file(base, kind)
                yield Finding(self._directory.path_of(name), -1, "there is no .log to it")


class _Listed:
    """The files of a partition that count: `sizes` of the logs by base offset, the base offsets of
    the `files` of each kind, the offsets of the `snapshots`; and what is no file."""

    def __init__(self) -> None:
        self.sizes: dict[int, int] = {}
        self.files: dict[FileKind, set[int]] = {kind: set() for kind in FileKind}
        self.no_files: list[Entry] = []

    @property
    def snapshots(self) -> list[int]:
        return sorted(self.files[FileKind.SNAPSHOT])

    def add(self, entry: Entry) -> None:
        name = parse_segment_file(entry.name)
        if name is None or name.state is not FileState.LIVE:
            return
        if not entry.is_file:
            self.no_files.append(entry)
            return
        self.files[name.kind].add(name.base_offset)
        if name.kind is FileKind.LOG:
            assert entry.stat is not None  # asked for
            self.sizes[name.base_offset] = entry.stat.st_size
