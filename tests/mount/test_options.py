"""Options of a mount."""

from __future__ import annotations

import pytest

from kafkafs.mount.options import MountOptions, parse_options
from kafkafs.storage.errors import ConfigError
from kafkafs.storage.log.transactions import Isolation


def test_none() -> None:
    assert parse_options("") == MountOptions()


def test_all() -> None:
    text = "isolation=read_uncommitted,allow_other,log=/var/log/k.log,debug,nosuid,noatime"
    assert parse_options(text) == MountOptions(
        isolation=Isolation.READ_UNCOMMITTED,
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


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("isolated=read_committed", "isolated"),
        ("isolation=committed", "isolation"),
        ("isolation", "isolation"),
        ("log", "log"),
        ("log=", "log"),
        ("allow_other=1", "allow_other"),
        ("debug=yes", "debug"),
        ("nosuid=1", "nosuid"),
        ("fsname=x", "fsname"),
    ],
)
def test_refused_by_name(text: str, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_options(f"allow_other,{text}")
    assert caught.value.name == name
