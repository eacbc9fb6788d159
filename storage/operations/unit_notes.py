"""Records the finished units of work of a job, in one file each, next to the job's output.

A note is written atomically when everything the unit made is durable. A restarted job skips the
noted units and uses the notes as their results.
"""

from __future__ import annotations

import hashlib
import json
import posixpath
from typing import Any, Final

from ..errors import CorruptError, LogDirError, OtherJob, SegmentGone
from ..io.directory import Directory
from ..io.durable import WritableDirFd

_MOST_BYTES: Final = 1 << 30
JOB_NOTE: Final = "job.json"
# What two runs of the same job may have otherwise.
_OWN: Final = ("plan", "id")


class Notes:
    """The notes in directory `path`, which all workers must see. Can be pickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def of_job(cls, path: str, job: dict[str, Any]) -> tuple[Notes, dict[str, Any]]:
        """Returns the notes of a job, started or resumed, and its description from when it started.

        `job` is the description. Its "plan" and "id" are those of the first run; if anything else
        differs, OtherJob is raised.
        """
        notes = cls(path)
        notes._directory().make_itself()
        known = notes._read(JOB_NOTE)
        if known is None:
            notes._write(JOB_NOTE, job)
            return notes, job
        if not isinstance(known, dict):
            raise CorruptError("not the description of a job", notes._directory().path_of(JOB_NOTE))
        requested = json.loads(json.dumps(job))
        for key in (*requested, *known):
            if key not in _OWN and known.get(key) != requested.get(key):
                why = f"it has the notes of a job with different {key}"
                raise OtherJob(f"{path}: {why}; remove it to start over")
        return notes, known

    def job(self) -> Any:
        """Returns the description of the job, None if none was started."""
        return self._read(JOB_NOTE)

    def describe(self, job: dict[str, Any]) -> None:
        """Replaces the description of the job."""
        self._write(JOB_NOTE, job)

    def get(self, unit: str) -> Any:
        """Returns the noted result of a unit, None if it is not finished."""
        return self._read(unit_note(unit))

    def put(self, unit: str, result: Any) -> None:
        """Records that a unit is finished, with a result that JSON can represent."""
        self._write(unit_note(unit), result)

    def remove(self) -> None:
        """Removes all notes, after the job is done."""
        above, name = posixpath.split(self.path)
        WritableDirFd(above).remove_directory(name)

    def _directory(self) -> WritableDirFd:
        return WritableDirFd(self.path)

    def _read(self, name: str) -> Any:
        return read_note(self._directory(), name)

    def _write(self, name: str, value: Any) -> None:
        self._directory().write_atomically(name, json.dumps(value).encode(), concurrently=True)


def unit_note(unit: str) -> str:
    """Returns the name of the file for the note of a unit, whose name may be any text."""
    return f"unit-{hashlib.sha256(unit.encode()).hexdigest()[:32]}.json"


def read_note(directory: Directory, name: str) -> Any:
    """Returns the content of a note, None if it does not exist. Raises CorruptError if it is not
    JSON."""
    try:
        return json.loads(directory.read_small(name, _MOST_BYTES))
    except (SegmentGone, LogDirError):
        return None
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"not a note: {error}", directory.path_of(name)) from None
