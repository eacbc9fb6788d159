"""Tests that the field tables in FORMAT.md add up to the structs in the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import kafkafs.storage.errors as module_in_storage
from kafkafs.storage.format.files import snapshot
from kafkafs.storage.segment import offset_index, time_index, txn_index

PAGE = (Path(module_in_storage.__file__).parent / "FORMAT.md").read_text()
SECTIONS = {
    section.split("\n", 1)[0]: section for section in re.split(r"^## ", PAGE, flags=re.MULTILINE)
}
FIELD = re.compile(r"^\| (\d+) \| (\d+) \| (u?int)(\d+) \|", re.MULTILINE)
CODES = {"int8": "b", "int16": "h", "int32": "i", "uint32": "I", "int64": "q"}


def tables(section: str) -> list[str]:
    """Returns the struct formats of the tables in a section, whose fields must be contiguous."""
    formats: list[str] = []
    end = 0
    for at, size, kind, bits in FIELD.findall(SECTIONS[section]):
        assert int(size) * 8 == int(bits)
        if int(at) == 0:
            formats.append(">")
        else:
            assert int(at) == end
        end = int(at) + int(size)
        formats[-1] += CODES[kind + bits]
    return formats


@pytest.mark.parametrize(
    ("section", "formats"),
    [
        ("Record batches", [">qiibIhiqqqhii"]),
        ("Offset index", [offset_index.ENTRY.format]),
        ("Time index", [time_index.ENTRY.format]),
        ("Transaction index", [txn_index.ENTRY.format.replace(" ", "").replace("bx", "h")]),
        ("Producer snapshot", [snapshot.HEADER.format, snapshot.ENTRY.format]),
    ],
)
def test_the_tables_are_the_codes_structs(section: str, formats: list[str]) -> None:
    assert tables(section) == formats


def test_every_link_leads_to_a_section() -> None:
    anchors = {re.sub(r"[^a-z0-9 _-]", "", title.lower()).replace(" ", "-") for title in SECTIONS}
    links = set(re.findall(r"\]\(#([^)]+)\)", PAGE))
    assert links <= anchors


def test_every_file_that_is_named_exists() -> None:
    root = Path(module_in_storage.__file__).resolve().parent
    for name in re.findall(r"`((?:[a-z_]+/)*[a-z_]+\.py)`", PAGE):
        assert (root / name).is_file() or (root.parent / name).is_file(), name
