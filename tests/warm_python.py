"""Python programs that start without importing anything: a process that has imported the mount's
modules forks itself for each of them.

Those imports take half a second of processor time, which is most of what a short mount costs. The
forked process is otherwise what `python -c PROGRAM ARGUMENTS` would be: it has the caller's
environment, its own session-wide state, and it ends as an interpreter does.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

ROOT = Path(__file__).parent.parent
#: Run by the warm process. Product code recognizes a daemon by the words kafkafs and mount in its
#: command line, which forked processes share.
_MAIN = """
import sys, kafkafs.mount
from tests.warm_python import serve
exec(serve(int(sys.argv.pop())), {"__name__": "__main__"})
"""
_IMPORTED = (
    "kafkafs.mount.options",
    "kafkafs.mount.session.session",
    "kafkafs.storage.log_manager",
)
_MAX_REQUEST_BYTES = 1 << 17


class WarmProcess:
    """A forked process, with what `subprocess.Popen` has for one: its parent is the warm process,
    which reports how it ended."""

    def __init__(self, pid: int, replies: socket.socket) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._replies = replies

    def poll(self) -> int | None:
        """Returns the exit status, or None while the process runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """Returns the exit status; it is -N if signal N ended the process. Raises TimeoutExpired
        after `timeout` seconds."""
        if self.returncode is None:
            self._replies.settimeout(timeout)
            try:
                status = self._replies.recv(32)
            except (BlockingIOError, TimeoutError):
                raise subprocess.TimeoutExpired([_MAIN], timeout or 0) from None
            assert status, "the warm process has ended"
            self.returncode = int(status)
            self._replies.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Sends a signal unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """Sends SIGKILL unless the process has ended."""
        self.send_signal(signal.SIGKILL)


def start(program: str, arguments: Sequence[str], output: IO[bytes]) -> WarmProcess:
    """Starts `python -c PROGRAM ARGUMENTS` in the root of the tree, with `output` as its standard
    output and error, and returns it."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    request = json.dumps([program, list(arguments), dict(os.environ)]).encode()
    with there:
        socket.send_fds(_warm_process(), [request], [output.fileno(), there.fileno()])
    return WarmProcess(int(here.recv(32)), here)


@functools.cache
def _warm_process() -> socket.socket:
    """Returns the connection to this process's warm process, which ends when it is closed."""
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with there:
        process = subprocess.Popen(
            [sys.executable, "-c", _MAIN, str(there.fileno())],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            pass_fds=[there.fileno()],
        )
    atexit.register(process.wait)
    atexit.register(here.close)
    return here


def serve(descriptor: int) -> str:
    """Forks for each request that arrives; in a forked process, returns the program to run. Exits
    when the connection is closed."""
    for module in _IMPORTED:
        importlib.import_module(module)
    gc.freeze()
    waiting = selectors.DefaultSelector()
    with socket.socket(fileno=descriptor) as requests:
        waiting.register(requests, selectors.EVENT_READ)
        while True:
            for key, _ in waiting.select():
                if key.fileobj is not requests:
                    waiting.unregister(key.fileobj)
                    _report(*key.data)
                    continue
                request, descriptors, _, _ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 2)
                if not request:
                    sys.exit()
                output, replies = descriptors[0], socket.socket(fileno=descriptors[1])
                pid = os.fork()
                if pid == 0:
                    replies.close()
                    _close(waiting)
                    return _become(request, output)
                os.close(output)
                replies.send(str(pid).encode())
                process = os.pidfd_open(pid)
                waiting.register(process, selectors.EVENT_READ, (pid, process, replies))


def _report(pid: int, process: int, replies: socket.socket) -> None:
    """Reports the status of a process that has ended, if someone still waits for it."""
    _, status = os.waitpid(pid, 0)
    os.close(process)
    with replies, suppress(BrokenPipeError):
        replies.send(str(os.waitstatus_to_exitcode(status)).encode())


def _close(waiting: selectors.BaseSelector) -> None:
    """Closes, in a forked process, what belongs to the other ones."""
    for key in waiting.get_map().values():
        if key.data is not None:
            _, process, replies = key.data
            os.close(process)
            replies.close()
    waiting.close()


def _become(request: bytes, output: int) -> str:
    """Makes this process the requested one; returns its program."""
    program, arguments, environment = json.loads(request)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    sys.argv[1:] = arguments
    return str(program)
