"""Answers the kernel's FUSE requests from the tree. Only this package needs trio."""
