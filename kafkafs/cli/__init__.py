"""The command line: `main.py` is the program, and each verb has its own module."""
