"""Interactive editors: nano in a terminal, and the files that vim creates among keys."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.log_manager import LogManager
from tests.cli.terminal import Terminal
from tests.mounted.conftest import Mounting
from tests.reading import read

_ENTER, _END, _WRITE, _EXIT = "\r", "\x1b/", "\x0f", "\x18"
_ENVIRONMENT = {"PATH": os.environ["PATH"], "TERM": "xterm", "LANG": "C.UTF-8", "HOME": "/nowhere"}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    with LogManager(str(tmp_path / "data")) as engine:
        engine.create_topic("t", 1, {"retention.ms": "-1"})
    return tmp_path / "data"


@contextmanager
def nano(path: Path, *options: str) -> Iterator[Terminal]:
    """Edits `path`, with the cursor at the end."""
    with Terminal(["nano", "--ignorercfiles", *options, str(path)], _ENVIRONMENT) as terminal:
        terminal.wait_for("Exit")
        terminal.type(_END)
        yield terminal


def save(terminal: Terminal, answer: str) -> None:
    """Saves under the same name."""
    terminal.type(_WRITE)
    terminal.wait_for("File Name to Write")
    terminal.type(_ENTER)
    terminal.wait_for(answer)


def records(data: Path) -> list[tuple[bytes | None, bytes | None]]:
    return [(each.key, each.value) for each in read(Engine(str(data)).log("t", 0).view())]


@pytest.mark.parametrize("options", [(), ("-B",), ("-G",)], ids=["plain", "copy", "lock file"])
def test_nano_changes_settings(data: Path, mount: Mounting, options: tuple[str, ...]) -> None:
    topic = mount(data, "writable").point / "t"
    path = topic / "config.properties"
    with nano(path, *options) as editing:
        editing.type("segment.bytes=2097152")
        save(editing, "Wrote ")
        editing.type(_EXIT)
        assert editing.exit_code() == 0
    assert path.read_text() == "retention.ms=-1\nsegment.bytes=2097152\n"
    assert Engine(str(data)).topic_config("t").changed["segment.bytes"] == "2097152"
    copies = {"config.properties~"} if "-B" in options else set()
    assert set(os.listdir(topic)) == {"0", "config.properties", *copies}


def test_nano_is_told_of_a_bad_setting(data: Path, mount: Mounting) -> None:
    path = mount(data, "writable").point / "t/config.properties"
    with nano(path) as editing:
        editing.type("segment.bytes=few")
        save(editing, "Invalid argument")
    assert path.read_text() == "retention.ms=-1\n"


def test_nano_writes_a_record_each_time_it_saves(data: Path, mount: Mounting) -> None:
    path = mount(data, "writable").point / "t/0/key/karin"
    for drink in ("tea", "pie"):
        with nano(path) as editing:
            editing.type(drink)
            save(editing, "Wrote ")
            editing.type(_EXIT)
            assert editing.exit_code() == 0
    assert records(data) == [(b"karin", b"tea\n"), (b"karin", b"tea\npie\n")]


def test_what_vim_makes_beside_a_key_is_keys(data: Path, mount: Mounting) -> None:
    keys = mount(data, "writable").point / "t/0/key"
    (keys / "karin").write_bytes(b"tea\n")
    command = [shutil.which("vim") or "vim.tiny", "-es", "-u", "NONE", "-i", "NONE"]
    command += ["-c", "%s/tea/pie/", "-c", "wq", "karin"]
    alone = ["-n", "--cmd", "set nowritebackup"]
    subprocess.run([command[0], *alone, *command[1:]], cwd=keys, check=True)
    assert records(data) == [(b"karin", b"tea\n"), (b"karin", b"pie\n")]
    (keys / "karin").write_bytes(b"tea\n")
    subprocess.run(command, cwd=keys, check=True)
    assert os.listdir(keys) == ["karin"]
    assert (keys / "karin").read_bytes() == b"pie\n"
    beside = {key: value for key, value in records(data) if key != b"karin"}
    assert beside
    assert set(beside.values()) == {None}  # tombstones, in the end
