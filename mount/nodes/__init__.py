"""The kinds of node in the tree, one per file. `node.py` defines their common interface."""
