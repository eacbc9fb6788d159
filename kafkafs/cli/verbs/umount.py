"""`kafkafs umount`: unmounts log directories."""

from __future__ import annotations

import click

from ..params.paths import LocalPath
from ..support import failures
from ..support.verb import Verb


@click.command(
    cls=Verb,
    reads_logs=False,
    short_help="Unmount log directories, even if the daemon has died.",
    examples=[
        ("kafkafs umount /mnt/kafka", "unmount; /mnt/kafka is an ordinary directory again"),
        ("umount /mnt/kafka", "do the same, as root"),
    ],
)
@click.argument("mountpoints", metavar="MOUNTPOINT...", nargs=-1, required=True, type=LocalPath())
def command(mountpoints: tuple[str, ...]) -> int:
    """Unmount each MOUNTPOINT."""
    from kafkafs.mount.session.mountpoint import MountError, unmount

    code = 0
    for mountpoint in mountpoints:
        try:
            unmount(mountpoint)
        except MountError as error:
            code = failures.report(failures.Failure(str(error)))
    return code
