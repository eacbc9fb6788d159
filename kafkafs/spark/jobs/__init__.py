"""Jobs over whole log directories that Spark spreads over threads or a cluster.

    from kafkafs.spark import jobs

    report = jobs.verify(spark, "/data")
    report.exit_code, report.rows, report.wrong

Each job plans on the driver, which lists directories and no more, has its units of work done by
tasks of Spark (`tasks.py`), and gives a `Report`. A job that is started again goes on where it was
(`notes.py`).
"""

from .compact import compact
from .report import Report
from .verify import verify

__all__ = ["Report", "compact", "verify"]
