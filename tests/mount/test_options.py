"""Options of a mount."""

from __future__ import annotations

import pytest

from kafkafs.mount.options import MountOptions, parse_options
from kafkafs.storage.errors import ConfigError
from kafkafs.storage.log.read.transactions import Isolation


def test_none() -> None:
    assert parse_options("") == MountOptions()


def test_all() -> None:
    text = (
        "isolation=read_uncommitted,writable,key_separator==,allow_other,log=/var/log/k.log,debug,"
        "nosuid,noatime"
    )
    assert parse_options(text) == MountOptions(
        isolation=Isolation.READ_UNCOMMITTED,
        writable=True,
        key_separator=b"=",
        allow_other=True,
        log="/var/log/k.log",
        debug=True,
        kernel_flags=("nosuid", "noatime"),
    )


def test_the_last_of_two_counts() -> None:
    options = parse_options("isolation=read_uncommitted,isolation=read_committed")
    assert options.isolation is Isolation.READ_COMMITTED


def test_a_base_is_changed() -> None:
    base = MountOptions(isolation=Isolation.READ_UNCOMMITTED)
    assert parse_options("allow_other", base) == MountOptions(
        isolation=Isolation.READ_UNCOMMITTED, allow_other=True
    )


def test_what_fstab_says_to_others() -> None:
    text = "defaults,rw,ro,noauto,_netdev,nofail,x-systemd.automount,X-foo=1,comment=a,user, "
    assert parse_options(text) == MountOptions()


def test_only_writable_makes_a_mount_writable() -> None:
    assert not parse_options("rw").writable
    assert parse_options("rw,writable").writable
    assert parse_options("ro,writable").writable  # mount(8) adds "ro" by itself, so it is ignored
    assert parse_options("allow_other", MountOptions(writable=True)).writable  # `--rw`


@pytest.mark.parametrize(
    ("text", "separator"),
    [
        ("key_separator=:", b":"),
        ("key_separator==", b"="),
        ("key_separator= => ,debug", b" => "),
        (" key_separator=\t", b"\t"),
        ("key_separator=\u00e9", b"\xc3\xa9"),
        ("key_separator=\udcff", b"\xff"),
        ("key_separator=a,key_separator=b", b"b"),
    ],
)
def test_key_separators(text: str, separator: bytes) -> None:
    assert parse_options(text).key_separator == separator


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("isolated=read_committed", "isolated"),
        ("isolation=committed", "isolation"),
        ("isolation", "isolation"),
        ("log", "log"),
        ("log=", "log"),
        ("allow_other=1", "allow_other"),
        ("writable=yes", "writable"),
        ("write", "write"),
        ("key_separator", "key_separator"),
        ("key_separator=", "key_separator"),
        ("key_separator=a\nb", "key_separator"),
        ("debug=yes", "debug"),
        ("nosuid=1", "nosuid"),
        ("fsname=x", "fsname"),
    ],
)
def test_refused_by_name(text: str, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(f"allow_other,{text}")
    assert caught.value.name == name
