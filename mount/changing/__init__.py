"""The writing side: what a writable mount does to logs, and what it remembers meanwhile."""
