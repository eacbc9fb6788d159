"""Compiles the kernels; everything else about the package is in pyproject.toml.

Each module of kernels/ is Python in Cython's pure mode. It is installed twice, as source and as an
extension module beside it, so that `KAFKAFS_KERNELS=python` can run the same loops uncompiled.
CFLAGS, if given, say how it is compiled; else all that is quick at running.
`KAFKAFS_SANITIZE=1` builds the extensions with the address and undefined-behaviour sanitizers; run
them with libasan preloaded.
"""

import os
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup

KERNELS = Path("kafkafs/storage/format/kernels")


def extension(source: Path) -> Extension:
    compile_args = [] if "CFLAGS" in os.environ else ["-O3", "-g0"]
    link_args: list[str] = []
    if os.environ.get("KAFKAFS_SANITIZE") == "1":
        sanitizers = "-fsanitize=address,undefined"
        compile_args = ["-O1", "-g1", "-fno-omit-frame-pointer", "-fno-sanitize-recover=undefined"]
        # What these find the address sanitizer finds, too; they take half the time to compile.
        compile_args += [sanitizers, "-fno-sanitize=null,object-size,pointer-overflow"]
        link_args.append(sanitizers)
    return Extension(
        ".".join(source.with_suffix("").parts),
        [str(source)],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )


# The kernels are compiled side by side, as far as there are processors.
PROCESSORS = len(os.sched_getaffinity(0))
sources = sorted(path for path in KERNELS.glob("*.py") if path.name != "__init__.py")
setup(
    ext_modules=cythonize(
        [extension(source) for source in sources],
        build_dir="build/cython",
        language_level=3,
        nthreads=PROCESSORS if PROCESSORS > 1 else 0,
    ),
    options={"build_ext": {"parallel": PROCESSORS}},
)
