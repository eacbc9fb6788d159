"""What the watch makes the kernel forget, and which waiters it wakes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

import pyfuse3
import pytest
import trio
import trio.testing

from kafkafs.mount.fuse import watch
from kafkafs.mount.fuse.watch import Watch
from kafkafs.mount.node import Node
from kafkafs.mount.nodes.member import Member, member_inode
from kafkafs.mount.partition import FRESH_SECONDS, MountedPartition
from kafkafs.mount.tree import Tree
from kafkafs.mount.vfs.timeouts import BRIEFLY
from kafkafs.storage.log_dirs.engine import Engine
from tests.mounted.live import LiveLog

T = TypeVar("T")


class Kernel:
    """Records what it is asked to forget."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.forgotten: list[tuple[int, bytes]] = []
        monkeypatch.setattr(pyfuse3, "invalidate_entry", self._forget)

    def _forget(self, directory: int, name: bytes) -> None:
        self.forgotten.append((directory, name))
        raise FileNotFoundError  # as if it did not know the name


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch) -> Kernel:
    """Also makes the watch work in the event loop instead of in threads, so that its clock, which
    `run` sets, advances only while everything waits."""
    monkeypatch.setattr(trio.to_thread, "run_sync", in_loop)
    return Kernel(monkeypatch)


async def in_loop(work: Callable[..., T], *arguments: object) -> T:
    await trio.lowlevel.checkpoint()
    return work(*arguments)


@pytest.fixture
def tree(live: LiveLog) -> Tree:
    return Tree(Engine(str(live.directory)))


def partition_of(tree: Tree) -> MountedPartition:
    return tree.catalog.partition("t", 0)


def names(partition: MountedPartition) -> list[tuple[int, bytes]]:
    directory = member_inode(partition, Member.DIRECTORY)
    return [(directory, b"offset"), (directory, b"segments")]


def run(
    tree: Tree, steps: Callable[[Watch], Awaitable[None]], open_nodes: tuple[Node, ...] = ()
) -> None:
    """Runs a watch during `steps`, which take at most ten seconds of its clock. That clock advances
    only while everything waits, however busy the machine is."""

    async def main() -> None:
        watching = Watch(tree.catalog, lambda: open_nodes)
        with trio.fail_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(watching.run)
                await steps(watching)
                nursery.cancel_scope.cancel()

    trio.run(main, clock=trio.testing.MockClock(autojump_threshold=0))


async def until(condition: Callable[[], object]) -> None:
    while not condition():
        await trio.sleep(0.001)


def test_growth_wakes_and_nothing_is_forgotten(live: LiveLog, tree: Tree, kernel: Kernel) -> None:
    tree.resolve("t/0/offset/0")

    async def steps(watching: Watch) -> None:
        await watching.next_change(partition_of(tree)).wait()  # the first check
        change = watching.next_change(partition_of(tree))
        live.append()
        await change.wait()

    run(tree, steps)
    assert kernel.forgotten == []


def test_loss_is_forgotten_also_by_who_has_a_file_open(
    live: LiveLog, tree: Tree, kernel: Kernel
) -> None:
    nodes = [tree.resolve(f"t/0/{name}") for name in ("offset/1", "offset/1.json", "values")]
    nodes.append(tree.resolve(f"t/0/segments/{live.log(0).name}"))
    partition = partition_of(tree)
    live.delete_before(2)

    async def steps(watching: Watch) -> None:
        await until(lambda: len(kernel.forgotten) == 5)

    run(tree, steps, tuple(nodes))
    offsets, segments = (member_inode(partition, m) for m in (Member.OFFSET, Member.SEGMENTS))
    assert kernel.forgotten[:3] == [
        (offsets, b"1"),
        (offsets, b"1.json"),
        (segments, live.log(0).name.encode()),
    ]
    assert kernel.forgotten[3:] == names(partition)


def test_a_loss_that_somebody_else_saw_first(live: LiveLog, tree: Tree, kernel: Kernel) -> None:
    partition = partition_of(tree)
    tree.resolve("t/0/offset/0")

    async def steps(watching: Watch) -> None:
        await watching.next_change(partition).wait()
        live.delete_before(2)
        partition.view()
        await until(lambda: kernel.forgotten)

    run(tree, steps)
    assert kernel.forgotten == names(partition)


def test_deletion_wakes_and_is_forgotten(live: LiveLog, tree: Tree, kernel: Kernel) -> None:
    partition = partition_of(tree)
    tree.resolve("t/0/offset/0")

    async def steps(watching: Watch) -> None:
        await watching.next_change(partition).wait()
        change = watching.next_change(partition)
        live.delete()
        await change.wait()
        await until(lambda: len(kernel.forgotten) == 2)

    run(tree, steps)
    assert kernel.forgotten == names(partition)
    assert tree.catalog.in_use() == []


def test_a_partition_that_nobody_visits_is_left(
    live: LiveLog, tree: Tree, kernel: Kernel, monkeypatch: pytest.MonkeyPatch
) -> None:
    partition = partition_of(tree)
    tree.resolve("t/0/offset/0")

    async def steps(watching: Watch) -> None:
        await watching.next_change(partition).wait()
        monkeypatch.setattr(watch, "VISIT_SECONDS", 0.0)
        await until(lambda: len(kernel.forgotten) == 2)
        live.delete_before(2)
        await trio.sleep(5 * watch.OTHERS_SECONDS)  # several rounds
        assert len(kernel.forgotten) == 2
        monkeypatch.setattr(watch, "VISIT_SECONDS", 30.0)
        tree.resolve("t/0/offset/2")
        await until(lambda: len(kernel.forgotten) == 4)

    run(tree, steps)
    assert kernel.forgotten == 2 * names(partition)


#: Moments of a change, in seconds after the start of the watch.
MOMENTS = [0.0, 0.05, 0.39, 0.41, 0.77, 1.3]


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_change_wakes_within_a_second(
    live: LiveLog, tree: Tree, kernel: Kernel, moment: float
) -> None:
    partition = partition_of(tree)
    tree.resolve("t/0/offset/0")

    async def steps(watching: Watch) -> None:
        await watching.next_change(partition).wait()  # the first check
        await trio.sleep(moment)
        for number in range(5):
            change = watching.next_change(partition)
            live.append()
            appended_at = trio.current_time()
            await change.wait()
            assert trio.current_time() - appended_at < 1
            await trio.sleep(number * watch.OTHERS_SECONDS / 3)

    run(tree, steps)


@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("kind", ["retention", "compaction", "deletion"])
def test_what_is_lost_is_forgotten_within_a_second(
    live: LiveLog, tree: Tree, kernel: Kernel, kind: str, moment: float
) -> None:
    """The kernel may find it for BRIEFLY afterwards, where it is not notified."""
    lose = {
        "retention": lambda: live.delete_before(2),
        "compaction": lambda: live.replace(0, [1]),
        "deletion": live.delete,
    }
    partition = partition_of(tree)
    tree.resolve("t/0/offset/0")

    async def steps(watching: Watch) -> None:
        await trio.sleep(moment + 2 * watch.OTHERS_SECONDS)
        kernel.forgotten.clear()
        lose[kind]()
        lost_at = trio.current_time()
        await until(lambda: len(kernel.forgotten) == 2)
        assert trio.current_time() - lost_at + BRIEFLY < 1

    run(tree, steps)
    assert kernel.forgotten == names(partition)


@pytest.mark.parametrize(
    "path", ["t", "t/0", "t/0/offset", "t/0/range/0-1", "t/0/compacted/offset/1"]
)
def test_other_names_are_not_cached_for_a_second(tree: Tree, path: str) -> None:
    attributes = tree.resolve(path).attributes()
    assert attributes.entry_timeout <= BRIEFLY
    assert BRIEFLY + FRESH_SECONDS < 1


def test_the_end_wakes_everybody(tree: Tree, kernel: Kernel) -> None:
    async def steps(watching: Watch) -> None:
        change = watching.next_change(partition_of(tree))
        watching.end()
        assert change.is_set()
        assert watching.is_ending

    run(tree, steps)
