"""Loads the kernels (the inner loops of the formats), compiled or uncompiled.

Each module here is one source in Cython's pure-Python mode, which setup.py compiles to an extension
module if the machine has a C compiler. ``KAFKAFS_KERNELS`` selects the form, at installation and at
run time:

- unset: compiled if the extension modules exist, else uncompiled, which is slow
  (see `warn_if_uncompiled`)
- ``c``: compiled; an error if that is impossible, so that nobody measures or releases the slow form
- ``python``: uncompiled

Modules with a leading underscore are no kernels, but hold functions that kernels share, or parts of
a long one; they run uncompiled only. Before a kernel is compiled, setup.py replaces its imports of
them with their source, since Cython inlines no function of another module, except from .pxd files,
which cannot run uncompiled. The extension module ``_cyutility`` contains Cython's own code, which
all compiled kernels import.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, SourceFileLoader
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

_FOLDER: Final = Path(__file__).parent
_REQUESTED: Final = os.environ.get("KAFKAFS_KERNELS", "")


def _extension(name: str) -> str | None:
    """Returns the path of the extension module of a kernel that this Python can load, or None."""
    paths = (_FOLDER / f"{name}{suffix}" for suffix in EXTENSION_SUFFIXES)
    return next((str(path) for path in paths if path.exists()), None)


def _is_any_compiled() -> bool:
    """Returns whether an extension module exists. If only some do, the installation is broken, and
    `load` raises ImportError for the others."""
    return any(_extension(path.stem) for path in _FOLDER.glob("[!_]*.py"))


COMPILED: Final[bool] = _REQUESTED != "python" if _REQUESTED else _is_any_compiled()
_NOTICE: Final = (
    "the kernels of kafkafs are not compiled, so reading and writing are slow; to compile them, "
    "install gcc and Python's headers, then kafkafs from its source; KAFKAFS_KERNELS=python "
    "silences this line"
)
#: Whether the system has the calls that the kernel `header_reads` makes. Without them, it exists
#: uncompiled only, and nothing uses it.
HAS_PREAD: Final[bool] = hasattr(os, "pread")
_unsaid = [_NOTICE] if not (COMPILED or _REQUESTED) else []


def kernel_form() -> str:
    """Returns "compiled" or "uncompiled"."""
    return "compiled" if COMPILED else "uncompiled"


def warn_if_uncompiled(warn: Callable[[str], None]) -> None:
    """Calls `warn` with one line if the kernels run uncompiled and nobody requested it; only the
    first call in a process has an effect.

    The command line and the Python API call this when they open log directories. The engine itself
    does not, because it also runs in every worker process of Spark.
    """
    while _unsaid:
        warn(_unsaid.pop())


def load(name: str, compiled: bool = COMPILED) -> ModuleType:
    """Returns a new module with the kernel. Raises ImportError if it is not compiled, but should
    be."""
    full_name = f"{__name__}.{name}"
    if not compiled:
        return _with_memoryviews(_execute(SourceFileLoader(full_name, f"{_FOLDER}/{name}.py")))
    path = _extension(name)
    if path is None:
        raise ImportError(
            f"{_FOLDER}/{name}: not compiled for this Python: install gcc and Python's headers, "
            "then kafkafs again, or set KAFKAFS_KERNELS=python to run uncompiled (slow)"
        )
    return _execute(ExtensionFileLoader(full_name, path))


def _execute(loader: SourceFileLoader | ExtensionFileLoader) -> ModuleType:
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


def _with_memoryviews(module: ModuleType) -> ModuleType:
    """Makes an uncompiled kernel see the arguments that the compiled one sees: memoryviews of
    plain integers, not numpy's (which overflow) and not bytes (which have no shape)."""
    for name, function in list(vars(module).items()):
        is_own = isinstance(function, FunctionType) and function.__module__ == module.__name__
        if is_own and not name.startswith("_"):
            setattr(module, name, _viewing(function))
    return module


def _viewing(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*(_view(argument) for argument in arguments))

    return call


def _view(argument: Any) -> Any:
    if isinstance(argument, list) or not hasattr(argument, "__len__"):
        return argument
    return memoryview(argument)


headers = load("headers")
header_reads = load("header_reads", COMPILED and HAS_PREAD)
records = load("records")
legacy = load("legacy")
render = load("render")
dump = load("dump")
messages = load("messages")
offset_commits = load("offset_commits")
gather = load("gather")
encode = load("encode")
validate = load("validate")
index = load("index")
search = load("search")
rewrite = load("rewrite")
offset_map = load("offset_map")
keys = load("keys")
murmur2 = load("murmur2")
retention = load("retention")
checksums = load("checksums")
json_input = load("json_input")
avro = load("avro")
avro_text = load("avro_text")
redpanda = load("redpanda")
