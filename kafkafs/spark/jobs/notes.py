"""Which units of a job are finished: a file for each, in the place where the job's output is made.

A note is written when all that the unit made is durable, in one step; a job that is started again
skips what is noted, and takes the note's content for the unit's result.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any, Final

from kafkafs.storage.disk import Directory
from kafkafs.storage.durable import WritableDirectory
from kafkafs.storage.errors import CorruptError, LogDirError, SegmentGone

from .places import replace_file

_MOST_BYTES: Final = 1 << 30
JOB_NOTE: Final = "job.json"


class OtherJob(Exception):
    """The place has the notes of another job, or of the same with other arguments."""


class Notes:
    """The notes in directory `path`, which the workers see, too. Can be pickled."""

    def __init__(self, path: str) -> None:
        self.path = path

    @classmethod
    def of_job(cls, path: str, job: dict[str, Any]) -> tuple[Notes, dict[str, Any]]:
        """The notes of a job, begun or taken up again, and how it was described when it began.

        `job` describes it; what stands under "plan" is the first run's, all else must be the same:
        OtherJob.
        """
        notes = cls(path)
        notes._directory().make_itself()
        known = notes._read(JOB_NOTE)
        if known is None:
            notes._write(JOB_NOTE, job)
            return notes, job
        same = {key: value for key, value in known.items() if key != "plan"}
        wanted = {key: value for key, value in json.loads(json.dumps(job)).items() if key != "plan"}
        if same != wanted:
            names = [key for key in wanted if same.get(key) != wanted[key]] or ["job"]
            why = f"an unfinished job with another {names[0]} has left its notes there"
            raise OtherJob(f"{path}: {why}; remove it to begin anew")
        return notes, known

    def job(self) -> Any:
        """How the job was described when it began, None where none has."""
        return self._read(JOB_NOTE)

    def describe(self, job: dict[str, Any]) -> None:
        """The job is described otherwise from now on."""
        self._write(JOB_NOTE, job)

    def get(self, unit: str) -> Any:
        """What was noted of a unit, None when it is not finished."""
        return self._read(unit_note(unit))

    def put(self, unit: str, result: Any) -> None:
        """The unit is finished, with a result as JSON has it."""
        self._write(unit_note(unit), result)

    def remove(self) -> None:
        """The job is done, or its output complete."""
        above, name = os.path.split(self.path)
        WritableDirectory(above).remove_directory(name)

    def _directory(self) -> WritableDirectory:
        return WritableDirectory(self.path)

    def _read(self, name: str) -> Any:
        return read_note(self._directory(), name)

    def _write(self, name: str, value: Any) -> None:
        replace_file(self._directory(), name, json.dumps(value).encode())


def unit_note(unit: str) -> str:
    """The name of the file that notes a unit, for any text."""
    return f"unit-{hashlib.sha256(unit.encode()).hexdigest()[:32]}.json"


def read_note(directory: Directory, name: str) -> Any:
    """What a note says, None where it is not there. CorruptError for what is not JSON."""
    try:
        return json.loads(directory.read_small(name, _MOST_BYTES))
    except (SegmentGone, LogDirError):
        return None
    except (ValueError, RecursionError) as error:
        raise CorruptError(f"not a note: {error}", directory.path_of(name)) from None
