"""The parts of the repository's pages, for the tests that run or compare their examples."""

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parent.parent
README = ROOT / "README.md"
API_PAGE = ROOT / "kafkafs" / "api" / "README.md"
CLI_PAGE = ROOT / "kafkafs" / "cli" / "README.md"
SPARK_PAGE = ROOT / "kafkafs" / "spark" / "README.md"
MOUNT_PAGE = ROOT / "mount" / "README.md"
STORAGE_PAGE = ROOT / "storage" / "README.md"
TOUR = ROOT / "examples" / "README.md"

#: Directories of the top level that hold pages; `kafkafs` contains links to two of the others.
_FOLDERS = ("examples", "kafkafs/api", "kafkafs/cli", "kafkafs/spark", "mount", "storage", "tests")
_HEADING = re.compile(r"#+ (.+)")


def pages() -> list[Path]:
    """Every page of the repository."""
    nested = (page for folder in _FOLDERS for page in (ROOT / folder).rglob("*.md"))
    return sorted([*ROOT.glob("*.md"), *nested])


def headings(text: str) -> list[str]:
    """The titles of all headings of any level."""
    return [title for title, _ in _sections(text)]


def section(text: str, title: str) -> str:
    """The text below the heading `title`, down to the next heading of any level."""
    [body] = [body for found, body in _sections(text) if found == title]
    return body


def blocks(text: str, language: str) -> list[str]:
    """The fenced blocks of code in `language`."""
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands(script: str) -> list[str]:
    """The commands of a shell script without comments; a backslash continues a line."""
    lines = re.sub(r"\\\n\s*", "", script).splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def placed(text: str, root: Path) -> str:
    """`text` with the absolute paths that the pages use, such as /data and /mnt, below `root`."""
    names = "archive|backup|copy|damaged|data|lake|log|mnt|new|registry|table|tiered"
    return re.sub(rf"(?<![\w./])/(?=(?:{names})\b)", f"{root}/", text)


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """(title, body) of each heading; lines of code blocks, such as comments, are no headings."""
    title, body, is_code = "", "", False
    for line in text.splitlines(keepends=True):
        is_code ^= line.startswith("```")
        match = None if is_code else _HEADING.fullmatch(line.rstrip("\n"))
        if match is None:
            body += line
            continue
        yield title, body
        title, body = match[1], ""
    yield title, body
