"""The kinds of node in the tree, a file each. `node.py` says what they have in common."""
