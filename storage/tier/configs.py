"""The configs that name remote storage: all that runs without it need of this folder."""

from __future__ import annotations

from typing import Final

from ..io.local_path import absolute_path, local_path

#: The configs that name remote storage, and who wrote it.
TIER_CONFIG: Final = "kafkafs.tier"
TIER_LAYOUT_CONFIG: Final = "kafkafs.tier.layout"
TIER_KEYS_CONFIG: Final = "kafkafs.tier.keys"
#: What `kafkafs.tier.layout` can be.
LAYOUTS: Final = ("auto", "local", "aiven")


def key_files(text: str) -> dict[str, str]:
    """Returns the files in kafkafs.tier.keys by the id of their key, "" for any key."""
    found = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        key_id, separator, path = entry.partition("=")
        found[key_id if separator else ""] = local_path(path if separator else entry)
    return found


def absolute_keys(text: str) -> str:
    """Returns kafkafs.tier.keys with absolute paths."""
    files = ((key_id, absolute_path(path)) for key_id, path in key_files(text).items())
    return ",".join(f"{key_id}={path}" if key_id else path for key_id, path in files)
