"""Both forms of the kernels in one process: the one in use, and the uncompiled source."""

from __future__ import annotations

import functools
from types import ModuleType

from kafkafs.storage.format import kernels

NAMES = tuple(
    name
    for name, value in vars(kernels).items()
    if isinstance(value, ModuleType) and value.__name__ == f"{kernels.__name__}.{name}"
    if not name.startswith("_")
)


def in_use(name: str) -> ModuleType:
    """Returns the kernel that the engine runs: compiled, unless KAFKAFS_KERNELS=python."""
    module: ModuleType = getattr(kernels, name)
    return module


@functools.cache
def uncompiled(name: str) -> ModuleType:
    """Returns the kernel's source, run by Python."""
    return kernels.load(name, compiled=False)
