"""Prints the tests of storage that run a second time with uncompiled kernels.

They are the files that import a kernel or a module that imports one: what lies above such a module
sees only what it returns, which these tests compare. `python -m tests.kernel_callers`
"""

from __future__ import annotations

from collections.abc import Iterator

from tests.test_layers import imports, sources

KERNELS = "kafkafs.storage.format.kernels"


def module_name(file: str) -> str:
    """Returns the installed name of a file, given by its path from the top of the repository."""
    path = file if file.startswith(("kafkafs/", "tests/")) else f"kafkafs/{file}"
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def kernel_callers() -> Iterator[str]:
    """Yields the test files, by their path from the top of the repository."""
    files = {file: text for layer in ("storage", "tests") for file, text in sources(layer).items()}
    imported = {file: [found.name for found in imports(files[file], file)] for file in files}
    callers = {KERNELS} | {
        module_name(file)
        for file, names in imported.items()
        if any(_is_within(name, {KERNELS}) for name in names)
    }
    for file, names in imported.items():
        calls = module_name(file) in callers or any(_is_within(name, callers) for name in names)
        if calls and file.startswith("tests/storage/test_"):
            yield file


def _is_within(name: str, modules: set[str]) -> bool:
    """Returns whether a name is one of the modules, inside one, or a function of one."""
    return any(name == module or name.startswith(f"{module}.") for module in modules)


if __name__ == "__main__":
    print("\n".join(kernel_callers()))
