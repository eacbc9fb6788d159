"""`kafkafs mount`: the tree for every program, through FUSE."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import click

from . import failures
from .params import LocalPath, Setting, log_dirs_argument, reading_options
from .verb import Verb

if TYPE_CHECKING:
    from kafkafs.storage.engine import Engine


@click.command(
    cls=Verb,
    short_help="Mount log directories, for reading or, with --rw, for writing.",
    examples=[
        ("kafkafs mount /data /mnt/kafka", "returns when the mount answers; a daemon serves it"),
        ("kafkafs mount /data1,/data2 /mnt/kafka", "all of a broker's log.dirs as one"),
        ("kafkafs mount --rw /data /mnt/kafka", "rm deletes, >> appends; no broker may be running"),
        (
            "kafkafs mount -o allow_other,log=/var/log/kafkafs.log /data /mnt/kafka",
            "for all users, with a log of its own",
        ),
        (
            "kafkafs mount --foreground --isolation read_uncommitted /data /mnt/kafka",
            "until Ctrl-C, with records of open and aborted transactions",
        ),
        (
            "/data /mnt/kafka fuse.kafkafs nofail,allow_other 0 0",
            "a line of /etc/fstab; needs kafkafs in /usr/bin, /usr/local/bin or linked from there",
        ),
    ],
)
@log_dirs_argument
@click.argument("mountpoint", metavar="MOUNTPOINT", type=LocalPath())
@click.option(
    "--rw",
    "writable",
    is_flag=True,
    help="Hold the directories and let them be changed; as -o writable.",
)
@click.option(
    "--maintain",
    is_flag=True,
    help="With --rw: let retention, the cleaner and the removal of leftovers run, as in a broker; "
    "as -o maintain.",
)
@click.option(
    "-o",
    "options",
    metavar="OPTIONS",
    multiple=True,
    help="Options of the mount, joined by commas: isolation=LEVEL, writable, maintain, "
    "key_separator=TEXT, allow_other, log=FILE, debug, and those of mount(8).",
)
@click.option(
    "-f", "--foreground", is_flag=True, help="Serve until unmounted or Ctrl-C; log to stderr."
)
@click.option(
    "--check", "only_check", is_flag=True, help="Mount nothing; say what would be in the way."
)
@reading_options
def command(
    log_dirs: tuple[str, ...],
    mountpoint: str,
    writable: bool,
    maintain: bool,
    options: tuple[str, ...],
    foreground: bool,
    only_check: bool,
    settings: tuple[Setting, ...],
    isolation: str,
) -> None:
    """Mount LOG_DIRS on the empty directory MOUNTPOINT.

    Read-only unless --rw is given: nothing in the log directories is changed and no lock is taken,
    so that they may be a running broker's. With --rw they are locked as by a broker, and what was
    not closed in good order is recovered; nothing is deleted but what you delete. With --rw
    --maintain retention, the cleaner and the removal of leftovers run as long as the mount lasts;
    the command first prints what the first pass will delete, and why.

    What is logged goes to syslog, unless -o log=FILE names a file. To end it: kafkafs umount, or
    the signal TERM to the daemon.
    """
    try:
        from kafkafs.mount.mounting import session
    except ImportError as error:
        why = (
            "mounting needs pyfuse3 and trio; install them, for example with `pip install pyfuse3`"
        )
        raise failures.Failure(f"{error}; {why}") from error
    from kafkafs.mount.mounting.fuse_obstacle import fuse_obstacle
    from kafkafs.mount.options import MountOptions, check_options, parse_options
    from kafkafs.storage.log.transactions import Isolation

    from .opening import open_engine, open_writable

    base = MountOptions(isolation=Isolation(isolation), writable=writable, maintain=maintain)
    chosen = parse_options(",".join(options), base)
    check_options(chosen)

    def make_engine(paths: Sequence[str]) -> Engine:
        if not chosen.writable:
            return open_engine(tuple(paths), settings)
        # What the mount before this one deleted can be brought back.
        return open_writable(
            tuple(paths),
            settings,
            finds_deleted=True,
            maintain=chosen.maintain,
            unregistered=chosen.unregistered,
        )

    # Absolute, because a daemon has the root as its current directory.
    paths = [os.path.abspath(path) for path in log_dirs]
    mountpoint = os.path.abspath(mountpoint)
    try:
        # Here and not only in the daemon, because here a wrong setting is still a wrong usage.
        with closing(open_engine(tuple(paths), settings)) as engine:
            if chosen.maintain and not only_check:
                _report_first_pass(engine)
        if only_check:
            session.check(paths, mountpoint)
            obstacle = fuse_obstacle()
            if obstacle:
                raise failures.Failure(f"{mountpoint}: {obstacle}")
            return
        # A daemon outlives whoever reads what it prints.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        session.mount(paths, mountpoint, chosen, foreground=foreground, make_engine=make_engine)
    except session.MountError as error:
        raise failures.Failure(str(error)) from error


def _report_first_pass(engine: Engine) -> None:
    """Says what is deleted as soon as the mount maintains the directories."""
    from kafkafs.storage.first_pass import first_pass

    dues = first_pass(engine, time.time_ns() // 1_000_000)
    if not dues:
        click.echo("kafkafs: the first pass deletes nothing", err=True)
    for due in dues:
        records = f"up to {due.records} records, " if due.records else ""
        size = f"{due.size} bytes"
        count = len(due.partitions)
        partitions = f"{count} partition{'' if count == 1 else 's'}"
        what = f"{records}{size} of {partitions} ({due.cause})"
        click.echo(f"kafkafs: the first pass deletes {what}", err=True)
