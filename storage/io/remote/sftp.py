"""Reads files over SFTP, with fsspec's SFTPFileSystem and paramiko."""

from __future__ import annotations

import errno
import os
from typing import Any, Final

from .source import SnapshotNode

#: Where ssh keeps the keys of hosts.
_KNOWN_HOSTS: Final = ("~/.ssh/known_hosts", "/etc/ssh/ssh_known_hosts")


class UnknownHost(Exception):
    """A host has a key that ssh does not know."""


def host_key_policy() -> Any:
    """Returns what paramiko is to do with the key of a host: to accept it if ssh knows it. Raises
    ImportError if there is no paramiko."""
    import paramiko

    methods = {"missing_host_key": _check_host_key}
    return type("KnownHosts", (paramiko.MissingHostKeyPolicy,), methods)()


def _check_host_key(_policy: object, _client: object, hostname: str, key: Any) -> None:
    """Raises UnknownHost if no file has the key of a host."""
    import paramiko

    for path in map(os.path.expanduser, _KNOWN_HOSTS):
        try:
            if paramiko.HostKeys(path).check(hostname, key):
                return
        except OSError:  # there is none
            continue
    why = f"{hostname} has a key that is not in ~/.ssh/known_hosts; connect with ssh once"
    raise UnknownHost(why)


def read(filesystem: Any, path: str, node: SnapshotNode, start: int, end: int) -> bytes:
    """Returns bytes of a file. Raises FileNotFoundError if it changed since it was listed, and what
    paramiko raises. One thread at a time may use a connection."""
    with filesystem.ftp.open(path, "rb") as file:
        status = file.stat()
        if (status.st_size, int(status.st_mtime) * 1_000_000_000) != (
            node.size,
            node.status.st_mtime_ns,
        ):
            raise FileNotFoundError(errno.ENOENT, "changed", path)
        # All requests are sent before the first answer is awaited: each is of 32 KiB.
        return b"".join(file.readv([(start, end - start)]))
