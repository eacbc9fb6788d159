"""`kafkafs mount`: mounts log directories through FUSE."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import click

from .. import installation
from ..params.arguments import log_dirs_argument
from ..params.configs import reading_options, schema_option
from ..params.paths import LocalPath
from ..params.times import as_of_option
from ..support import failures
from ..support.verb import Verb
from ..support.words import Config

if TYPE_CHECKING:
    from kafkafs.storage import Engine


@click.command(
    cls=Verb,
    short_help="Mount log directories read-only or, with --rw, writable.",
    examples=[
        (
            "kafkafs mount /data /mnt/kafka",
            "mount read-only, served by a daemon; returns when the mount is ready",
        ),
        ("kafkafs mount /data1,/data2 /mnt/kafka", "mount all of a broker's log.dirs as one tree"),
        (
            "kafkafs mount --rw /data /mnt/kafka",
            "mount writable: rm deletes, >> appends; no broker may be running",
        ),
        (
            "kafkafs mount -o allow_other,log=/var/log/kafkafs.log /data /mnt/kafka",
            "let all users read the mount, and log to a file",
        ),
        (
            "kafkafs mount --foreground --isolation read_uncommitted /data /mnt/kafka",
            "serve until Ctrl-C, including records of open and aborted transactions",
        ),
        (
            "kafkafs mount --at 2026-09-03T12:00 /data /mnt/noon",
            "mount the directories as they were at a time; same as -o at=TIME",
        ),
        (
            "/data /mnt/kafka fuse.kafkafs nofail,allow_other 0 0",
            "a line of /etc/fstab; needs kafkafs, or a link to it, in /usr/bin or /usr/local/bin",
        ),
    ],
)
@log_dirs_argument
@click.argument("mountpoint", metavar="MOUNTPOINT", type=LocalPath())
@click.option(
    "--rw",
    "writable",
    is_flag=True,
    help="Lock the directories and allow changes; same as -o writable.",
)
@click.option(
    "--maintain",
    is_flag=True,
    help="With --rw: run retention, the log cleaner and the removal of leftover files, as a broker "
    "does; same as -o maintain.",
)
@click.option(
    "-o",
    "options",
    metavar="OPTIONS",
    multiple=True,
    help="Mount options, separated by commas: isolation=LEVEL, at=TIME, writable, maintain, "
    "unregistered, key_separator=TEXT, allow_other, log=FILE, debug, and those of mount(8).",
)
@click.option(
    "-f",
    "--foreground",
    is_flag=True,
    help="Do not start a daemon: serve until unmounted or Ctrl-C; log to stderr.",
)
@click.option(
    "--check", "only_check", is_flag=True, help="Mount nothing; report what would prevent mounting."
)
@reading_options
@schema_option
@as_of_option
def command(
    log_dirs: tuple[str, ...],
    mountpoint: str,
    writable: bool,
    maintain: bool,
    options: tuple[str, ...],
    foreground: bool,
    only_check: bool,
    configs: tuple[Config, ...],
    isolation: str,
    at: int | None,
) -> None:
    """Mount LOG_DIRS on the directory MOUNTPOINT. Files in it are hidden until it is unmounted.

    By default the mount is read-only: it changes nothing in the log directories and takes no lock,
    so a broker may be running on them. With --rw, the directories are locked as by a broker and
    recovered after an unclean shutdown; only what you delete is deleted. With --rw --maintain,
    retention, the log cleaner and the removal of leftover files run while the directories are
    mounted; the command first prints what the first pass will delete, and why.

    With --at, or -o at=TIME, everything is shown as it was at TIME, read-only: every partition ends
    before the first record that is later. The directories segments/ and dump/, which show files as
    they are on the disk now, do not exist then.

    The daemon logs to syslog, or to a file with -o log=FILE. To unmount, run `kafkafs umount` or
    send SIGTERM to the daemon.
    """
    if not sys.platform.startswith("linux"):
        raise failures.Failure(
            "mounting needs Linux; ls, cat, stat and the Python API read the same tree without it"
        )
    with installation.needed_by("mount", "mount"):
        from kafkafs.mount.session import session
    from kafkafs.mount.options import MountOptions, check_options, parse_options
    from kafkafs.mount.session.fuse_obstacle import fuse_obstacle
    from kafkafs.storage import TIER_CONFIG, Isolation, absolute_path

    from ..support.opening import check_schemas, open_engine, open_writable

    base = MountOptions(
        isolation=Isolation(isolation), at_ms=at, writable=writable, maintain=maintain
    )
    mount_options = parse_options(",".join(options), base)
    check_options(mount_options)
    if mount_options.tier:
        configs = (*configs, (TIER_CONFIG, mount_options.tier))

    def make_engine(paths: Sequence[str]) -> Engine:
        if not mount_options.writable:
            return open_engine(tuple(paths), configs, mount_options.at_ms)
        # Deletions by the previous mount can be undone.
        return open_writable(
            tuple(paths),
            configs,
            finds_deleted=True,
            maintain=mount_options.maintain,
            unregistered=mount_options.unregistered,
        )

    # Absolute, because a daemon's current directory is the root.
    paths = [absolute_path(path) for path in log_dirs]
    mountpoint = os.path.abspath(mountpoint)
    try:
        # Checked here, not only in the daemon, so that a wrong config is reported as wrong usage.
        with closing(open_engine(tuple(paths), configs, mount_options.at_ms)) as engine:
            check_schemas(engine)
            if mount_options.maintain and not only_check:
                _report_first_pass(engine)
        if only_check:
            session.check(paths, mountpoint)
            obstacle = fuse_obstacle()
            if obstacle:
                raise failures.Failure(f"{mountpoint}: {obstacle}")
            return
        # The daemon outlives the reader of its output.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        session.mount(
            paths, mountpoint, mount_options, foreground=foreground, make_engine=make_engine
        )
    except session.MountError as error:
        raise failures.Failure(str(error)) from error


def _report_first_pass(engine: Engine) -> None:
    """Prints what the first maintenance pass of the mount will delete."""
    from kafkafs.storage import first_pass

    found = first_pass(engine, time.time_ns() // 1_000_000)
    for failed in found.failures:
        failures.report_row(failed)
    if not found.dues:
        known = " that can be previewed" if found.failures else ""
        click.echo(f"kafkafs: the first pass deletes nothing{known}", err=True)
    for due in found.dues:
        records = f"up to {_counted(due.records, 'record')}, " if due.records else ""
        size = f"{'up to ' if due.is_estimate else ''}{due.size} bytes"
        partitions = _counted(len(due.partitions), "partition")
        what = f"{records}{size} of {partitions} ({due.cause})"
        click.echo(f"kafkafs: the first pass deletes {what}", err=True)


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"
