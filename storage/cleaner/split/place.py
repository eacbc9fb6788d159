"""Where a cleaner pass that is divided among many processes stages its output."""

from __future__ import annotations

from typing import Final

#: The suffix of every staging directory's name.
COMPACTION_SUFFIX: Final = "kafkafs-compact"


def compaction_path(log_dir: str) -> str:
    """Returns the staging directory beside a log directory, where no broker looks. Only the holder
    of the log directory's lock may use it."""
    above, slash, name = log_dir.rstrip("/").rpartition("/")
    return f"{above}{slash}.{name}.{COMPACTION_SUFFIX}"
