"""The README's parts, for the tests that hold it to what it says."""

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent


def section(text: str, title: str) -> str:
    """What stands below the heading `title`, down to the next heading of any level."""
    [body] = re.findall(
        rf"^#+ {re.escape(title)}\n(.*?)(?=^#+ |\Z)", text, re.MULTILINE | re.DOTALL
    )
    assert isinstance(body, str)
    return body


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of code in `language`."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
