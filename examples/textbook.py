"""Writes a log directory with the topic `textbook`, whose indexes have the entries of textbooks.

    python -m examples.textbook LOG_DIR

Books on Kafka's storage explain a lookup with a handful of index entries. Here Kafka's own rules
(`tests/logs.py`) produce the same entries from batches of selected sizes and times:

- partition 0, offset 600: segment 522, entry (587, 6410), two batches walked;
- partition 1, offset 268, the 17th after 251: segment 251, entry (14, 459), three batches walked;
- partition 1, time 1526384718288: time entry (1526384718283, 28), offset entry (26, 838), walk.

An entry is added for the first batch after more than `index.interval.bytes`, with the batch's
*last* offset and position. A time entry is added with it, for the greatest timestamp so far and the
last offset of the batch that has it. Entry (…283, 28) was added with the entry of the next batch,
which ends at 31 and is a few milliseconds older, because two tills send to this partition.

The story: partition 0 is a shop that writes whole orders, with the default interval of 4096 bytes.
Partition 1 is a café whose tills write the names of what a table ordered, in small batches, after
the interval was lowered to 128. A segment holds a day (`segment.ms`).
"""

import hashlib
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from kafkafs.storage.format.records.record_columns import SimpleRecord
from tests.building import BatchFields, build_batch
from tests.logs import TopicSettings, write_log_dir, write_partition

TOPIC = "textbook"
# Those of the broker whose log directory the quickstart mounts beside this one, because all
# directories of a `log.dirs` must belong to one broker.
NODE_ID, CLUSTER_ID = 1, "MkU3OEVBNTcwNTJENDM2Qg"
TOPIC_ID = hashlib.md5(TOPIC.encode()).digest()

MINUTE = 60_000
DAY = 24 * 60 * MINUTE
SHOP_SETTINGS = TopicSettings(segment_ms=DAY)
CAFE_SETTINGS = TopicSettings(segment_ms=DAY, index_interval_bytes=128)

# --- partition 0: a shop ---

# Each day's first order: its offset, which is also the order's number, its time, and the
# milliseconds between orders. A day begins a little later than the one before, because its first
# batch must be more than 24 hours younger. The third line is the vans' orders of the second day.
SHOP_DAYS = (
    (0, 1525939200000, 82_000),  # 2018-05-10 08:00 UTC
    (522, 1526025900000, 150_000),  # 2018-05-11 08:05
    (796, 1526028000000, 190_000),  # 2018-05-11 08:40
    (1004, 1526112540000, 150_000),  # 2018-05-12 08:09
)
SHOP_END = 1141

NAMES = (
    "Ada Berg", "Ben Costa", "Chloe Dubois", "David Evans", "Emma Fischer", "Farid Ghali",
    "Grace Hall", "Hugo Ibarra", "Ines Jorge", "Jonas Kern", "Karin Lund",
)  # fmt: skip
CITIES = ("Basel", "Bergen", "Cadiz", "Delft", "Graz", "Porto", "Trento")
GOODS = (
    ("apples", 320), ("brown bread", 275), ("candles", 640), ("coffee beans", 990), ("rice", 210),
    ("green tea", 510), ("honey", 735), ("olive oil", 1180), ("soap", 195),
)  # fmt: skip

# A note for every length from 10 to 32, so that batches can be filled to the byte.
NOTES = (
    "ring twice", "on the left", "second floor", "call me first", "ask the porter",
    "ring bell twice", "not before nine!", "mind the dog here", "behind the theatre",
    "give it to the cook", "leave it at the door", "use the side entrance",
    "the lift does not work", "the code is on the wall", "call when you are nearby",
    "please deliver before ten", "if nobody is in, try again", "leave it with the neighbour",
    "do not forget the honey cake", "two floors up, then turn left",
    "as a present, with a bow on it", "the blue door beside the bakery",
    "careful with the glass this time",
)  # fmt: skip
SHORTEST_NOTE = len(NOTES[0])

# The second day: the first offsets of the batches, and the total bytes of each pair of them. The
# second batch of a pair gets no entry, the next pair's first does. In the evening, the delivery
# vans are online again and send all their orders of the day as one batch, the segment's last.
SECOND_DAY = (522, 543, 565, 588, 614, 640, 666, 692, 718, 744, 770)
PAIRS = (6410, 7385, 7265, 7307, 7307)
VANS = range(796, 1004)


def shop_batches() -> Iterator[bytes]:
    """Three days of orders: 0 to 521, 522 to 1003, 1004 to 1140."""
    yield from map(_orders, _by_26(0, 522))
    for pair, size in enumerate(PAIRS):
        first, second, end = SECOND_DAY[2 * pair : 2 * pair + 3]
        yield from _filled((range(first, second), range(second, end)), size)
    yield _orders(range(770, 796))
    yield _orders(range(796, 1004))
    yield from map(_orders, _by_26(1004, SHOP_END))


def _by_26(start: int, end: int) -> Iterator[range]:
    for first in range(start, end, 26):
        yield range(first, min(first + 26, end))


def _filled(batches: Sequence[range], size: int) -> list[bytes]:
    """Returns the orders in batches of `size` bytes in total, which the lengths of notes adjust."""
    numbers = [number for batch in batches for number in batch]
    bare = sum(len(_orders(batch, dict.fromkeys(batch, ""))) for batch in batches)
    mean, left = divmod(size - bare, len(numbers))
    lengths = [mean + (place < left) for place in range(len(numbers))]
    # Move a few bytes from every second order to the one before it, so that notes differ.
    for place in range(0, len(numbers) - 1, 2):
        lengths[place] += place % 5
        lengths[place + 1] -= place % 5
    notes = {
        number: NOTES[length - len(NOTES[0])]
        for number, length in zip(numbers, lengths, strict=True)
    }
    return [_orders(batch, notes) for batch in batches]


def _orders(numbers: range, notes: Mapping[int, str] | None = None) -> bytes:
    records = [
        _order(number, NOTES[number * 7 % len(NOTES)] if notes is None else notes[number])
        for number in numbers
    ]
    return build_batch(records, BatchFields(base_offset=numbers.start))


def _order(number: int, note: str) -> SimpleRecord:
    first, opens, pause = next(day for day in reversed(SHOP_DAYS) if day[0] <= number)
    good, cents = GOODS[number * 5 % len(GOODS)]
    quantity = 1 + number % 3
    order = {
        "order": number,
        "customer": NAMES[number * 3 % len(NAMES)],
        "city": CITIES[number * 4 % len(CITIES)],
        "item": good,
        "quantity": quantity,
        "total": quantity * cents / 100,
        "note": note,
    }
    key = f"c{number * 3 % len(NAMES) + 401}"
    timestamp = opens + (number - first) * pause + number * 7919 % 60_000
    return SimpleRecord(timestamp, key.encode(), _json(order))


# --- partition 1: a café ---

# First and following offset of each day, when it opened, milliseconds between batches.
CAFE_DAYS = (
    (0, 133, 1526210400000, 17 * MINUTE),  # 2018-05-13 11:20 UTC
    (133, 251, 1526297400000, 19 * MINUTE),  # 2018-05-14 11:30
    (286, 340, 1526385300000, 16 * MINUTE),  # 2018-05-15 11:55, after the orders below
)
MENU = ("tea", "pie", "egg", "ale", "rum", "jam", "ham", "bun", "fig", "oat", "soup", "cake")

# The third day's first 35 orders, one batch per line: its first order's milliseconds after 11:40,
# then for each order the milliseconds after that, the table, and the items. Comments give the
# offsets after 251 and the batch's position. After a batch of at most 128 bytes, the next one has
# no entry.
THIRD_DAY = 1526384400000
THIRD_DAY_ORDERS = (
    (2117, "0 7 tea pie, 9 12 egg ham tea, 31 10 ale bun, 44 3 toast eggs"),  # 0-3 at 0
    (90402, "0 5 jam, 17 11 rum fig, 40 7 bun jam egg"),  # 4-6 at 156, entry
    (131006, "0 1 tea, 8 2 ale pie, 12 12 rum, 13 10 oat fig, 39 6 egg tea, 52 11 ham bun"),  # 7-12
    (185550, "0 10 pie, 26 4 tea bun"),  # 13-14 at 459, entry
    (227231, "0 12 rum ale, 33 11 fig"),  # 15-16: offset 266 and 267
    (
        260908,
        "0 8 egg ale, 2 3 tea jam, 19 10 oat tea, 21 6 pie, 37 1 rum pie, 50 5 ham egg",
    ),  # 17-22
    (318229, "0 2 tea, 6 9 ale, 13 4 bun, 21 8 pie"),  # 23-26 at 838, entry
    (318266, "0 3 fig, 17 6 tea"),  # 27-28: the last one at 11:45:18.283
    (318271, "0 12 rum pie, 5 11 ale, 10 10 egg ham"),  # 29-31 at 1050, entry; the other till's
    (318285, "0 2 bun, 3 7 tea pie, 9 5 soup"),  # 32-34: the second at 11:45:18.288
)


def cafe_batches() -> Iterator[bytes]:
    """Three days of orders: 0 to 132, 133 to 250, 251 to 339."""
    yield from _cafe_day(*CAFE_DAYS[0])
    yield from _cafe_day(*CAFE_DAYS[1])
    offset = 251
    for after, line in THIRD_DAY_ORDERS:
        records = [_table_order(THIRD_DAY + after, order) for order in line.split(", ")]
        yield build_batch(records, BatchFields(base_offset=offset))
        offset += len(records)
    yield from _cafe_day(*CAFE_DAYS[2])


def _table_order(after: int, order: str) -> SimpleRecord:
    milliseconds, table, *items = order.split()
    return SimpleRecord(after + int(milliseconds), table.encode(), _json(items))


def _cafe_day(start: int, end: int, opens: int, pause: int) -> Iterator[bytes]:
    offset = start
    while offset < end:
        count = min(3 + offset % 4, end - offset)
        numbers = range(offset, offset + count)
        records = [
            SimpleRecord(
                opens + 13 * (number - offset),
                str(1 + number * 5 % 12).encode(),
                _json([MENU[(number * 7 + n * 3) % len(MENU)] for n in range(1 + number % 3)]),
            )
            for number in numbers
        ]
        yield build_batch(records, BatchFields(base_offset=offset))
        offset += count
        opens += pause


# --- both ---


def write_textbook(log_dir: Path) -> None:
    """Writes the topic's two partitions and the files beside them; every run writes the same."""
    ends = {}
    for partition, batches, settings in (
        (0, shop_batches(), SHOP_SETTINGS),
        (1, cafe_batches(), CAFE_SETTINGS),
    ):
        directory = log_dir / f"{TOPIC}-{partition}"
        written = write_partition(directory, batches, settings, topic_id=TOPIC_ID)
        ends[TOPIC, partition] = written.end_offset
    write_log_dir(log_dir, ends, node_id=NODE_ID, cluster_id=CLUSTER_ID)


def main() -> None:
    """Writes the log directory that the command line names."""
    if len(sys.argv) != 2:
        sys.exit("usage: python -m examples.textbook LOG_DIR")
    write_textbook(Path(sys.argv[1]))


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


if __name__ == "__main__":
    main()
