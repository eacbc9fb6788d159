"""Compiles the kernels; everything else about the package is in pyproject.toml.

Each module of kernels/ is Python in Cython's pure mode. It is installed twice, as source and as an
extension module beside it, so that `KAFKAFS_KERNELS=python` can run the same loops uncompiled.
CFLAGS, if given, say how it is compiled; else all that is quick at running.
`KAFKAFS_SANITIZE=1` builds the extensions with the address and undefined-behaviour sanitizers; run
them with libasan preloaded.

Cython inlines no function of another pure-Python module, and a call between two extension modules
costs more than most functions of a kernel. So what kernels share is pasted into each before it is
compiled: the source of a module with a leading underscore stands in place of its import.
"""

import os
import re
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = Path("kafkafs/storage/format/kernels")
PASTED = Path("build/pasted")
SHARED_IMPORT = re.compile(r"^from \.(_\w+) import (?:\([^)]*\)|[^(\n]*)$", re.MULTILINE)


def with_shared(source: Path) -> str:
    """Returns the source with that of the modules it shares, each of which it may reach once."""

    def shared(found: re.Match[str]) -> str:
        return with_shared(KERNELS / f"{found[1]}.py").partition("\nimport cython\n")[2]

    return SHARED_IMPORT.sub(shared, source.read_text(encoding="utf-8"))


def pasted(source: Path) -> Path:
    """Returns a copy of the kernel that imports no module with a leading underscore."""
    text = with_shared(source)
    copy = PASTED / source.name
    if not copy.exists() or copy.read_text(encoding="utf-8") != text:
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
    return copy


def extension(source: Path) -> Extension:
    compile_args = [] if "CFLAGS" in os.environ else ["-O3", "-g0"]
    # Calling memcpy is faster than what gcc may inline in its place.
    compile_args.append("-fno-builtin-memcpy")
    link_args: list[str] = []
    if os.environ.get("KAFKAFS_SANITIZE") == "1":
        sanitizers = "-fsanitize=address,undefined"
        compile_args = ["-O1", "-g1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined"]
        # What these find the address sanitizer finds, too; they take half the time to compile.
        compile_args += [sanitizers, "-fno-sanitize=null,object-size,pointer-overflow"]
        link_args.append(sanitizers)
    return Extension(
        ".".join(source.with_suffix("").parts),
        [str(pasted(source))],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )


# The kernels are compiled side by side, as far as there are processors.
PROCESSORS = len(os.sched_getaffinity(0))
sources = sorted(KERNELS.glob("[!_]*.py"))
setup(
    ext_modules=cythonize(
        [extension(source) for source in sources],
        build_dir="build/cython",
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
        },
        nthreads=PROCESSORS if PROCESSORS > 1 else 0,
    ),
    options={"build_ext": {"parallel": PROCESSORS}},
)
