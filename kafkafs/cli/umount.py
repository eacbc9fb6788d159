"""`kafkafs umount`: the end of a mount."""

from __future__ import annotations

import click

from . import failures
from .params import LocalPath
from .verb import Verb


@click.command(
    cls=Verb,
    short_help="End mounts, also those whose daemon died.",
    examples=[
        ("kafkafs umount /mnt/kafka", "the mount point is an ordinary directory again"),
        ("umount /mnt/kafka", "does the same, for root"),
    ],
)
@click.argument("mountpoints", metavar="MOUNTPOINT...", nargs=-1, required=True, type=LocalPath())
def command(mountpoints: tuple[str, ...]) -> int:
    """End the mount at each MOUNTPOINT."""
    from kafkafs.mount.mounting import session

    code = 0
    for mountpoint in mountpoints:
        try:
            session.unmount(mountpoint)
        except session.MountError as error:
            code = failures.tell(failures.Failure(str(error)))
    return code
