"""How this kafkafs is installed: its extras, and what `kafkafs --version` reports."""

from __future__ import annotations

import importlib.util
import platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

import click

from .support.failures import Failure

if TYPE_CHECKING:
    from collections.abc import Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType

#: Maps each extra for users to what it installs.
EXTRAS: Final = {
    "hdfs": ("hdfs-native",),
    "mount": ("pyfuse3", "trio"),
    "polars": ("polars",),
    "remote": (
        "adlfs",
        "aiohttp",
        "fsspec",
        "gcsfs",
        "indexed-gzip",
        "indexed-zstd",
        "paramiko",
        "ratarmountcore",
        "s3fs",
    ),
    "report": ("jinja2", "plotly"),
    "restore": ("confluent_kafka",),
    "schemas": ("googleapis-common-protos", "grpcio-tools", "jsonschema-rs", "protobuf"),
    "spark": ("pyspark", "py4j"),
    "sql": ("duckdb", "prompt_toolkit"),
    "tier": ("pycryptodome",),
}
#: The modules of those distributions that do not have the same name.
_MODULES: Final = {
    "googleapis-common-protos": "google.type",
    "grpcio-tools": "grpc_tools",
    "hdfs-native": "hdfs_native",
    "indexed-gzip": "indexed_gzip",
    "indexed-zstd": "indexed_zstd",
    "jsonschema-rs": "jsonschema_rs",
    "protobuf": "google.protobuf",
    "pycryptodome": "Crypto",
}


def missing(extra: str) -> list[str]:
    """Returns what is not installed of the extra, without importing it."""
    return [each for each in EXTRAS[extra] if not _is_there(each)]


def module_of(distribution: str) -> str:
    """Returns the name of the module that a distribution of EXTRAS brings."""
    return _MODULES.get(distribution, distribution)


def _is_there(distribution: str) -> bool:
    try:
        return importlib.util.find_spec(module_of(distribution)) is not None
    except ModuleNotFoundError:  # the package that the module is in
        return False


def install_command(extra: str) -> str:
    """Returns the command that installs the extra."""
    return f"pip install 'kafkafs[{extra}]'"


@contextmanager
def needed_by(verb: str, extra: str) -> Iterator[None]:
    """Imports modules of the extra in the block. Raises Failure if one is not installed, or cannot
    be loaded because a library of the system is missing."""
    absent = missing(extra)
    if absent:
        what = f"{' and '.join(absent)}, which {'is' if len(absent) == 1 else 'are'} not installed"
        raise Failure(f"{verb} needs {what}: {install_command(extra)}")
    try:
        yield
    except ImportError as error:
        what = " and ".join(EXTRAS[extra])
        raise Failure(f"{verb} needs {what}, which cannot be loaded: {error}") from error


class _Missing:
    """Finds that a package is not installed."""

    def __init__(self, name: str) -> None:
        self._name = name

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname == self._name:
            raise ModuleNotFoundError(f"{fullname} is not needed here", name=fullname)
        return None


def import_arrow_without_pandas() -> None:
    """Imports pyarrow. With the first value that it converts, it would import pandas, whose values
    it converts, too, and remember what it found: here that there is none. No verb has such values,
    and pandas takes longer to import than most verbs run."""
    finder = _Missing("pandas")
    sys.meta_path.insert(0, finder)
    try:
        import pyarrow as pa

        pa.scalar(0)
    finally:
        sys.meta_path.remove(finder)


def version_report(version: str) -> Iterator[str]:
    """Yields the lines: the version, the form of the kernels, who computes CRC-32C, Python, and for
    each extra what is installed of it."""
    from kafkafs.storage import crc32c_implementation, kernel_form

    yield f"kafkafs {version}"
    yield f"kernels: {kernel_form()}"
    yield f"CRC-32C: {crc32c_implementation()}"
    yield f"Python: {platform.python_version()}"
    for extra in EXTRAS:
        yield f"extra {extra}: {_installed(extra)}"


def _installed(extra: str) -> str:
    from importlib.metadata import version  # it takes longer to import than click

    absent = missing(extra)
    if absent:
        return f"{' and '.join(absent)} not installed ({install_command(extra)})"
    return ", ".join(f"{name} {version(name)}" for name in EXTRAS[extra])


def show_version(ctx: click.Context, _parameter: click.Parameter, value: bool) -> None:
    """Prints the report and ends the program, if the option is given."""
    if value and not ctx.resilient_parsing:
        from kafkafs import __version__

        click.echo("\n".join(version_report(__version__)))
        ctx.exit()
