"""Runs the program `kafkafs` as `python -m kafkafs`."""

from kafkafs.cli.main import main

if __name__ == "__main__":
    main()
