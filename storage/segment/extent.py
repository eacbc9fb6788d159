"""The byte range of a `.log` to walk, and the faults found in it."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..errors import CorruptError
from ..format.layout import MAX_OFFSET
from ..format.records.batch import BatchHeader
from ..io.directory import ReadableFile


@dataclass(slots=True)
class Effort:
    """The number of bytes whose checksums a walk may still compute in vain while it searches for
    the next batch after damage."""

    left: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Extent:
    """The part of an open ``.log`` to walk: bytes [``start``, ``end``), where ``start`` is a batch
    boundary. The segment holds offsets in [``base_offset``, ``limit_offset``);
    ``previous_offset`` is the last offset before ``start`` (-1 if unknown)."""

    file: ReadableFile
    base_offset: int
    start: int
    end: int
    max_batch_bytes: int
    previous_offset: int = -1
    limit_offset: int = MAX_OFFSET
    effort: Effort = field(default_factory=Effort)

    @property
    def previous(self) -> int:
        """The offset that the first offset must exceed."""
        return max(self.previous_offset, self.base_offset - 1)

    def error(self, what: str, position: int) -> CorruptError:
        """Returns an error at a position of the file."""
        return CorruptError(what, self.file.path, position)


@dataclass(frozen=True, slots=True)
class Fault:
    """A range [error.position, ``resume``) without a readable batch; ``resume`` is where the next
    one begins, or the end of the extent. ``batch`` is the bad batch if it has a header."""

    error: CorruptError
    resume: int
    batch: BatchHeader | None = None

    def reaches(self, end: int) -> bool:
        return self.resume >= end
