"""Makes a Python process look like one on macOS or Windows, as far as Python's library shows it.

Which modules, functions and constants a system lacks is taken from the stubs that mypy brings with
it (typeshed). On "Windows", moreover, directories cannot be opened, names cannot be relative to
one, an open file is inherited and its line ends are converted unless flags say otherwise.

    python -m tests.other_systems darwin|win32|linux LOG_DIR

prints, as JSON, what reading LOG_DIR gives in such a process.
"""

from __future__ import annotations

import ast
import contextlib
import errno
import importlib
import importlib.util
import io
import json
import os
import sys
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

#: Modules whose names differ between systems and that the package, or its libraries, may use.
DIFFERENT: Final = ("os", "signal", "errno", "mmap", "time", "select", "threading", "shutil")
#: Modules that not every system has.
OPTIONAL: Final = ("fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "syslog", "posix")
#: What only mounting needs; nobody can install it without FUSE.
FUSE: Final = ("pyfuse3", "trio", "_pyfuse3")
#: Imported before names are removed: they are built for one system and do not expect another one.
LIBRARIES: Final = (
    *("asyncio", "click", "crc32c", "cramjam", "ctypes", "isal.igzip_lib", "lazy_loader"),
    *("lz4.block", "lz4.frame", "multiprocessing", "numpy", "pyarrow", "pyarrow.compute"),
    *("pyarrow.ipc", "pyarrow.parquet", "prometheus_client", "subprocess", "tempfile"),
    *("xxhash", "zstandard", "concurrent.futures", "click.shell_completion", "unittest.mock"),
)
# Unused on Linux, where no file is opened in text mode by its flags.
_O_BINARY: Final = 1 << 29
_O_NOINHERIT: Final = 1 << 28


class _Names(ast.NodeVisitor):
    """The names that a stub gives a module on one system: `__all__` if there is one, else all
    definitions."""

    def __init__(self, platform: str) -> None:
        self.defined: set[str] = set()
        self.exported: set[str] = set()
        self._platform = platform

    def visit_If(self, node: ast.If) -> None:
        code = compile(ast.Expression(node.test), "stub", "eval")
        is_true = eval(code, {"sys": self, "TYPE_CHECKING": True})
        for each in node.body if is_true else node.orelse:
            self.visit(each)

    @property
    def platform(self) -> str:
        return self._platform

    @property
    def version_info(self) -> tuple[int, ...]:
        return sys.version_info[:2]

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.defined.add(node.name)

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self.defined.add(node.name)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if isinstance(node.target, ast.Name):
            self.defined.add(node.target.id)

    def visit_Assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            if isinstance(target, ast.Name) and target.id == "__all__":
                self.exported.update(ast.literal_eval(node.value))
            elif isinstance(target, ast.Name):
                self.defined.add(target.id)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if isinstance(node.target, ast.Name) and node.target.id == "__all__":
            self.exported.update(ast.literal_eval(node.value))


def names_of(module: str, platform: str) -> set[str]:
    """Returns the names in a module of Python's library on a system; none if it has no such
    module."""
    found = importlib.util.find_spec("mypy")
    assert found is not None
    assert found.origin is not None
    stubs = Path(found.origin).parent / "typeshed" / "stdlib"
    path = stubs / module / "__init__.pyi"
    stub = path if path.exists() else stubs / f"{module}.pyi"
    names = _Names(platform)
    names.visit(ast.parse(stub.read_text(encoding="utf-8")))
    return names.exported or names.defined


def become(platform: str) -> None:
    """Removes from this process what the system lacks."""
    for name in LIBRARIES:
        importlib.import_module(name)
    modules: dict[str, Any] = sys.modules  # in which None prevents an import
    for name in FUSE:
        modules[name] = None
    for name in OPTIONAL:
        if not names_of(name, platform):
            modules[name] = None
    for name in DIFFERENT:
        module = importlib.import_module(name)
        for missing in names_of(name, "linux") - names_of(name, platform):
            if hasattr(module, missing):
                delattr(module, missing)
    sys.platform = platform
    os.environ["PATH"] = ""
    _forbid_proc()
    if platform == "win32":
        _forbid_directory_descriptors()


def _forbid_proc() -> None:
    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        if event == "open" and str(arguments[0]).startswith(("/proc/", "/sys/", "/dev/fuse")):
            raise FileNotFoundError(errno.ENOENT, "not on this system", str(arguments[0]))

    sys.addaudithook(watch)


def _forbid_directory_descriptors() -> None:
    os.supports_dir_fd.clear()
    os.supports_fd.clear()
    open_file, status, listed = os.open, os.stat, os.scandir

    def windows_open(path: str, flags: int, mode: int = 0o777, *, dir_fd: int | None = None) -> int:
        _refuse(dir_fd)
        assert flags & _O_BINARY, f"{path}: opened as text"
        assert flags & _O_NOINHERIT, f"{path}: inherited by child processes"
        if os.path.isdir(path):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)
        return open_file(path, flags & ~_O_BINARY & ~_O_NOINHERIT, mode)

    def windows_stat(
        path: Any, *, dir_fd: int | None = None, follow_symlinks: bool = True
    ) -> os.stat_result:
        _refuse(dir_fd)
        return status(path, follow_symlinks=follow_symlinks)

    def windows_scandir(path: Any = ".") -> Any:
        assert not isinstance(path, int), "a directory is listed by its path"
        return listed(path)

    replaced = {"open": windows_open, "stat": windows_stat, "scandir": windows_scandir}
    for name, value in {**replaced, "O_BINARY": _O_BINARY, "O_NOINHERIT": _O_NOINHERIT}.items():
        setattr(os, name, value)


def _refuse(dir_fd: int | None) -> None:
    if dir_fd is not None:
        raise NotImplementedError("dir_fd unavailable on this platform")


def results(log_dir: str) -> Iterator[tuple[str, Any]]:
    """Yields what reading a log directory gives, each with a description."""
    import kafkafs

    with kafkafs.open(log_dir) as directories:
        for partition in directories:
            try:
                table = partition.scan().read_all()
            except kafkafs.CorruptError as error:
                yield f"scan {partition!r}", str(error)
            else:
                digest = sha256(repr(table.to_pydict()).encode()).hexdigest()
                yield f"scan {partition!r}", [table.num_rows, digest]
    for line in (
        f"ls {log_dir}",
        f"ls -l {log_dir} orders/0/segments",
        f"cat {log_dir} orders/0/records.jsonl txn/0/values orders/1/offset/3.json",
        f"cat --at 2030-01-01 {log_dir} compacted/0/compacted/summary.json",
        f"cat {log_dir} orders/0/compacted/records.jsonl compacted/0/compacted/values",
        f"stat {log_dir} orders/0/offset/600",
        f"explain {log_dir} orders/0/offset/600",
        f"why {log_dir} orders/0 --at 2030-01-01",
        f"dump --print-data-log {log_dir}/orders-0/00000000000000000000.log",
        f"dump {log_dir}/orders-0/00000000000000000000.index",
        f"verify {log_dir}",
        f"topic list {log_dir}",
        f"expire --dry-run --all --at 2030-01-01 {log_dir}",
        f"compact --dry-run --all {log_dir}",
        "--help",
    ):
        yield line, run(line.split())


def refusals(log_dir: str) -> Iterator[tuple[str, Any]]:
    """Yields how commands end that only Linux can carry out."""
    for line in (
        f"append {log_dir} orders/0 {log_dir}/meta.properties",
        f"topic create {log_dir}-new orders",
        f"recover {log_dir}",
        f"mount {log_dir} {log_dir}/orders-0",
    ):
        yield line, run(line.split())


def run(arguments: list[str]) -> tuple[int, str, str]:
    """Runs the command line; returns its exit code, what it prints (a digest if that is long), and
    its errors."""
    from kafkafs.cli import main

    out, err = io.TextIOWrapper(io.BytesIO(), "utf-8"), io.StringIO()
    sys.argv = ["kafkafs", *arguments]
    code: Any = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main.main()
        except SystemExit as end:
            code = end.code
    out.flush()
    data = out.buffer.getvalue()
    text = data.decode() if len(data) < 2000 else sha256(data).hexdigest()
    return code or 0, text, err.getvalue()


if __name__ == "__main__":
    system, log_dir = sys.argv[1:]
    if system != "linux":
        become(system)
    found = dict(results(log_dir))
    refused = dict(refusals(log_dir)) if system != "linux" else {}
    json.dump((found, refused), sys.stdout)
