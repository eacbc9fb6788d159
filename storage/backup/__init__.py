"""The repository that `kafkafs backup` writes: its layout, and points in time read in place."""
