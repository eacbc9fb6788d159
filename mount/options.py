"""The options of a mount, as `-o a,b=c` gives them."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Final

from kafkafs.storage.errors import ConfigError, LogDirError
from kafkafs.storage.local_path import local_path
from kafkafs.storage.log.transactions import Isolation

#: Passed on to the kernel as they are.
KERNEL_FLAGS: Final = frozenset(
    {
        *("nosuid", "suid", "nodev", "dev", "noexec", "exec"),
        *("noatime", "atime", "nodiratime", "diratime", "relatime", "sync"),
    }
)
#: What fstab, mount(8) and systemd say to each other. `rw` is what mount(8) adds where nobody asked
#: for anything; so it makes nothing writable, but `writable` does.
_NOT_FOR_US: Final = frozenset(
    {
        *("defaults", "ro", "rw", "auto", "noauto", "_netdev", "nofail"),
        *("user", "nouser", "users", "group", "owner"),
    }
)
_NOT_FOR_US_EITHER: Final = ("x-", "X-", "comment=")
_SWITCHES: Final = frozenset(("writable", "maintain", "unregistered", "allow_other", "debug"))


@dataclass(frozen=True, slots=True)
class MountOptions:
    """`isolation`: which records are served. `writable`: whether the directories are held and can
    be changed; `maintain`: whether they are also maintained, as by a broker: retention, the cleaner
    and the removal of leftovers run by themselves. `unregistered`: whether topics are also made
    where a KRaft broker would make strays of them. `key_separator`: what stands between key and
    value in a line for `append`, b"" where lines are values. `allow_other`: whether other users may
    look. `log`: the file that a daemon logs to, "" for syslog. `debug`: whether it logs each
    decision. `kernel_flags`: some of `KERNEL_FLAGS`, in the order given."""

    isolation: Isolation = Isolation.READ_COMMITTED
    writable: bool = False
    maintain: bool = False
    unregistered: bool = False
    key_separator: bytes = b""
    allow_other: bool = False
    log: str = ""
    debug: bool = False
    kernel_flags: tuple[str, ...] = ()


def parse_options(text: str, base: MountOptions | None = None) -> MountOptions:
    """`base` changed by the options in `text`, separated by commas; of one given twice, the last
    counts. ConfigError names what does not exist, or what a value may be."""
    options = base or MountOptions()
    for option in filter(None, map(_stripped, text.split(","))):
        options = _changed(options, option)
    return options


def check_options(options: MountOptions) -> None:
    """ConfigError if the options contradict each other."""
    if options.maintain and not options.writable:
        raise ConfigError("maintain", "needs a writable mount: --rw, or -o writable")


def _stripped(option: str) -> str:
    """Without blanks around it, unless they are what separates keys from values."""
    return option.lstrip() if option.lstrip().startswith("key_separator=") else option.strip()


def _changed(options: MountOptions, option: str) -> MountOptions:
    name, equals, value = option.partition("=")
    if option in _NOT_FOR_US or option.startswith(_NOT_FOR_US_EITHER):
        return options
    if option in KERNEL_FLAGS:
        return replace(options, kernel_flags=(*options.kernel_flags, option))
    if name in _SWITCHES:
        if equals:
            raise ConfigError(name, "takes no value")
        return _switched_on(options, name)
    if name == "isolation":
        return replace(options, isolation=_isolation(value))
    if name == "key_separator":
        return replace(options, key_separator=_separator(value))
    if name == "log":
        if not value:
            raise ConfigError(name, "needs the name of a file: log=/var/log/kafkafs.log")
        return replace(options, log=_log_path(value))
    known = (
        "isolation=, writable, maintain, unregistered, key_separator=, allow_other, log=, debug,"
        " and those of mount(8)"
    )
    raise ConfigError(name, f"no such mount option; there are {known}")


def _switched_on(options: MountOptions, name: str) -> MountOptions:
    if name == "writable":
        return replace(options, writable=True)
    if name == "maintain":
        return replace(options, maintain=True)
    if name == "unregistered":
        return replace(options, unregistered=True)
    if name == "allow_other":
        return replace(options, allow_other=True)
    return replace(options, debug=True)


def _separator(text: str) -> bytes:
    separator = os.fsencode(text)
    if not separator or b"\n" in separator:
        why = "needs a text without commas and line breaks: key_separator=="
        raise ConfigError("key_separator", why)
    return separator


def _log_path(value: str) -> str:
    try:
        return local_path(value)
    except LogDirError as error:
        raise ConfigError("log", str(error)) from None


def _isolation(value: str) -> Isolation:
    try:
        return Isolation(value)
    except ValueError:
        allowed = " or ".join(isolation.value for isolation in Isolation)
        raise ConfigError("isolation", f"must be {allowed}") from None
