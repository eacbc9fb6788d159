"""Decodes Protobuf datums: one to JSON values, many to Arrow columns.

`compiler.py` makes file descriptors of a schema, `pool.py` a pool of them; `decoder.py` is the
decoder, `columns.py` makes the columns.
"""

from __future__ import annotations

from .columns import ProtobufColumns
from .decoder import ProtobufDecoder, compile_protobuf

__all__ = ["ProtobufColumns", "ProtobufDecoder", "compile_protobuf"]
