"""Both forms of the kernels in one process: the one in use, and the uncompiled source."""

from __future__ import annotations

import functools
import importlib.machinery
import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from kafkafs.storage.format import kernels

NAMES = (
    "headers",
    "records",
    "legacy",
    "render",
    "gather",
    "encode",
    "validate",
    "index",
    "search",
    "offset_map",
    "keys",
    "rewrite",
    "fates",
    "checksums",
    "json_input",
)


def in_use(name: str) -> ModuleType:
    """Returns the kernel that the engine runs: compiled, unless KAFKAFS_KERNELS=python."""
    module: ModuleType = getattr(kernels, name)
    return module


@functools.cache
def uncompiled(name: str) -> ModuleType:
    """Returns the kernel's source, run by Python."""
    path = Path(kernels.__file__).parent / f"{name}.py"
    loader = importlib.machinery.SourceFileLoader(f"uncompiled_{name}", str(path))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    for function_name, function in list(vars(module).items()):
        if isinstance(function, FunctionType) and not function_name.startswith("_"):
            setattr(module, function_name, _seeing_memoryviews(function))
    return module


def _seeing_memoryviews(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*arguments: Any) -> Any:
        return function(*map(_view, arguments))

    return call


def _view(argument: Any) -> Any:
    if isinstance(argument, list) or not hasattr(argument, "__len__"):
        return argument
    return memoryview(argument)
