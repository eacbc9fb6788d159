"""Trees of writable mounts, and their nodes as the kinds that a test expects."""

from __future__ import annotations

from typing import Any, TypeVar

from kafkafs.mount.node import DirectoryNode, File
from kafkafs.mount.options import MountOptions
from kafkafs.mount.tree import Tree
from kafkafs.mount.writes.changes import Changes
from kafkafs.storage.log_manager import LogManager

N = TypeVar("N")


def node_of(tree: Tree, path: str, kind: type[N]) -> N:
    """Returns the node at `path`, which must be of this kind."""
    node = tree.resolve(path)
    assert isinstance(node, kind)
    return node


def directory_of(tree: Tree, path: str) -> DirectoryNode:
    """Returns the directory at `path`."""
    node = tree.resolve(path)
    assert isinstance(node, DirectoryNode)
    return node


def file_of(tree: Tree, path: str) -> File:
    """Returns the file at `path`."""
    node = tree.resolve(path)
    assert isinstance(node, File)
    return node


def writable_tree(engine: LogManager, **options: Any) -> Tree:
    """Returns the tree of a mount with `--rw` and these options."""
    chosen = MountOptions(writable=True, **options)
    return Tree(engine, chosen, changes=Changes(engine, chosen))
