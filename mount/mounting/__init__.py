"""Mounting and unmounting: where, in which process, and what is mounted already."""
