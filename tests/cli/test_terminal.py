"""No byte or name in a log directory can control a terminal: on a pseudo-terminal every verb
prints only text, tabs and line ends, errors included."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests import warm_python
from tests.building import build_batch
from tests.logs import write_topic
from tests.waiting import PATIENCE_SECONDS

#: C0 except tab and line ends, DEL, and C1 as UTF-8.
COMMANDS = re.compile(rb"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]|\xc2[\x80-\x9f]")
EVIL = "\x1b[31m\x9b2J"
LOG = f"t-0/{0:020}.log"

CALLS = [
    ["ls", ".", "t/0/key"],
    ["ls", ".", EVIL],
    ["cat", ".", "t/0/values"],
    ["cat", ".", "t/0/offset/0"],
    ["cat", ".", "t/0/records.jsonl"],
    ["cat", ".", f"t/0/key/{EVIL}"],
    ["stat", ".", "t/0/offset/0"],
    ["stat", ".", f"t/0/{EVIL}"],
    ["explain", ".", "t/0/offset/0"],
    ["why", ".", f"{EVIL}/0"],
    ["dump", "--print-data-log", LOG],
    ["dump", f"t-0/{EVIL}.log"],
    ["verify", "."],
    [EVIL],
]


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hostile")
    data = f"{EVIL}\x07\x1b]0;title\x07\x7f\r\n".encode()
    record = SimpleRecord(1_700_000_000_000, data, data + b"\x9b2J", headers=[(EVIL, data)])
    write_topic(path, [build_batch([record])])
    (path / f"{EVIL}-0").mkdir()
    (path / "t-0" / f"{EVIL}.log").write_bytes(b"x")
    return path


_KAFKAFS = """
import os, sys
os.environ |= {"TERM": "dumb", "NO_COLOR": "1"}
os.chdir(sys.argv.pop(1))
from kafkafs.cli.main import main
main()
"""


def on_a_terminal(arguments: list[str], directory: Path) -> bytes:
    """Returns what a call prints on a terminal, errors included."""
    terminal, inner = pty.openpty()
    attributes = termios.tcgetattr(inner)
    attributes[1] &= ~termios.OPOST  # line ends are not translated
    termios.tcsetattr(inner, termios.TCSANOW, attributes)
    with os.fdopen(inner, "wb") as output:
        process = warm_python.start(_KAFKAFS, [str(directory), *arguments], output)
    shown = b""
    while data := _read(terminal):
        shown += data
    process.wait(PATIENCE_SECONDS)
    os.close(terminal)
    return shown


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # EIO: the other side is closed
        return b""


@pytest.mark.parametrize("arguments", CALLS, ids=lambda arguments: arguments[0].lstrip(EVIL))
def test_nothing_commands_a_terminal(hostile: Path, arguments: list[str]) -> None:
    shown = on_a_terminal(arguments, hostile)
    assert shown
    assert COMMANDS.findall(shown) == []


def test_a_pipe_gets_the_bytes_as_they_are(hostile: Path) -> None:
    command = [sys.executable, "-m", "kafkafs", "cat", ".", "t/0/offset/0"]
    done = subprocess.run(command, cwd=hostile, capture_output=True, check=True)
    assert done.stdout.endswith(b"\x1b]0;title\x07\x7f\r\n\x9b2J")
