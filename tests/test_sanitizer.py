"""The compiled kernels access no memory out of bounds: storage tests, run under sanitizers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.unchanged import ROOT, Proof

KERNELS = "storage/format/kernels"
#: Tests that pass bytes and tables of every kind to the kernels.
CHOSEN = (
    *(
        "arrow",
        "avro",
        "avro_texts",
        "batch",
        "builder",
        "codecs",
        "columns",
        "control",
        "decoder",
        "dumps",
        "encoder",
    ),
    *("index_builder", "index_file", "json_input", "kernels", "key_entries", "lines", "lookup"),
    *("offset_index", "offset_map", "offset_table", "point_lookup", "record_filter", "rewrite"),
    *("salvage", "text_input", "time_index", "validate", "walk"),
)


TESTS = [f"tests/storage/test_{name}.py" for name in CHOSEN]


def sanitized(tmp_path: Path) -> Path:
    """Returns a copy of this tree whose kernels are built with the address and undefined
    sanitizers."""
    tree = tmp_path / "tree"
    # The output of Cython and of Python's compiler is kept, since sanitizers slow Python down. A
    # release build leaves bare roots, whose devices (/dev/full) have no end.
    names = (".*", "lib.*", "temp.*", "release", "*.so", "*.jsa", "*.egg-info")
    leftovers = shutil.ignore_patterns(*names)
    shutil.copytree(ROOT, tree, symlinks=True, ignore=leftovers)
    subprocess.run(
        [sys.executable, "setup.py", "--quiet", "build_ext", "--inplace"],
        check=True,
        cwd=tree,
        env={**os.environ, "KAFKAFS_SANITIZE": "1"},
    )
    return tree


def library(name: str) -> str:
    """Returns the path of one of the compiler's own shared libraries."""
    found = subprocess.run(
        ["gcc", f"-print-file-name={name}"], check=True, capture_output=True, text=True
    )
    return found.stdout.strip()


@pytest.mark.slow
@pytest.mark.timeout(2000)
def test_no_kernel_reads_or_writes_out_of_bounds(tmp_path: Path) -> None:
    decisive = [ROOT / "setup.py", *(ROOT / each for each in TESTS)]
    decisive += [path for place in (KERNELS, "tests/fuzz") for path in (ROOT / place).glob("*.py")]
    proof = Proof("sanitizer", decisive)
    proof.skip_if_known()
    run_sanitized(sanitized(tmp_path))
    proof.note()


def run_sanitized(tree: Path) -> None:
    """Runs the tests in a tree with sanitized kernels."""
    compiled = list((tree / KERNELS).glob("*.so"))
    assert compiled
    assert all(b"__asan_init" in path.read_bytes() for path in compiled)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-m", "not slow", *TESTS, "tests/fuzz"],
        check=False,
        capture_output=True,
        text=True,
        cwd=tree,
        env={
            **os.environ,
            "LD_PRELOAD": f"{library('libasan.so')}:{library('libubsan.so')}",
            # Python itself never frees what it interns.
            "ASAN_OPTIONS": "detect_leaks=0",
            # As with uncompiled kernels, which are slow, too; others run all examples.
            "KAFKAFS_HYPOTHESIS": os.environ.get("KAFKAFS_HYPOTHESIS", "uncompiled"),
        },
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-20_000:]
