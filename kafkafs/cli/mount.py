"""`kafkafs mount`: the tree for every program, through FUSE."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from . import failures
from .params import Setting, log_dirs_argument, reading_options
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
@click.argument("mountpoint", metavar="MOUNTPOINT", type=click.Path())
@click.option(
    "--rw",
    "writable",
    is_flag=True,
    help="Hold the directories and let them be changed; as -o writable.",
)
@click.option(
    "-o",
    "options",
    metavar="OPTIONS",
    multiple=True,
    help="Options of the mount, joined by commas: isolation=LEVEL, writable, key_separator=TEXT, "
    "allow_other, log=FILE, debug, and those of mount(8).",
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
    options: tuple[str, ...],
    foreground: bool,
    only_check: bool,
    settings: tuple[Setting, ...],
    isolation: str,
) -> None:
    """Mount LOG_DIRS on the empty directory MOUNTPOINT.

    Read-only unless --rw is given: nothing in the log directories is changed and no lock is taken,
    so that they may be a running broker's. With --rw they are held as by a broker, what was not
    closed in good order is recovered, and retention, cleaner and flushing run as long as the mount
    lasts.

    What is logged goes to syslog, unless -o log=FILE names a file. To end it: kafkafs umount, or
    the signal TERM to the daemon.
    """
    from kafkafs.mount.mounting import session
    from kafkafs.mount.options import MountOptions, parse_options
    from kafkafs.storage.log.transactions import Isolation

    from .opening import open_engine, open_writable

    base = MountOptions(isolation=Isolation(isolation), writable=writable)
    chosen = parse_options(",".join(options), base)

    def make_engine(paths: Sequence[str]) -> Engine:
        if not chosen.writable:
            return open_engine(tuple(paths), settings)
        # What the mount before this one deleted can be brought back for a while.
        return open_writable(tuple(paths), settings, keeps_deleted=True)

    # Absolute, because a daemon has the root as its current directory.
    paths = [os.path.abspath(path) for path in log_dirs]
    mountpoint = os.path.abspath(mountpoint)
    try:
        # Here and not only in the daemon, because here a wrong setting is still a wrong usage.
        open_engine(tuple(paths), settings).close()
        if only_check:
            session.check(paths, mountpoint)
            return
        # A daemon outlives whoever reads what it prints.
        signal.signal(signal.SIGPIPE, signal.SIG_IGN)
        session.mount(paths, mountpoint, chosen, foreground=foreground, make_engine=make_engine)
    except session.MountError as error:
        raise failures.Failure(str(error)) from error
