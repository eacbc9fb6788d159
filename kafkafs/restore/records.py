"""Records as they are read, and what librdkafka does to them."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import closing
from typing import Final

from kafkafs.storage import Columns, Damage

#: librdkafka replaces this timestamp by the current time.
REPLACED_TIMESTAMP: Final = 0


def undamaged(
    parts: Generator[Columns | Damage], damage: dict[tuple[str, int], str]
) -> Generator[Columns]:
    """Yields the records among `parts`, and notes damage by file and position."""
    with closing(parts):
        for part in parts:
            if isinstance(part, Damage):
                damage[part.error.file, part.error.position] = str(part.error)
            elif len(part):
                yield part
