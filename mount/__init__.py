"""Shows topics and partitions as files: the tree of nodes, and its mount through FUSE.

`SEMANTICS.md` specifies what users can rely on, `CONCURRENCY.md` which thread runs what. From the
bottom up:

    catalog.py, partition.py  the logs as the mount knows them, with their inode numbers
    reading/                  streams whose bytes are made as they are read
    changing/, control/       changes on a writable mount, through files and by control verbs
    insight/                  status of logs and of the mount itself
    tree.py, nodes/           all of that as directories and files
    serving/                  an event loop that answers the kernel's requests from the tree
    mounting/                 the mount itself: mount point, process, start and end

Only `serving` and `mounting` need FUSE and trio.
"""
