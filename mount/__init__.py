"""Shows topics and partitions as files: the tree of nodes, and its mount through FUSE.

`SEMANTICS.md` specifies what users can rely on, `CONCURRENCY.md` which thread runs what. From the
bottom up:

    vfs/                  the kernel's terms: inode numbers, timeouts, handles, errno numbers
    partition.py          a log as the mount knows it, with its inode numbers
    streams/              streams whose bytes are made as they are read
    node.py               the interface of directories, files and links
    writes/, control/     changes on a writable mount, through files and by control verbs
    monitoring/           the mount's metrics and its recent log messages
    catalog.py            all of these for one mount
    documents/            status, metrics and explanations as the content of files
    nodes/, tree.py       all of that as directories and files
    fuse/                 an event loop that answers the kernel's requests from the tree
    session/              the mount itself: mount point, process, start and end

Only `fuse` and `session` need FUSE and trio.
"""
