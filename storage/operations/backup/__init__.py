"""Makes points in time of log directories in a backup's repository."""
