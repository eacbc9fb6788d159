"""A lock on a directory of an object store: an object that names its holder.

It excludes others as well as a store allows. It is created with the condition that there is none,
which all stores of `writing.WRITABLE` have; a server of S3's protocol that ignores the condition is
recognised, and then the one of two who wrote last has the lock. The holder writes it again every
minute. If a process of this machine has it and is dead, or if it has not been written for ten
minutes by the store's clock, it is taken over. So a holder that is silent for longer loses it:
before a change that another one could contradict, it must `check` that it is still the holder.
"""

from __future__ import annotations

import json
import os
import socket
import threading
import time
from contextlib import suppress
from typing import Any, Final

from ...errors import LogDirError, LogDirLocked
from ...wording import printable
from .writing import WritableStore

#: How often the holder writes the lock again, and how long it lasts without that, in seconds.
RENEW_SECONDS: Final = 60.0
LEASE_SECONDS: Final = 600.0
#: Two who take a lock without a condition have both written it after this time, in seconds.
SETTLE_SECONDS: Final = 2.0


class StoreLock:
    """The lock `name` at a URL, held from construction until `release`."""

    def __init__(self, store: WritableStore, name: str) -> None:
        """Raises LogDirLocked if another process has it, and OSError."""
        self._store, self._name = store, name
        self._own = json.dumps({"id": os.urandom(16).hex(), **_this_process()}).encode()
        self._ended = threading.Event()
        self._acquire()
        self._renewing = threading.Thread(target=self._renew, name="kafkafs-lock", daemon=True)
        self._renewing.start()

    def _acquire(self) -> None:
        store, name = self._store, self._name
        if store.create(name, self._own):
            # Does the store know the condition? The same bytes again do no harm.
            if not store.create_again(name, self._own):
                return
        else:
            found, holder = store.version_and_time(name), store.get(name)
            if found is not None and holder is not None:
                version, written_ns = found
                if not (_is_dead(holder) or self._is_stale(written_ns)):
                    raise _locked(store, name, holder)
                store.replace(name, self._own, version)
            elif not store.create(name, self._own):  # it was released at this moment
                raise _locked(store, name, store.get(name))
        time.sleep(SETTLE_SECONDS)
        holder = store.get(name)
        if holder != self._own:
            raise _locked(store, name, holder)

    def _is_stale(self, written_ns: int) -> bool:
        """Returns whether the lock was not written for too long, by the clock of the store."""
        probe = f"{self._name}.{os.urandom(8).hex()}"
        self._store.put(probe, b"")
        try:
            found = self._store.version_and_time(probe)
        finally:
            self._store.remove([probe])
        return bool(found and written_ns and found[1] - written_ns > LEASE_SECONDS * 1e9)

    def check(self) -> None:
        """Raises LogDirError if the lock was lost."""
        if self._store.get(self._name) != self._own:
            why = "another process took over the lock meanwhile; run the command again"
            raise LogDirError(f"{self._store.location}/{self._name}", why)

    def _renew(self) -> None:
        while not self._ended.wait(RENEW_SECONDS):
            with suppress(OSError, LogDirError):  # `check` finds out what it has led to
                found = self._store.version_and_time(self._name)
                if found is not None and self._store.get(self._name) == self._own:
                    self._store.replace(self._name, self._own, found[0])

    def release(self) -> None:
        """Releases the lock. Idempotent. Raises OSError: then it is taken over later."""
        if self._ended.is_set():
            return
        self._ended.set()
        self._renewing.join()
        if self._store.get(self._name) == self._own:
            self._store.remove([self._name])


def _this_process() -> dict[str, Any]:
    """Describes this process, in a way that is not repeated after a restart of the machine."""
    return {
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "processes": _processes(),
        "started": _started(os.getpid()),
    }


def _processes() -> str:
    """Returns an identity of the processes that this one sees: no other machine or container has
    it. "" if that cannot be told."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return f"{file.read().strip()}/{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def _started(pid: int) -> str:
    """Returns when a process started, "" if there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            return file.read().rpartition(b")")[2].split()[19].decode("ascii")
    except (OSError, IndexError):
        return ""


def _is_dead(content: bytes) -> bool:
    """Returns whether the holder of a lock was a process of this machine that has ended."""
    holder = _holder(content)
    pid, started = holder.get("pid"), holder.get("started")
    if not holder or not holder.get("processes") or holder["processes"] != _processes():
        return False
    return type(pid) is int and _started(pid) != started


def _holder(content: bytes | None) -> dict[str, Any]:
    try:
        found = json.loads(content or b"")
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _locked(store: WritableStore, name: str, content: bytes | None) -> LogDirLocked:
    holder = _holder(content)
    pid, host = holder.get("pid"), printable(str(holder.get("host", "of an unknown name")))
    who = f"process {pid} on the host {host} holds the lock {name}"
    return LogDirLocked(store.location, who, pid if type(pid) is int else -1)
