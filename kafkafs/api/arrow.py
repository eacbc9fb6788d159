"""Hands records over as Arrow record batches, for `Partition.scan` and `Compacted.scan`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import pyarrow as pa

    from kafkafs.storage import Columns, Damage

READ_COMMITTED: Final = "read_committed"  # the default of every `isolation`


def arrow_reader(
    parts: Generator[Columns], topic: str, partition: int, columns: Sequence[str] | None
) -> pa.RecordBatchReader:
    """Returns records as Arrow record batches with the selected `columns`, all by default."""
    import pyarrow as pa

    from kafkafs.storage import RECORD_SCHEMA, schema_of, to_record_batch

    names = list(RECORD_SCHEMA.names if columns is None else columns)
    if not names:
        raise ValueError("columns must not be empty")
    if unknown := [name for name in names if name not in RECORD_SCHEMA.names]:
        raise ValueError(f"no column {unknown[0]!r}; there are {', '.join(RECORD_SCHEMA.names)}")

    schema = pa.schema([RECORD_SCHEMA.field(name) for name in names])
    is_in_order = schema == schema_of(names)

    def batches() -> Iterator[pa.RecordBatch]:
        with closing(parts):  # or an error's traceback would keep them open
            for part in parts:
                batch = to_record_batch(part, topic, partition, names)
                yield batch if is_in_order else batch.select(names)

    return pa.RecordBatchReader.from_batches(schema, batches())


def undamaged(
    parts: Generator[Columns | Damage], on_damage: Callable[[Damage], None] | None
) -> Generator[Columns]:
    """Yields the records among `parts`. Passes damage to `on_damage`, or raises it if that is
    None."""
    from kafkafs.storage import Damage, fresh

    with closing(parts):
        for part in parts:
            if not isinstance(part, Damage):
                yield part
            elif on_damage is None:
                raise fresh(part.error)
            else:
                on_damage(part)
