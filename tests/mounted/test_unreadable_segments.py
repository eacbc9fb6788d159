"""A segment of which no byte can be read: every program that reads past it meets an error.

The first and the last segment matter most: nothing readable lies before or after their damage.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

from kafkafs.cli.main import cli
from tests.mounted.conftest import Mounting
from tests.mounted.live import NO_FILE, LiveLog

pytestmark = pytest.mark.mounted


def _garbage(path: Path) -> None:
    path.write_bytes(b"\xa5" * path.stat().st_size)
    _settle(path)


def _settle(path: Path) -> None:
    """Makes the file so old that no broker can be about to write more to it."""
    os.utime(path, (1_500_000_000, 1_500_000_000))


def _device(path: Path) -> None:
    path.unlink()
    os.mknod(path, 0o600 | 0o020000, os.makedev(1, 3))


REPLACE: dict[str, Callable[[Path], None]] = {"garbage": _garbage, "device": _device, **NO_FILE}


def _in_pieces(path: Path) -> bytes:
    with path.open("rb", buffering=0) as file:
        return b"".join(iter(lambda: file.read(7), b""))


STREAMS = ("values", "keys", "records.jsonl", "records.arrow")
READERS: dict[str, Callable[[Path], bytes]] = {
    "read": Path.read_bytes,
    "copy": lambda path: Path(shutil.copy(path, path.parents[3] / "copy")).read_bytes(),
    "pieces": _in_pieces,
}


@pytest.fixture(params=REPLACE)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.mark.parametrize("base_offset", [0, 2, 4])
def test_no_reader_of_a_stream_takes_a_part_for_the_whole(
    mount: Mounting, live: LiveLog, kind: str, base_offset: int
) -> None:
    REPLACE[kind](live.log(base_offset))
    mounted = mount(live.directory)
    partition = mounted.point / "t/0"
    for name in STREAMS:
        for reader in READERS.values():
            with pytest.raises(OSError, match="Input/output error"):
                reader(partition / name)
    assert live.log(base_offset).name in "".join(mounted.lines("WARNING"))


@pytest.mark.parametrize("base_offset", [0, 2, 4])
def test_the_command_line_fails_too(live: LiveLog, kind: str, base_offset: int) -> None:
    REPLACE[kind](live.log(base_offset))
    for name in STREAMS:
        result = CliRunner().invoke(cli, ["cat", str(live.directory), f"t/0/{name}"])
        assert result.exit_code == 1
        assert live.log(base_offset).name in result.stderr


@pytest.mark.parametrize("base_offset", [2, 4])
def test_a_key_with_a_possible_later_record_in_it_cannot_be_read(
    mount: Mounting, live: LiveLog, kind: str, base_offset: int
) -> None:
    REPLACE[kind](live.log(base_offset))
    mounted = mount(live.directory)
    for directory in ("key", "compacted/latest"):
        with pytest.raises(OSError, match="Input/output error"):
            (mounted.point / "t/0" / directory / "key 1").read_bytes()
    assert live.log(base_offset).name in "".join(mounted.lines("WARNING"))


def test_a_log_of_one_segment(mount: Mounting, live: LiveLog, kind: str) -> None:
    for base_offset in (0, 2):
        for file in live.partition.glob(f"{base_offset:020}.*"):
            file.unlink()
    REPLACE[kind](live.log(4))
    mounted = mount(live.directory)
    partition = mounted.point / "t/0"
    for name in STREAMS:
        with pytest.raises(OSError, match="Input/output error"):
            (partition / name).read_bytes()
    assert live.log(4).name in "".join(mounted.lines("WARNING"))


def test_damage_that_appears_at_the_end_of_a_measured_log(mount: Mounting, live: LiveLog) -> None:
    """The last part ends at the same offset as before; it is measured again all the same."""
    mounted = mount(live.directory)
    values = mounted.point / "t/0/values"
    whole = values.read_bytes()
    with live.active().open("ab") as file:
        file.write(b"\xa5" * 100)
    _settle(live.active())

    def read() -> bytes:
        data = b""
        with values.open("rb", buffering=0) as file:
            while part := file.read(4096):
                data += part
        return data

    with pytest.raises(OSError, match="Input/output error"):
        read()
    assert mounted.lines("WARNING")
    assert whole == b"".join(b"value %d\n" % offset for offset in range(live.end))
