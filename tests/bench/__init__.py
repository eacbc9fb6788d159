"""Benchmarks of kafkafs against its peers doing the same work: `tests/bench/run.sh`."""
