"""The page `report.html`. Rendering it needs the extra `report`; this module does not."""

from __future__ import annotations

import importlib.util
from typing import Final

#: What an installation needs to render the page.
NEEDED: Final = ("jinja2", "plotly")
#: A page is never larger, in bytes; see `charts` for what is capped.
MOST_BYTES: Final = 16 << 20


def is_available() -> bool:
    """Returns whether the page can be rendered, without importing what that needs."""
    return all(importlib.util.find_spec(name) is not None for name in NEEDED)
