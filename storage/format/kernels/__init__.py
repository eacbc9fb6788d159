"""Loads the kernels (the inner loops of the formats), compiled or uncompiled.

Each module here is one source in Cython's pure-Python mode. ``KAFKAFS_KERNELS=python`` runs it
uncompiled, which is slow; any other value requires the compiled form, so that nobody measures or
deploys the slow one by accident.

Modules with a leading underscore are no kernels, but hold functions that kernels share, or parts of
a long one; they run uncompiled only. Before a kernel is compiled, setup.py replaces its imports of
them with their source, since Cython inlines no function of another module, except from .pxd files,
which cannot run uncompiled.
"""

from __future__ import annotations

import functools
import importlib.util
import os
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, SourceFileLoader
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

COMPILED = os.environ.get("KAFKAFS_KERNELS", "c") != "python"


def load(name: str, compiled: bool = COMPILED) -> ModuleType:
    """Returns a new module with the kernel. Raises ImportError if it is not compiled, but should
    be."""
    full_name = f"{__name__}.{name}"
    folder = Path(__file__).parent
    if not compiled:
        return _with_memoryviews(_execute(SourceFileLoader(full_name, f"{folder}/{name}.py")))
    for suffix in EXTENSION_SUFFIXES:
        path = folder / f"{name}{suffix}"
        if path.exists():
            return _execute(ExtensionFileLoader(full_name, str(path)))
    raise ImportError(
        f"{folder}/{name}: not compiled: install kafkafs with pip, or install Cython and "
        "set KAFKAFS_KERNELS=python to run uncompiled (slow)"
    )


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
records = load("records")
legacy = load("legacy")
render = load("render")
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
dump = load("dump")
