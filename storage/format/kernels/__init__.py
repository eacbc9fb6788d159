"""Loads the kernels (the inner loops of the formats), compiled or uncompiled.

Each module here is one source in Cython's pure-Python mode. ``KAFKAFS_KERNELS=python`` runs it
uncompiled, which is slow; any other value requires the compiled form, so that nobody measures or
deploys the slow one by accident.

Code that two kernels need is duplicated in both: C functions can be shared only through .pxd files,
which cannot run uncompiled, and calls from one module into another are not inlined.
"""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

COMPILED = os.environ.get("KAFKAFS_KERNELS", "c") != "python"


def _load(name: str) -> ModuleType:
    full_name = f"{__name__}.{name}"
    folder = Path(__file__).parent
    if COMPILED:
        for suffix in importlib.machinery.EXTENSION_SUFFIXES:
            path = folder / f"{name}{suffix}"
            if path.exists():
                loader = importlib.machinery.ExtensionFileLoader(full_name, str(path))
                return _execute(full_name, loader)
        raise ImportError(
            f"{folder}/{name}: not compiled: install kafkafs with pip, or install Cython and "
            "set KAFKAFS_KERNELS=python to run uncompiled (slow)"
        )
    source = importlib.machinery.SourceFileLoader(full_name, str(folder / f"{name}.py"))
    return _with_memoryviews(_execute(full_name, source))


def _execute(
    full_name: str,
    loader: importlib.machinery.SourceFileLoader | importlib.machinery.ExtensionFileLoader,
) -> ModuleType:
    spec = importlib.util.spec_from_loader(full_name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[full_name] = module
    loader.exec_module(module)
    return module


def _with_memoryviews(module: ModuleType) -> ModuleType:
    """Makes an uncompiled kernel see the arguments that the compiled one sees: memoryviews of
    plain integers, not numpy's (which overflow) and not bytes (which have no shape)."""
    for name, function in list(vars(module).items()):
        if isinstance(function, FunctionType) and not name.startswith("_"):
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


headers = _load("headers")
records = _load("records")
legacy = _load("legacy")
render = _load("render")
gather = _load("gather")
encode = _load("encode")
validate = _load("validate")
index = _load("index")
search = _load("search")
rewrite = _load("rewrite")
offset_map = _load("offset_map")
keys = _load("keys")
fates = _load("fates")
checksums = _load("checksums")
json_input = _load("json_input")
