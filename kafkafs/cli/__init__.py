"""The command line: `main.py` is the program, every verb has a file of its own."""
