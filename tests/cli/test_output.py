"""Tests of lines, columns, times and sizes as verbs print them."""

from __future__ import annotations

import errno
import stat
from pathlib import Path

import pytest

from kafkafs.cli.support import listing, output


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        (-1, "-"),
        (0, "1970-01-01T00:00:00.000Z"),
        (1526384718288, "2018-05-15T11:45:18.288Z"),
        (-62135596800000, "0001-01-01T00:00:00.000Z"),
        (2**63 - 1, str(2**63 - 1)),
        (-(2**63), str(-(2**63))),
    ],
)
def test_times(milliseconds: int, text: str) -> None:
    assert output.time_text(milliseconds) == text


@pytest.mark.parametrize(
    ("size", "text"),
    [
        (0, "0"),
        (1023, "1023"),
        (1024, "1.0K"),
        (10188, "9.9K"),
        (10189, "10K"),
        (1047552, "1023K"),
        (1048064, "1.0M"),
        (5 * 1024**3, "5.0G"),
        (2**63 - 1, "8.0E"),
    ],
)
def test_sizes_for_people(size: int, text: str) -> None:
    assert output.size_text(size, human=True) == text
    assert output.size_text(size) == str(size)


def test_columns_are_aligned() -> None:
    rows = [("a", "1", "x"), ("bbb", "22", "")]
    assert list(output.aligned(rows, right=(1,))) == ["a     1  x", "bbb  22"]


def test_columns_are_those_of_a_terminal() -> None:
    """Wide characters take two columns, combining ones none."""
    rows = [["注文", "1"], ["e\u0301te\u0301", "22"], ["orders", "ﾊﾟ"]]
    assert list(output.aligned(rows)) == ["注文    1", "e\u0301te\u0301     22", "orders  ﾊﾟ"]
    assert list(output.aligned(rows, right=(0,))) == [
        *("  注文  1", "   e\u0301te\u0301  22", "orders  ﾊﾟ"),
    ]


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()]
)
def test_a_file_that_cannot_be_written_stays_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    page = tmp_path / "page"

    def fail(fd: int) -> None:
        raise error

    monkeypatch.setattr("os.fsync", fail)
    for content in (None, b"before"):
        if content is not None:
            page.write_bytes(content)
        with pytest.raises(type(error)) as raised:
            output.replace_file(str(page), b"after")
        if isinstance(raised.value, OSError):
            assert raised.value.filename == str(page)
        assert [(each.name, each.read_bytes()) for each in tmp_path.iterdir()] == (
            [] if content is None else [("page", content)]
        )


def test_a_replaced_file_keeps_its_permissions_and_links(tmp_path: Path) -> None:
    page, link = tmp_path / "page", tmp_path / "link"
    output.replace_file(str(page), b"one")
    inode = page.stat().st_ino
    page.chmod(0o640)
    link.symlink_to("page")
    output.replace_file(str(link), b"two")
    assert link.is_symlink()
    assert page.read_bytes() == b"two"
    assert stat.S_IMODE(page.stat().st_mode) == 0o640
    assert page.stat().st_ino != inode


def test_json_is_one_line_of_utf_8_whatever_the_names() -> None:
    assert output.json_line({"a": "ü\n\udcff"}) == '{"a":"ü\\n\\udcff"}\n'.encode()


def test_names_go_out_with_the_bytes_that_they_have() -> None:
    assert output.line("a\udcff") == b"a\xff\n"


def test_names_stand_in_columns_as_wide_as_the_terminal() -> None:
    names = ["a", "bb", "ccc", "dddd", "e"]
    assert list(listing._in_columns(names, 100)) == ["a  bb  ccc  dddd  e"]
    assert list(listing._in_columns(names, 12)) == ["a   ccc   e", "bb  dddd"]
    assert list(listing._in_columns(["注文", "a", "bb"], 8)) == ["注文  bb", "a"]
    assert list(listing._in_columns(["注文", "a", "bb"], 7)) == ["注文", "a", "bb"]
    assert list(listing._in_columns(names, 3)) == names
