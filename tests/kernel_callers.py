"""Prints the tests of storage that run a second time with uncompiled kernels.

They are the files named after a module that calls a kernel, and those that import a kernel or a
function that calls one; in storage/format also one that calls such a function. What lies above sees
only what these functions return, which the tests compare. They cover every line of the kernels that
all tests of storage cover. `python -m tests.kernel_callers`
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from pathlib import Path

from tests.test_layers import imports, sources

KERNELS = "kafkafs.storage.format.kernels"
FORMAT = "kafkafs.storage.format."


def module_name(file: str) -> str:
    """Returns the installed name of a file, given by its path from the top of the repository."""
    path = file if file.startswith(("kafkafs/", "tests/")) else f"kafkafs/{file}"
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def kernel_callers() -> Iterator[str]:
    """Yields the test files, by their path from the top of the repository."""
    calling = _calling()
    modules = {name.rpartition(".")[0].rpartition(".")[2] for name in calling}
    # Classes are imported to make records, too; those with tests of their own have a test file.
    functions = {name for name in calling if not name.rpartition(".")[2].lstrip("_")[0].isupper()}
    functions |= {name for name in calling if name.rpartition(".")[2].isupper()}  # constants
    for file, text in sources("tests").items():
        if file.startswith("tests/storage/test_"):
            imported = {found.name for found in imports(text, file)}
            subject = Path(file).stem.removeprefix("test_").removesuffix("_corpora")
            if subject in modules or any(
                name in functions or _is_kernel(name) for name in imported
            ):
                yield file


def _calling() -> set[str]:
    """Returns the functions, classes and constants of storage that call a kernel, by their full
    names; of storage/format also those that use one of them."""
    trees = {
        module_name(file): (file, text, ast.parse(text))
        for file, text in sources("storage").items()
        if not module_name(file).startswith(KERNELS)
    }
    found: set[str] = set()
    size = -1
    while size != len(found):
        size = len(found)
        for module, (file, text, tree) in trees.items():
            called = found if module.startswith(FORMAT) else ()
            found |= {f"{module}.{name}" for name in _users(file, text, tree, called)}
    return found


def _users(file: str, text: str, tree: ast.Module, called: Collection[str]) -> Iterator[str]:
    """Yields the names that a module defines by using a kernel or a name of `called`, directly or
    through other names of the module."""
    used = {
        each.bound for each in imports(text, file) if each.name in called or _is_kernel(each.name)
    }
    defined = dict(_definitions(tree))
    while new := {name for name, names in defined.items() if name not in used and names & used}:
        used |= new
        yield from new


def _definitions(tree: ast.Module) -> Iterator[tuple[str, set[str]]]:
    """Yields each name that a module defines at its top level, with the names in its definition."""
    for node in tree.body:
        names = {each.id for each in ast.walk(node) if isinstance(each, ast.Name)}
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name, names
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for target in targets:
                if isinstance(target, ast.Name):
                    yield target.id, names - {target.id}


def _is_kernel(name: str) -> bool:
    """Returns whether a name is a kernel, or in one; COMPILED is not."""
    is_inside = name == KERNELS or name.startswith(f"{KERNELS}.")
    return is_inside and name != f"{KERNELS}.COMPILED"


if __name__ == "__main__":
    print("\n".join(kernel_callers()))
