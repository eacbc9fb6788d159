"""`kafkafs restore` as far as it needs no broker; tests/broker/test_restore.py has the rest."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from confluent_kafka import KafkaError

from kafkafs.restore.cluster import RestoreError, TargetCluster
from kafkafs.restore.groups import translated
from kafkafs.restore.producing import RecordProducer
from kafkafs.restore.state import (
    OffsetRun,
    RestoredPartition,
    RestoreState,
    RestoreStateFile,
    read_state,
    read_table,
    runs_of,
)
from tests.cli.results import Kafkafs

RUNS = [OffsetRun(10, 0, 3), OffsetRun(20, 3, 2)]


def partition() -> RestoredPartition:
    return RestoredPartition(10, 22, 30, 0, 5)


def test_without_its_extra_it_says_what_to_install(
    kafkafs: Kafkafs, clean: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    result = kafkafs("restore", clean, "--to", "127.0.0.1:1")
    assert (result.exit_code, result.stderr) == (
        1,
        "kafkafs: restore needs confluent_kafka, which is not installed:"
        " pip install 'kafkafs[restore]'\n",
    )


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--rename", "a"], "'a' is not A=B"),
        (["--rename", "a=b", "--rename", "a=c"], "a is renamed twice"),
        (["--state", "DIR/state"], "is in the log directory"),
        (["--from", "soon"], "soon"),
    ],
)
def test_wrong_usage(kafkafs: Kafkafs, clean: Path, words: list[str], error: str) -> None:
    given = [word.replace("DIR", str(clean)) for word in words]
    result = kafkafs("restore", clean, "--to", "127.0.0.1:1", *given)
    assert result.exit_code == 2
    assert error in result.stderr


def test_runs_of_consecutive_offsets() -> None:
    offsets = np.array([10, 11, 12, 20, 21], dtype=np.int64)
    assert runs_of(offsets, 0) == RUNS
    assert runs_of(offsets[:1], 7) == [OffsetRun(10, 7, 1)]
    assert OffsetRun(10, 0, 3).is_continued_by(OffsetRun(13, 3, 1))
    assert not OffsetRun(10, 0, 3).is_continued_by(OffsetRun(20, 3, 1))


@pytest.mark.parametrize(
    ("old", "new"), [(0, 0), (10, 0), (12, 2), (13, 3), (19, 3), (20, 3), (21, 4), (22, 5), (99, 5)]
)
def test_an_offset_is_translated_to_the_first_record_at_or_after_it(old: int, new: int) -> None:
    assert translated(old, RUNS, partition()) == new


def test_an_offset_of_an_empty_partition_is_its_first() -> None:
    assert translated(7, [], RestoredPartition(0, 0, 0, 4, 4)) == 4


def test_the_state_outlives_the_process_and_cuts_the_table_that_is_ahead(tmp_path: Path) -> None:
    path = tmp_path / "new" / "state.json"
    state = RestoreState("cluster", {"a": "b"}, {("a", 0): partition()}, ["group"])
    with closing(RestoreStateFile(str(path))) as file:
        assert file.read() is None
        file.save(state, [(("a", 0), run) for run in RUNS])
        with pytest.raises(RestoreError, match="another restore is using this state file"):
            RestoreStateFile(str(path))
    table = Path(f"{path}.offsets")
    whole = table.read_bytes()
    table.write_bytes(whole + b"a\t0\t30\tb\t5")
    with closing(RestoreStateFile(str(path))) as file:
        assert file.read() == read_state(str(path)) == state
    assert table.read_bytes() == whole
    assert read_table(str(table)) == {("a", 0): RUNS}
    table.write_bytes(whole[:-1])
    with (
        closing(RestoreStateFile(str(path))) as file,
        pytest.raises(RestoreError, match="the table is shorter than its state file says"),
    ):
        file.read()


@pytest.mark.parametrize(
    ("content", "error"),
    [
        ("{", "not a state file"),
        ("[]", "not a state file of this version"),
        (json.dumps({"version": 2}), "not a state file of this version"),
        (json.dumps({"version": 1, "clusterId": "c"}), "is damaged"),
    ],
)
def test_a_damaged_state_file(tmp_path: Path, content: str, error: str) -> None:
    path = tmp_path / "state"
    path.write_text(content)
    with pytest.raises(RestoreError, match=error):
        read_state(str(path))


class LosingProducer:
    """What confluent_kafka does now and then after a fatal error: the exception of `flush` is lost,
    and a report of a record that failed follows."""

    def __init__(self, on_delivery: Callable[[KafkaError, object], None]) -> None:
        self._report = on_delivery

    def __len__(self) -> int:
        return 1

    def flush(self, seconds: float) -> None:
        raise SystemError("flush returned NULL without setting an exception")

    def poll(self, seconds: float) -> None:
        self._report(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE, "too large"), None)


def test_a_fatal_error_that_is_lost_is_that_of_a_record(tmp_path: Path) -> None:
    def client(_kind: object, **configs: Any) -> LosingProducer:
        return LosingProducer(configs["on_delivery_"])

    cluster = cast("TargetCluster", SimpleNamespace(client=client))
    with closing(RestoreStateFile(str(tmp_path / "state"))) as file:
        producer = RecordProducer(
            cluster, file, cast("RestoreState", None), compression="none", max_batch_bytes=1 << 20
        )
        with pytest.raises(
            RestoreError, match="a-0: the cluster has not taken a record: too large"
        ):
            producer.finish(("a", 0), partition())
