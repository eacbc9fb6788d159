"""Jobs over whole log directories that Spark distributes over threads or a cluster.

    from kafkafs.spark import jobs

    report = jobs.verify(spark, "/data")
    report.exit_code, report.rows, report.wrong

Each job plans on the driver, which mostly lists directories, runs its units of work in Spark tasks
(`tasks.py`) and returns a `Report`. A restarted job resumes where it stopped (`notes.py`).
"""

from .compaction.job import compact
from .export import export
from .import_ import import_
from .merge import merge
from .reindex import reindex
from .report import Report
from .salvage import salvage
from .stats import stats
from .verify import verify

__all__ = [
    "Report",
    "compact",
    "export",
    "import_",
    "merge",
    "reindex",
    "salvage",
    "stats",
    "verify",
]
