"""Tests of progress bars: shown only on a terminal, and never on a line with other output."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.terminal import Terminal
from tests.logs import write_log_dir

_BAR = re.compile(r"working(?: inside)? (?:\.\.\.|\[)[^\r]*")

# Writes every kind of output while a bar is shown that is redrawn at each update.
PROGRAM = """
import logging, os, subprocess, sys, threading, warnings
from kafkafs.cli.support import failures, output, progress

progress._INTERVAL = 0
progress.guard_output()
out = output.binary()
out.write(b"first\\n")
with output.bar("working") as told:
    def move():
        for done in range(100):
            told(done, 100)
    movers = [threading.Thread(target=move) for _ in range(2)]
    for mover in movers:
        mover.start()
    for number in range(50):
        told(number, 50)
        out.write(b"line %d\\n" % number)
        failures.warn(f"warning {number}")
        print("printed", number)
        logging.getLogger("x").warning("logged %d", number)
        out.writelines([b"written %d\\n" % number, b"begun "])
        told(number, 50)
        out.write(b"and ended %d\\n" % number)
    for mover in movers:
        mover.join()
    with output.bar("working inside") as inner:
        inner(1, 2)
        failures.report(failures.Failure("an error"))
    told(99, 100)
print("last")
"""


def expected() -> list[str]:
    lines = ["first"]
    for number in range(50):
        lines += [f"line {number}", f"kafkafs: warning {number}", f"printed {number}"]
        lines += [f"logged {number}", f"written {number}", f"begun and ended {number}"]
    return [*lines, "kafkafs: an error", "last"]


def screen(raw: bytes) -> list[str]:
    """Returns the lines that remain on a terminal, without what was erased."""
    lines: list[str] = []
    for line in raw.decode().split("\r\n"):
        erased, _, left = line.rpartition("\r\x1b[K")
        for shown in filter(None, erased.split("\r\x1b[K")):
            assert _BAR.fullmatch(shown), f"{shown!r} was erased"
        lines.append(left)
    assert lines.pop() == ""
    return lines


@pytest.fixture
def surroundings(programs: Path, environment: Mapping[str, str]) -> dict[str, str]:
    return {**environment, "PATH": f"{programs}:{environment['PATH']}", "TERM": "xterm"}


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_output_and_bars_do_not_mix(surroundings: Mapping[str, str], unbuffered: str) -> None:
    variables = {**surroundings, "PYTHONUNBUFFERED": unbuffered}
    with Terminal([sys.executable, "-c", PROGRAM], variables) as terminal:
        assert terminal.exit_code() == 0, terminal.seen
        assert "working [####" in terminal.seen
        assert "working inside [####" in terminal.seen
        assert screen(terminal.raw) == expected()


def test_stdout_in_a_file_has_no_bar(surroundings: Mapping[str, str], tmp_path: Path) -> None:
    command = ["sh", "-c", f'exec "$0" -c "$1" > {tmp_path}/out', sys.executable, PROGRAM]
    with Terminal(command, surroundings) as terminal:
        assert terminal.exit_code() == 0, terminal.seen
        assert "working [####" in terminal.seen
        on_stderr = [line for line in expected() if line.startswith(("kafkafs:", "logged"))]
        assert screen(terminal.raw) == on_stderr
    written = (tmp_path / "out").read_text().splitlines()
    assert written == [line for line in expected() if line not in on_stderr]


def test_a_terminal_that_cannot_clear_a_line_has_no_bar(surroundings: Mapping[str, str]) -> None:
    variables = {**surroundings, "TERM": "dumb", "PYTHONUNBUFFERED": "1"}
    with Terminal([sys.executable, "-c", PROGRAM], variables) as terminal:
        assert terminal.exit_code() == 0
        assert terminal.seen.splitlines() == expected()


@pytest.mark.parametrize("closed", ["", ">&-", "2>&-"])
def test_pipes_have_no_bar(surroundings: Mapping[str, str], closed: str) -> None:
    program = (
        PROGRAM
        if not closed
        else "from kafkafs.cli.support.progress import bar\nwith bar('x'): ..."
    )
    command = ["sh", "-c", f'exec "$0" -c "$1" {closed}', sys.executable, program]
    done = subprocess.run(command, env=surroundings, capture_output=True, check=True)
    assert b"working" not in done.stdout + done.stderr
    assert b"\x1b" not in done.stdout + done.stderr


def test_a_bar_needs_no_stdout(surroundings: Mapping[str, str]) -> None:
    program = "from kafkafs.cli.support.progress import bar\nwith bar('x'): ..."
    command = ["sh", "-c", 'exec "$0" -c "$1" >&-', sys.executable, program]
    with Terminal(command, surroundings) as terminal:
        assert terminal.exit_code() == 0, terminal.seen
        assert terminal.seen == "x ..."


def test_findings_are_printed_beside_the_bar_of_verify(
    surroundings: Mapping[str, str], tmp_path: Path
) -> None:
    write_log_dir(tmp_path, {})
    for number in range(3):
        (tmp_path / f"t-{number}").mkdir()
        (tmp_path / f"t-{number}" / f"{0:020}.log").write_bytes(b"x" * 70)
    command = ["kafkafs", "verify", str(tmp_path)]
    plain = subprocess.run(command, env=surroundings, capture_output=True, text=True, check=False)
    assert plain.stdout.count("\n") >= 3
    with Terminal(command, surroundings) as terminal:
        assert terminal.exit_code() == plain.returncode == 1
        assert "verifying partitions" in terminal.seen
        found = re.sub(r"\r\x1b\[Kverifying partitions [^\r]*", "", terminal.raw.decode())
    assert found.replace("\r\x1b[K", "").replace("\r\n", "\n") == plain.stdout + plain.stderr


def test_typed_lines_have_no_bar(surroundings: Mapping[str, str], tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    data = str(tmp_path / "data")
    subprocess.run(["kafkafs", "topic", "create", data, "t"], env=surroundings, check=True)
    with Terminal(["kafkafs", "append", data, "t/0"], surroundings) as terminal:
        terminal.type("hello\n")
        terminal.wait_for("hello")
        terminal.type("\x04")
        assert terminal.exit_code() == 0
        assert "appending" not in terminal.seen
        assert "offset" in terminal.seen
