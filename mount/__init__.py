"""What a log looks like as files: the tree, and its mount through FUSE.

`SEMANTICS.md` says what users are promised, `CONCURRENCY.md` what runs in which thread. From the
ground up:

    catalog.py, partition.py  the logs as the mount knows them, with their inode numbers
    reading/                  bytes of streams, made as they are read
    changing/, control/       what a writable mount does, through files and by verbs
    insight/                  what is said of logs and of the mount itself
    tree.py, nodes/           all of that as directories and files
    serving/                  the kernel's requests, answered from the tree by an event loop
    mounting/                 the mount itself: where, in which process, from start to end

Only `serving` and `mounting` need FUSE and trio.
"""
