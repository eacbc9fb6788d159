"""Streams whose bytes are made as they are read: of fixed size, followed, and compacted."""
