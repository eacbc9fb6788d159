"""What kafkafs and its peers take for the same work, side by side: `tests/bench/run.sh`."""
