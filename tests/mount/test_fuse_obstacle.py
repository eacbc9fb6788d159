"""The messages of `mount --check` where FUSE cannot be used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kafkafs.mount.session import fuse_obstacle as tested
from kafkafs.mount.session.fuse_obstacle import fuse_obstacle

_ALL: str = "Name:\tx\nCapEff:\t000001ffffffffff\n"
_DOCKER: str = "Name:\tx\nCapEff:\t00000000a80425fb\n"


@pytest.fixture
def status(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without obstacles, as root; each test takes something away."""
    device, path = tmp_path / "fuse", tmp_path / "status"
    device.touch()
    path.write_text(_ALL)
    monkeypatch.setattr(tested, "_DEVICE", str(device))
    monkeypatch.setattr(tested, "_STATUS", str(path))
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    return path


def test_nothing_is_missing(status: Path) -> None:
    assert fuse_obstacle() == ""


def test_no_device(status: Path) -> None:
    status.with_name("fuse").unlink()
    assert "fuse is missing: load the kernel's module" in fuse_obstacle()
    assert "--device /dev/fuse --cap-add SYS_ADMIN" in fuse_obstacle()


def test_a_device_that_cannot_be_opened(status: Path) -> None:
    device = status.with_name("fuse")
    device.unlink()
    device.mkdir()
    assert "fuse cannot be opened: Is a directory; give this user" in fuse_obstacle()


def test_root_of_a_container(status: Path) -> None:
    status.write_text(_DOCKER)
    assert fuse_obstacle().startswith("root may not mount here: CAP_SYS_ADMIN is missing; in a con")
    assert "--security-opt apparmor:unconfined" in fuse_obstacle()


def test_no_fusermount(status: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    status.write_text(_DOCKER)  # a plain user has no capability, and needs none
    monkeypatch.setenv("PATH", str(tmp_path))
    assert fuse_obstacle() == "the program fusermount3 is missing; install the package fuse3"
    (tmp_path / "fusermount3").touch(mode=0o755)
    assert fuse_obstacle() == ""
