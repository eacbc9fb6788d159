"""Every error has an errno."""

from __future__ import annotations

import errno

import pytest

from kafkafs.mount.vfs import errnos
from kafkafs.mount.vfs.errnos import ERRNOS, IsADirectory, NotADirectory, TreeError, errno_of
from kafkafs.storage import errors
from kafkafs.storage.errors import CorruptError, OffsetNotFound, StorageError


def subclasses(base: type[Exception]) -> set[type[Exception]]:
    return {base}.union(*map(subclasses, base.__subclasses__()))


@pytest.mark.parametrize("base", [StorageError, TreeError])
def test_no_error_is_forgotten(base: type[Exception]) -> None:
    here = {errors.__name__, errnos.__name__}
    known = subclasses(errors.Refused) | ERRNOS.keys()
    assert {kind for kind in subclasses(base) if kind.__module__ in here} <= known


def test_a_subclass_has_its_base_s() -> None:
    class Worse(CorruptError):
        pass

    assert errno_of(Worse("x")) == errno.EIO
    assert errno_of(OffsetNotFound(5, "compacted")) == errno.ENOENT


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (OSError(errno.EACCES, "x"), errno.EACCES),
        (OSError(errno.EMFILE, "x"), errno.EMFILE),
        (OSError(errno.ENOTDIR, "x"), errno.EIO),
        (OSError("no number"), errno.EIO),
        (ZeroDivisionError(), errno.EIO),
        (NotADirectory(), errno.ENOTDIR),
        (IsADirectory(), errno.EISDIR),
    ],
)
def test_errno_of(error: Exception, number: int) -> None:
    assert errno_of(error) == number
