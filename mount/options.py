"""The options of a mount, as `-o a,b=c` gives them."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final

from kafkafs.storage import (
    ConfigError,
    Isolation,
    LogDirError,
    absolute_path,
    local_path,
    location,
    milliseconds,
)

#: Passed to the kernel unchanged.
KERNEL_FLAGS: Final = frozenset(
    {
        *("nosuid", "suid", "nodev", "dev", "noexec", "exec"),
        *("noatime", "atime", "nodiratime", "diratime", "relatime", "sync"),
    }
)
#: Ignored: fstab, mount(8) and systemd use these among themselves. mount(8) adds `rw` by default,
#: so it makes nothing writable; `writable` does.
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
    """`isolation`: which records are served. `at_ms`: everything is shown as it was at this time,
    in ms since 1970; None for now. `writable`: the directories are locked and can be changed;
    `maintain`: they are also maintained as by a broker, with retention, the cleaner and
    the removal of leftovers running on their own. `unregistered`: topics may be created although a
    KRaft broker would treat them as strays. `key_separator`: separates key and value in a line for
    `append`; b"" if lines are values. `allow_other`: other users may access the mount. `log`: the
    file that a daemon logs to, "" for syslog. `debug`: log each decision. `kernel_flags`: members
    of `KERNEL_FLAGS`, in the order given. `tier`: where the topics' remote storage is, "" for
    nowhere."""

    isolation: Isolation = Isolation.READ_COMMITTED
    at_ms: int | None = None
    writable: bool = False
    maintain: bool = False
    unregistered: bool = False
    key_separator: bytes = b""
    allow_other: bool = False
    log: str = ""
    debug: bool = False
    kernel_flags: tuple[str, ...] = ()
    tier: str = ""


def parse_options(text: str, base: MountOptions | None = None) -> MountOptions:
    """Returns `base` changed by the comma-separated options in `text`; the last of repeated options
    wins. Raises ConfigError, with the allowed options or values, if one is unknown or invalid."""
    options = base or MountOptions()
    for option in filter(None, map(_stripped, text.split(","))):
        options = _changed(options, option)
    return options


def check_options(options: MountOptions) -> None:
    """Raises ConfigError if the options contradict each other."""
    if options.maintain and not options.writable:
        raise ConfigError("maintain", "needs a writable mount: --rw, or -o writable")
    if options.writable and options.tier:
        raise ConfigError("tier", "remote storage is only read: leave out --rw and -o writable")
    if options.writable and options.at_ms is not None:
        raise ConfigError("at", "a mount as of a time is read-only: leave out --rw and -o writable")


def _stripped(option: str) -> str:
    """Strips blanks, except from the separator of keys and values."""
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
    if name == "at":
        return replace(options, at_ms=_time(value))
    if name == "key_separator":
        return replace(options, key_separator=_separator(value))
    if name == "log":
        if not value:
            raise ConfigError(name, "needs a file name: log=/var/log/kafkafs.log")
        return replace(options, log=_path(name, value, local_path))
    if name == "tier":
        if not value:
            raise ConfigError(name, "needs a directory: tier=/mnt/tier")
        return replace(options, tier=absolute_path(_path(name, value, location)))
    known = (
        "isolation=, at=, writable, maintain, unregistered, key_separator=, allow_other, log=,"
        " tier=, debug, and those of mount(8)"
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
        why = "needs a text without commas or line breaks: key_separator=="
        raise ConfigError("key_separator", why)
    return separator


def _time(text: str) -> int:
    try:
        return milliseconds(text)
    except ValueError as error:
        raise ConfigError("at", str(error)) from None


def _path(name: str, value: str, read: Callable[[str], str]) -> str:
    try:
        return read(value)
    except LogDirError as error:
        raise ConfigError(name, str(error)) from None


def _isolation(value: str) -> Isolation:
    try:
        return Isolation(value)
    except ValueError:
        allowed = " or ".join(isolation.value for isolation in Isolation)
        raise ConfigError("isolation", f"must be {allowed}") from None
