"""Python programs that start without importing anything: a process that has imported the mount's
modules forks itself for each of them.

Those imports take half a second of processor time, which is most of what a short mount costs. The
forked process is otherwise what `python -c PROGRAM ARGUMENTS` would be: it has the caller's
environment and working directory, its own session-wide state, and it ends as an interpreter does.

`start` starts any program, and `run_kafkafs` and scripts of `run_script` the command line.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import marshal
import os
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
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
    "kafkafs.cli.verbs.mount",
    "kafkafs.cli.verbs.umount",
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
    request = marshal.dumps([program, list(arguments), dict(os.environ), str(ROOT)])
    out = output.fileno()
    with there, open(os.devnull, "rb") as nothing:
        passed = [nothing.fileno(), out, out, there.fileno()]
        socket.send_fds(_warm_process(), [request], passed)
    return WarmProcess(int(here.recv(32)), here)


#: Names the inherited descriptor over which `kafkafs` sends its request.
REQUESTS = "KAFKAFS_WARM_REQUESTS"
# Imports only what an interpreter has in it, and so starts in a few milliseconds.
_KAFKAFS = """#!{python} -IS
import _socket, marshal, os, signal, sys

def main():
    here, there = _socket.socketpair(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
    program = "from kafkafs.cli.main import main; main()"
    request = marshal.dumps([program, sys.argv[1:], dict(os.environ), os.getcwd()])
    passed = b"".join(fd.to_bytes(4, sys.byteorder) for fd in (0, 1, 2, there.fileno()))
    requests = _socket.socket(fileno=int(os.environ["{requests}"]))
    requests.sendmsg([request], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, passed)])
    there.close()
    here.recv(32)
    status = int(here.recv(32))
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status)

main()
"""


@functools.cache
def programs() -> Path:
    """Returns a directory for the PATH with the program `kafkafs`, for scripts that are run by
    `run_script`. It forwards no signals: a process that a test signals must be a real one."""
    directory = Path(tempfile.mkdtemp(prefix="kafkafs-warm-"))
    atexit.register(shutil.rmtree, directory)
    program = directory / "kafkafs"
    program.write_text(_KAFKAFS.format(python=sys.executable, requests=REQUESTS))
    program.chmod(0o755)
    return directory


def run_script(
    script: Sequence[str], env: Mapping[str, str] = os.environ
) -> subprocess.CompletedProcess[str]:
    """Runs a shell with these arguments, in the root of the tree."""
    variables = {**env, "PATH": f"{programs()}:{env['PATH']}"}
    done = _run(["bash", *script], variables, b"")
    return subprocess.CompletedProcess(
        done.args, done.returncode, done.stdout.decode(), done.stderr.decode()
    )


def run_kafkafs(*arguments: object, input: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """Runs `kafkafs ARGUMENTS` in the root of the tree, with `input` as its standard input."""
    return _run([str(programs() / "kafkafs"), *map(str, arguments)], os.environ, input)


def _run(
    command: Sequence[str], env: Mapping[str, str], input: bytes
) -> subprocess.CompletedProcess[bytes]:
    requests = _warm_process().fileno()
    return subprocess.run(
        command,
        env={**env, REQUESTS: str(requests)},
        pass_fds=[requests],
        input=input,
        capture_output=True,
        timeout=120,
        check=False,
        cwd=ROOT,
    )


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
                request, descriptors, _, _ = socket.recv_fds(requests, _MAX_REQUEST_BYTES, 4)
                if not request:
                    sys.exit()
                replies = socket.socket(fileno=descriptors.pop())
                pid = os.fork()
                if pid == 0:
                    replies.close()
                    _close(waiting)
                    return _become(request, descriptors)
                for standard in descriptors:
                    os.close(standard)
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


def _become(request: bytes, descriptors: Sequence[int]) -> str:
    """Makes this process the requested one, with these standard input, output and error; returns
    its program."""
    program, arguments, environment, directory = marshal.loads(request)
    for standard, descriptor in enumerate(descriptors):
        os.dup2(descriptor, standard)
        os.close(descriptor)
    os.chdir(directory)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    if environment.get("PYTHONWARNINGS") == "error":
        warnings.simplefilter("error")
    sys.argv[1:] = arguments
    return str(program)
