"""Decodes Avro datums: one to JSON values, many to Arrow columns.

`types.py` parses schemas, `decoder.py` makes JSON values. `columns.py` makes Arrow columns, which
`resolution.py` chooses by the types of the writer and the reader.
"""
