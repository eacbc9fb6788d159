"""`python -m kafkafs` is the program `kafkafs`."""

from kafkafs.cli.main import main

if __name__ == "__main__":
    main()
