"""What a log looks like as files: the tree, and its mount through FUSE.

`SEMANTICS.md` says what users are promised, `CONCURRENCY.md` what runs in which thread. `tree.py`
and `nodes/` need neither FUSE nor trio.
"""
