"""Coverage-guided fuzzing for long runs: `python -m tests.fuzz.guided TARGET SECONDS`.

TARGET is a function of targets.py that takes bytes: batches, sent, payload or small_file. The
kernels run uncompiled, so that atheris sees which branches an input takes. Add what it finds to
test_bytes.py as an example, where the compiled kernels are tested too. Inputs that reached new
branches are kept in build/fuzz/TARGET, from where the next run continues.

Needs the package atheris, which nothing else uses.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.logs import walk

KEPT = Path(__file__).parent.parent.parent / "build" / "fuzz"
TARGETS = ("batches", "sent", "payload", "small_file")


def seeds(target: str) -> Iterator[bytes]:
    """Yields valid inputs to start from, taken from brokers' files."""
    from tests.fuzz.test_bytes import CHECKPOINT, PROPERTIES, SNAPSHOT
    from tests.fuzz.test_corpora import PARTITIONS, files

    if target == "small_file":
        yield from (CHECKPOINT, PROPERTIES, SNAPSHOT)
        return
    for corpus, partition in PARTITIONS:
        for name, data in files(corpus, partition).items():
            for header in list(walk(data))[:3] if name.endswith(".log") else ():
                if target in ("batches", "sent"):
                    yield header.data[:4000]
                elif header.magic == 2:
                    yield bytes([(header.attributes & 7) - 1 & 3]) + header.data[61:4000]


def main(target: str, seconds: int) -> None:
    """Runs until the time is up or a failure is found."""
    os.environ["KAFKAFS_KERNELS"] = "python"
    atheris = importlib.import_module("atheris")
    folder = KEPT / target
    folder.mkdir(parents=True, exist_ok=True)
    if not any(folder.iterdir()):
        for number, data in enumerate(seeds(target)):
            (folder / f"seed-{number}").write_bytes(data)
    targets = importlib.import_module("tests.fuzz.targets")
    atheris.instrument_all()
    options = [f"-max_total_time={seconds}", "-max_len=8192", "-timeout=20", "-rss_limit_mb=2048"]
    atheris.Setup([sys.argv[0], *options, str(folder)], getattr(targets, target))
    atheris.Fuzz()


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in TARGETS or not sys.argv[2].isdigit():
        sys.exit(f"usage: python -m tests.fuzz.guided {'|'.join(TARGETS)} SECONDS")
    main(sys.argv[1], int(sys.argv[2]))
