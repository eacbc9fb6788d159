"""Compiles the kernels, and makes man pages; everything else of the package is in pyproject.toml.

Each module of kernels/ is Python in Cython's pure mode. It is installed twice, as source and as an
extension module beside it, so that the same loops can run uncompiled. `KAFKAFS_KERNELS` selects
what is installed, as it does at run time:

- unset: compiled if the machine has a C compiler and Python's headers, else uncompiled, with a line
  on stderr; an error of the compiler is an error
- `c`: compiled, or the build fails: for releases and tests
- `python`: uncompiled, in a wheel for every platform

CFLAGS, if given, say how it is compiled; else all that is quick at running.
`KAFKAFS_SANITIZE=1` builds the extensions with the address and undefined-behaviour sanitizers; run
them with libasan preloaded.

Cython inlines no function of another pure-Python module, and a call between two extension modules
costs more than most functions of a kernel. So what kernels share is pasted into each before it is
compiled: the source of a module with a leading underscore stands in place of its import.

Cython's own code for memoryviews is compiled once, as an extension module that every kernel
imports: inside each kernel, it would quadruple the time to compile them.
"""

import os
import re
import sys
import sysconfig
import tempfile
from pathlib import Path

from setuptools import Extension, setup  # before distutils, which is then setuptools' own

from distutils.command.install_data import install_data  # isort: skip
from setuptools._distutils.ccompiler import new_compiler
from setuptools._distutils.errors import CompileError, DistutilsPlatformError
from setuptools._distutils.sysconfig import customize_compiler

KERNELS = Path("kafkafs/storage/format/kernels")
PASTED = Path("build/pasted")
#: The extension module that Cython generates for its own code, which all kernels share.
CYUTILITY = KERNELS / "_cyutility"
#: Kernels that call what this system lacks; they are not used on it.
UNAVAILABLE = () if hasattr(os, "pread") else ("header_reads",)
SHARED_IMPORT = re.compile(r"^from \.(_\w+) import (?:\([^)]*\)|[^(\n]*)$", re.MULTILINE)


def with_shared(source: Path) -> str:
    """Returns the source with that of the modules that it shares, each once."""
    pasted = set()

    def shared(found: re.Match[str]) -> str:
        name = found[1]
        if name in pasted:
            return ""
        pasted.add(name)
        return paste(KERNELS / f"{name}.py").partition("\nimport cython\n")[2]

    def paste(path: Path) -> str:
        return SHARED_IMPORT.sub(shared, path.read_text(encoding="utf-8"))

    return paste(source)


def pasted(source: Path) -> Path:
    """Returns a copy of the kernel that imports no module with a leading underscore."""
    text = with_shared(source)
    copy = PASTED / source.name
    if not copy.exists() or copy.read_text(encoding="utf-8") != text:
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text(text, encoding="utf-8")
    return copy


def extension(module: Path, source: Path) -> Extension:
    """Returns the extension module for the path `module`; the suffix of that is ignored."""
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
        ".".join(module.with_suffix("").parts),
        [str(source)],
        extra_compile_args=compile_args,
        extra_link_args=link_args,
    )


def has_compiler() -> bool:
    """Returns whether this machine can compile an extension module: a C compiler runs and finds
    Python's headers and those of C. What is missing, the compiler prints."""
    with tempfile.TemporaryDirectory() as directory:
        probe = Path(directory, "probe.c")
        probe.write_text("#include <Python.h>\n", encoding="ascii")
        compiler = new_compiler()
        try:
            customize_compiler(compiler)
            headers = {sysconfig.get_path("include"), sysconfig.get_path("platinclude")}
            compiler.compile([str(probe)], output_dir=directory, include_dirs=sorted(headers))
        except (CompileError, DistutilsPlatformError):
            return False
    return True


def is_compiled() -> bool:
    """Returns whether to compile the kernels. Exits if that is requested, but impossible."""
    requested = os.environ.get("KAFKAFS_KERNELS", "")
    if requested == "python":
        return False
    if has_compiler():
        return True
    what = "kafkafs: there is no C compiler, or there are no headers of Python (see above)"
    if requested:
        sys.exit(f"{what}, but KAFKAFS_KERNELS={requested} requires compiled kernels")
    print(f"{what}: the kernels are installed uncompiled, which is slow", file=sys.stderr)
    return False


def needs_extensions() -> bool:
    """Returns whether the command is other than those for metadata and the sdist, of which each
    would spend ten seconds on a translation that nobody compiles."""
    return not {"egg_info", "dist_info", "sdist"}.intersection(sys.argv)


def extensions() -> list[Extension]:
    """Returns the kernels as extension modules, translated to C."""
    from Cython.Build import cythonize

    modules = sorted(each for each in KERNELS.glob("[!_]*.py") if each.stem not in UNAVAILABLE)
    kernels = [extension(each, pasted(each)) for each in modules]
    shared = extension(CYUTILITY, PASTED / f"{CYUTILITY.name}.c")
    translated: list[Extension] = cythonize(
        [*kernels, shared],
        build_dir="build/cython",
        shared_utility_qualified_name=shared.name,
        compiler_directives={
            "language_level": 3,
            "boundscheck": False,
            "wraparound": False,
            "initializedcheck": False,
            "cdivision": True,
        },
        nthreads=PROCESSORS if PROCESSORS > 1 else 0,
    )
    return translated


class InstallShare(install_data):
    """Installs man pages and completion scripts below `share/`; they are made from the help."""

    def run(self) -> None:
        sys.path.insert(0, os.getcwd())
        from kafkafs.cli.share import files

        self.data_files = []
        for name, text in files().items():
            made = Path("build/share", name)
            made.parent.mkdir(parents=True, exist_ok=True)
            made.write_text(text, encoding="utf-8")
            self.data_files.append((f"share/{Path(name).parent}", [str(made)]))
        super().run()


# The kernels are compiled in parallel on all processors.
PROCESSORS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
setup(
    ext_modules=extensions() if is_compiled() and needs_extensions() else [],
    cmdclass={"install_data": InstallShare},
    data_files=[("share", [])],  # so that install_data runs, which finds the files itself
    options={"build_ext": {"parallel": PROCESSORS}},
)
