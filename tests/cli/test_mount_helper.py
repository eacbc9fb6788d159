"""Tests of `mount.kafkafs` with the arguments that mount(8) may pass."""

from __future__ import annotations

import pytest

from kafkafs.cli import mount_helper
from kafkafs.cli.mount_helper import MountRequest, command_line, known_options, parse
from kafkafs.mount.options import MountOptions, parse_options
from kafkafs.storage.log.read.transactions import Isolation
from tests.cli.results import Shell

# From mount(8), "EXTERNAL HELPERS":
# /sbin/mount.suffix spec dir [-sfnv] [-N namespace] [-o options] [-t type.subtype]


@pytest.mark.parametrize(
    ("arguments", "request_made"),
    [
        (["/data", "/mnt"], MountRequest("/data", "/mnt", "", False, False)),
        (["/data", "/mnt", "-o", "ro"], MountRequest("/data", "/mnt", "ro", False, False)),
        (
            ["/data", "/mnt", "-sfnv", "-N", "/proc/1/ns/mnt", "-o", "ro", "-t", "fuse.kafkafs"],
            MountRequest("/data", "/mnt", "ro", True, True),
        ),
        (["-o", "ro", "/data", "-v", "/mnt"], MountRequest("/data", "/mnt", "ro", False, False)),
        (
            ["/data", "/mnt", "-o", "a,b", "-o", "c"],
            MountRequest("/data", "/mnt", "a,b,c", False, False),
        ),
    ],
)
def test_arguments(arguments: list[str], request_made: MountRequest) -> None:
    assert parse(arguments) == request_made


@pytest.mark.parametrize("arguments", [[], ["/data"], ["/a", "/b", "/c"], ["/a", "/b", "-x"]])
def test_arguments_that_mount_does_not_give(arguments: list[str]) -> None:
    with pytest.raises(mount_helper.UsageError):
        parse(arguments)


def test_sloppy_leaves_out_what_a_mount_does_not_know() -> None:
    assert known_options("ro,bogus,isolation=none,allow_other") == "ro,allow_other"
    sloppy = MountRequest("/data", "/mnt", "bogus,ro", False, True)
    assert command_line(sloppy) == ["mount", "-o", "ro", "--", "/data", "/mnt"]


def test_fake_only_checks() -> None:
    fake = MountRequest("/data", "/mnt", "bogus", True, False)
    assert command_line(fake) == ["mount", "--check", "-o", "bogus", "--", "/data", "/mnt"]


@pytest.mark.parametrize(
    "options",
    [
        "defaults", "rw", "ro", "nofail", "auto", "noauto", "user", "nouser", "users", "owner",
        "group", "_netdev", "comment=x", "x-systemd.automount", "x-systemd.requires=a.service",
        "x-gvfs-show", "X-mount.mkdir", "rw,dev,suid", "ro,,nofail",
    ],
)  # fmt: skip
def test_what_fstab_says_to_others_changes_nothing(options: str) -> None:
    parsed = parse_options(options)
    assert parsed.isolation is Isolation.READ_COMMITTED
    assert not parsed.allow_other
    assert parsed.log == MountOptions().log


@pytest.mark.parametrize(
    ("arguments", "code", "line"),
    [
        ("", 1, "mount.kafkafs: usage: mount.kafkafs LOG_DIRS MOUNTPOINT [-sfnv] [-o OPTIONS]\n"),
        ("/a /b -x", 1, "mount.kafkafs: option -x not recognized\n"),
        ("/nowhere /tmp", 32, "kafkafs: /nowhere: no such directory\n"),
        ("-f /nowhere /tmp", 32, "kafkafs: /nowhere: no such directory\n"),
    ],
)
def test_exit_codes_are_those_of_mount(shell: Shell, arguments: str, code: int, line: str) -> None:
    done = shell(f"mount.kafkafs {arguments}")
    assert (done.returncode, done.stdout, done.stderr) == (code, "", line)
