"""`mount.kafkafs SPEC MOUNTPOINT [-sfnv] [-o OPTIONS]`: the helper that mount(8) runs for fstab.

mount(8) looks for /sbin/mount.TYPE, so `mount -t kafkafs` needs a link from there to this program.
`mount -t fuse.kafkafs` needs no link if `kafkafs` is in /usr/local/bin or /usr/bin: mount.fuse3
runs it with the same arguments (`main.called_by_mount_fuse`), but without root's PATH.

SPEC is LOG_DIRS. The exit codes are those of mount(8): 0 mounted, 1 wrong usage, 32 mount failed.
"""

from __future__ import annotations

import getopt
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NoReturn

USAGE_ERROR: Final = 1
MOUNT_FAILED: Final = 32
PROGRAM: Final = "mount.kafkafs"


@dataclass(frozen=True, slots=True)
class MountRequest:
    """The arguments from mount(8). `fake` (-f): do everything except mounting. `sloppy` (-s):
    ignore unknown options. -n (no mtab), -v, -N (namespace, already entered) and -t have no
    effect."""

    spec: str
    mountpoint: str
    options: str
    fake: bool
    sloppy: bool


class UsageError(Exception):
    """Arguments that mount(8) would never pass."""


def parse(arguments: Sequence[str]) -> MountRequest:
    """Parses the arguments after the program's name. Options may be anywhere among the operands,
    and -o may be repeated. Raises UsageError."""
    try:
        flags, operands = getopt.gnu_getopt(list(arguments), "sfnvN:o:t:")
    except getopt.GetoptError as error:
        raise UsageError(str(error)) from None
    if len(operands) != 2:
        raise UsageError(f"usage: {PROGRAM} LOG_DIRS MOUNTPOINT [-sfnv] [-o OPTIONS]")
    given = [flag for flag, _ in flags]
    options = ",".join(value for flag, value in flags if flag == "-o")
    spec, mountpoint = operands
    return MountRequest(spec, mountpoint, options, fake="-f" in given, sloppy="-s" in given)


def known_options(options: str) -> str:
    """Returns `options` without those that `kafkafs mount` does not know."""
    from kafkafs.mount.options import parse_options
    from kafkafs.storage import ConfigError

    known = []
    for option in options.split(","):
        try:
            parse_options(option)
        except ConfigError:
            continue
        known.append(option)
    return ",".join(known)


def command_line(request: MountRequest) -> list[str]:
    """Returns the arguments of `kafkafs` for the request."""
    options = known_options(request.options) if request.sloppy else request.options
    fake = ["--check"] if request.fake else []
    return ["mount", *fake, "-o", options, "--", request.spec, request.mountpoint]


def main() -> NoReturn:
    """Runs the program `mount.kafkafs`."""
    from .main import cli

    try:
        arguments = command_line(parse(sys.argv[1:]))
    except UsageError as error:
        print(f"{PROGRAM}: {error}", file=sys.stderr)
        sys.exit(USAGE_ERROR)
    code = 0
    try:
        cli(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 0
    sys.exit({0: 0, 2: USAGE_ERROR}.get(code, MOUNT_FAILED))


if __name__ == "__main__":
    main()
