"""What a walk goes over, and what it meets where it cannot read on."""

from __future__ import annotations

from dataclasses import dataclass, field

from ..disk import OpenFile
from ..errors import CorruptError
from ..format.batch import BatchHeader
from ..format.layout import MAX_OFFSET


@dataclass(slots=True)
class Effort:
    """Bytes whose checksums may still be computed in vain while a walk looks for its way behind
    damage."""

    left: int = 64 << 20


@dataclass(frozen=True, slots=True)
class Extent:
    """The part of an open ``.log`` to walk: [``start``, ``end``) in bytes, ``start`` being a batch
    boundary, of a segment that holds offsets in [``base_offset``, ``limit_offset``), the offset
    before ``start`` being ``previous_offset`` (-1 unknown)."""

    file: OpenFile
    base_offset: int
    start: int
    end: int
    max_batch_bytes: int
    previous_offset: int = -1
    limit_offset: int = MAX_OFFSET
    effort: Effort = field(default_factory=Effort)

    @property
    def previous(self) -> int:
        """The offset that the first one must be above."""
        return max(self.previous_offset, self.base_offset - 1)

    def error(self, what: str, position: int) -> CorruptError:
        """An error at a position of the file."""
        return CorruptError(what, self.file.path, position)


@dataclass(frozen=True, slots=True)
class Fault:
    """Bytes [error.position, ``resume``) hold no batch that can be read; ``resume`` is where the
    next one begins, or the end of the extent. ``batch`` is the bad batch if it has a header."""

    error: CorruptError
    resume: int
    batch: BatchHeader | None = None

    def reaches(self, end: int) -> bool:
        return self.resume >= end
