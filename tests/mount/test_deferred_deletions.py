"""Deletions that are made durable together."""

from __future__ import annotations

import errno
import threading
from collections.abc import Set as AbstractSet

import pytest

from kafkafs.mount.writes.deferred_deletions import AGAIN_SECONDS, SOON_SECONDS, DeferredDeletions
from kafkafs.storage.format.files.names import TopicPartition
from tests.waiting import wait_until

_KEYS = [("t", number) for number in range(5)]


class Disk:
    """A disk that notes what is put on it. Raises `error` if set; what is `busy` has to be put
    again."""

    def __init__(self) -> None:
        self.puts: list[set[TopicPartition]] = []
        self.error: OSError | None = None
        self.busy: set[TopicPartition] = set()

    def put(self, keys: AbstractSet[TopicPartition]) -> set[TopicPartition]:
        if self.error is not None:
            raise self.error
        self.puts.append(set(keys))
        return self.busy & keys


def test_many_are_put_together() -> None:
    disk = Disk()
    deferred = DeferredDeletions(disk.put)
    for _ in range(1000):
        for key in _KEYS:
            deferred.schedule(key)
    wait_until(lambda: disk.puts)
    deferred.close()
    assert disk.puts == [set(_KEYS)]
    assert not [each for each in threading.enumerate() if each.name == "kafkafs-deletions"]


class Closing:
    """Stands for `_closing`: notes how long the thread would wait for it."""

    def __init__(self, rounds: int) -> None:
        self.waits: list[float] = []
        self._rounds = rounds

    def wait(self, seconds: float) -> bool:
        self.waits.append(seconds)
        return len(self.waits) > self._rounds

    def set(self) -> None:
        pass


def test_they_are_put_within_a_second_and_again_every_second(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    disk = Disk()
    deferred = DeferredDeletions(disk.put)
    closing = Closing(3)
    monkeypatch.setattr(deferred, "_closing", closing)
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    deferred.schedule(_KEYS[0])
    wait_until(lambda: len(closing.waits) == 4)
    assert closing.waits == [SOON_SECONDS, *[AGAIN_SECONDS] * 3]
    assert SOON_SECONDS < 1 == AGAIN_SECONDS


def test_now_is_for_those_that_are_asked_for() -> None:
    disk = Disk()
    deferred = DeferredDeletions(disk.put)
    deferred.schedule(_KEYS[0])
    deferred.schedule(_KEYS[1])
    deferred.write_now({_KEYS[1], _KEYS[2]})
    assert disk.puts == [{_KEYS[1]}]
    deferred.write_now({_KEYS[1]})
    assert disk.puts == [{_KEYS[1]}]
    deferred.close()
    assert disk.puts == [{_KEYS[1]}, {_KEYS[0]}]


def test_what_fails_is_told_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    disk = Disk()
    deferred = DeferredDeletions(disk.put)
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    deferred.schedule(_KEYS[0])
    wait_until(lambda: deferred.problem)
    for _ in range(3):
        with pytest.raises(OSError, match="No space left"):
            deferred.write_now({_KEYS[0]})
    assert len(caplog.records) == 1
    disk.error = None
    wait_until(lambda: disk.puts)
    assert disk.puts == [{_KEYS[0]}]
    assert deferred.problem == ""
    deferred.close()
    assert disk.puts == [{_KEYS[0]}]


def test_what_is_in_use_is_put_again() -> None:
    disk = Disk()
    deferred = DeferredDeletions(disk.put)
    disk.busy = {_KEYS[1]}
    deferred.schedule(_KEYS[0])
    deferred.schedule(_KEYS[1])
    wait_until(lambda: len(disk.puts) > 1)
    disk.busy = set()
    deferred.close()
    assert disk.puts[0] == set(_KEYS[:2])
    assert {_KEYS[1]} in disk.puts


def test_closing_with_a_full_disk_ends() -> None:
    disk = Disk()
    deferred = DeferredDeletions(disk.put)
    disk.error = OSError(errno.ENOSPC, "No space left on device")
    deferred.schedule(_KEYS[0])
    with pytest.raises(OSError, match="No space left"):
        deferred.close()
