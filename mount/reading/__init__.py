"""Bytes that are made as they are read: streams, those without an end, and compacted ones."""
