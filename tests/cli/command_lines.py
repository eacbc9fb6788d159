"""Command lines, for every command, that must leave a log directory unchanged.

In a line DIR stands for the log directory, or several joined by commas; FIRST for the first of
them; TOPIC for a topic without deleted records, PARTITION for the directory of one of its
partitions and LOG for a `.log` file in it; NEW for a topic that does not exist; EMPTY, FULL, FILE
and OUT for an empty directory, one that is not empty, a file, and a path that does not exist.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import click

from kafkafs.cli.main import WRITING, cli
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.topics.restoring import found_deletions

NEW: Final = "nowhere"
#: Commands that take no log directory.
ELSEWHERE: Final = frozenset(("umount", "completion"))
#: Options that make a writing command read-only.
LOOKING: Final = frozenset(("--list", "--dry-run", "--check"))

#: Lines that only read, whether or not they succeed.
READING: Final[Mapping[str, list[str]]] = {
    "ls": ["ls DIR", "ls -l DIR TOPIC/0", "ls DIR NEW", "ls DIR TOPIC/0/offset"],
    "cat": [
        "cat DIR TOPIC/0/values",
        "cat DIR TOPIC/0/offset/0 TOPIC/0/key/nobody NEW/0/values",
        "cat DIR TOPIC/0/status.json TOPIC/0/records.arrow TOPIC/0/compacted/why.json",
    ],
    "stat": [
        "stat DIR TOPIC/0",
        "stat --at 2018-05-16 DIR TOPIC/0/values",
        "stat DIR TOPIC/0/time/2018-05-15",
    ],
    "explain": ["explain DIR TOPIC/0/offset/0", "explain DIR TOPIC/0/key/nobody"],
    "groups": ["groups DIR", "groups --members DIR", "groups DIR nobody"],
    "history": ["history DIR TOPIC nobody", "history --json DIR TOPIC/0 nobody"],
    "diff": ["diff DIR DIR", "diff --bytes DIR DIR TOPIC/0", "diff DIR EMPTY"],
    "cluster": ["cluster DIR", "cluster --json DIR topics NEW", "cluster log DIR"],
    "schemas": ["schemas DIR", "schemas --usage DIR", "schemas export DIR -o FULL"],
    "sql": [
        "sql DIR SHOW",
        "sql --at 2018-05-16 DIR FROM",
        "sql DIR CHECKPOINT -o FIRST/out.csv",
    ],
    "why": ["why DIR TOPIC/0", "why DIR NEW/0"],
    "verify": ["verify DIR", "verify DIR TOPIC/0"],
    "report": ["report DIR -o -", "report --deep DIR TOPIC NEW -o -"],
    "backup create": [
        "backup --dry-run DIR OUT",
        "backup create --dry-run --json DIR EMPTY TOPIC",
        "backup --reread DIR FULL",
        "backup DIR FIRST/backup",
        "backup DIR OUT NEW",
        "backup --bandwidth fast DIR OUT",
        "backup --at 2030-01-01 DIR OUT",
    ],
    "backup list": ["backup list DIR", "backup list OUT"],
    "backup verify": ["backup verify FULL"],
    "backup prune": ["backup prune EMPTY", "backup prune --keep-daily 7 --dry-run FULL"],
    "restore": ["restore DIR NEW --to 127.0.0.1:1", "restore --dry-run DIR NEW --to 127.0.0.1:1"],
    "export": [
        "export --format csv --by hour --from 2018-05-15 DIR -o FULL TOPIC",
        "export DIR -o FULL",
        "export DIR -o FIRST",
        "export --at 2018-05-16 DIR -o OUT NEW",
    ],
    "topic list": ["topic list DIR", "topic list --at 2018-05-16 DIR", "topic list --json DIR NEW"],
    "topic config": ["topic config --all DIR TOPIC", "topic config DIR NEW"],
    "topic create": ["topic create --dry-run DIR NEW", "topic create --dry-run --register DIR NEW"],
    "transactions": ["transactions DIR", "transactions DIR NEW"],
    "dump": ["dump LOG", "dump FIRST/recovery-point-offset-checkpoint", "dump OUT"],
    "expire": ["expire --dry-run DIR", "expire --dry-run --all --at 2030-01-01 DIR TOPIC"],
    "compact": [
        "compact --dry-run DIR",
        "compact --dry-run --force --all DIR",
        "compact --dry-run --keys DIR TOPIC/0",
    ],
    "erase": ["erase --dry-run --key nobody DIR TOPIC", "erase --dry-run --offset 0 DIR TOPIC/0"],
    "purge": ["purge --dry-run DIR", "purge --dry-run --stray DIR"],
    "undelete": ["undelete --list DIR", "undelete --list DIR TOPIC"],
    "recover": ["recover --dry-run DIR", "recover --dry-run DIR TOPIC/0"],
    "revive": [
        "revive --dry-run DIR -o OUT",
        "revive --dry-run --json DIR -o OUT TOPIC/0",
        "revive DIR -o OUT NEW",
        "revive DIR -o FULL",
        "revive --kafka-version 2.8 DIR -o OUT",
        "revive --in-place --dry-run DIR",
        "revive --in-place --dry-run --json DIR TOPIC",
    ],
    "mount": [
        "mount --check DIR EMPTY",
        "mount --rw --check DIR EMPTY",
        "mount --rw --maintain --check DIR EMPTY",
        "mount --check DIR FULL",
    ],
}

#: Lines that would write if their arguments were valid: each must fail.
FAILING: Final[Mapping[str, list[str]]] = {
    "topic create": [
        "topic create DIR TOPIC",
        "topic create -p 0 DIR NEW",
        "topic create -p 10001 DIR NEW",
        "topic create -p many DIR NEW",
        "topic create --config retention.ms=soon DIR NEW",
        "topic create --config retention.m=5 DIR NEW",
        "topic create --config min.compaction.lag.ms=9 --config max.compaction.lag.ms=5 DIR NEW",
        "topic create -c retention.ms=soon DIR NEW",
        "topic create -c min.compaction.lag.ms=9 --config max.compaction.lag.ms=5 DIR NEW",
        "topic create --topic-id short DIR NEW",
        "topic create DIR a/b",
        "topic create DIR __cluster_metadata",
        "topic create --cluster-id 3Db5QLSqSZieL3rJBUUegA DIR NEW",
        "topic create --unregistered --cluster-id 3Db5QLSqSZieL3rJBUUegA --node-id 7 DIR NEW",
        "topic create --unregistered DIR,FIRST NEW",
        "topic create --unregistered OUT,OUT NEW",
        "topic create --unregistered OUT,DIR,FILE NEW",
        "topic create --unregistered DIR,FULL NEW",
        "topic create --unregistered OUT a/b",
        "topic create --config min.compaction.lag.ms=9 --config max.compaction.lag.ms=5 OUT NEW",
        "topic create PARTITION NEW",
        "topic create --register OUT NEW",
        "topic create --register DIR TOPIC",
        "topic create --register --unregistered DIR NEW",
    ],
    "revive": [
        "revive --in-place OUT",
        "revive --in-place EMPTY",
        "revive --in-place DIR NEW",
        "revive --in-place DIR TOPIC/0",
        "revive --in-place DIR __cluster_metadata",
        "revive --in-place DIR -o OUT",
        "revive --in-place --until 2030-01-01 DIR",
        "revive --in-place DIR,FIRST",
        "revive DIR",
    ],
    "topic delete": [
        "topic delete OUT TOPIC",
        "topic delete DIR NEW",
        "topic delete DIR NEW __cluster_metadata a/b",
        "topic delete -c retention.ms=soon DIR TOPIC",
        "topic delete DIR,FIRST TOPIC",
    ],
    "topic config": [
        "topic config --add-config retention.ms=1 EMPTY TOPIC",
        "topic config --add-config retention.ms=soon DIR TOPIC",
        "topic config --add-config retention.ms=1 DIR NEW",
        "topic config --delete-config retention.m DIR TOPIC",
        "topic config --add-config retention.ms DIR TOPIC",
        "topic config --add-config min.compaction.lag.ms=9 --add-config max.compaction.lag.ms=5"
        " DIR TOPIC",
        "topic config --add-config retention.ms=1 DIR __cluster_metadata",
        "topic config -c retention.ms=soon --add-config retention.ms=1 DIR TOPIC",
    ],
    "append": [
        "append OUT TOPIC/0",
        "append DIR NEW/0",
        "append DIR TOPIC/9999",
        "append DIR TOPIC",
        "append DIR TOPIC/0 OUT",
        "append DIR TOPIC/0 EMPTY",
        "append DIR __cluster_metadata/0",
        "append --format jsonl --key-separator = DIR TOPIC/0",
        "append --compression brotli DIR TOPIC/0",
        "append --batch-size 0 DIR TOPIC/0",
        "append -c retention.ms=soon DIR TOPIC/0",
        "append -c log.cleaner.io.max.bytes.per.second=0 DIR TOPIC/0",
        "append DIR,FIRST TOPIC/0",
        "append DIR,OUT TOPIC/9999",
    ],
    "expire": [
        "expire EMPTY",
        "expire DIR NEW",
        "expire DIR TOPIC/9999",
        "expire DIR __cluster_metadata",
        "expire --at 2030-01-01 DIR TOPIC",
        "expire -c retention.ms=soon DIR",
        "expire DIR,FIRST",
    ],
    "compact": [
        "compact --force OUT",
        "compact DIR NEW",
        "compact DIR TOPIC/9999",
        "compact --force DIR __cluster_metadata/0",
        "compact --force -c cleanup.policy=delete DIR TOPIC",
        "compact --keys DIR TOPIC/0",
        "compact --at 2030-01-01 DIR TOPIC",
        "compact -c cleanup.policy=shrink DIR",
    ],
    "erase": [
        "erase --key nobody OUT TOPIC",
        "erase --key nobody EMPTY TOPIC",
        "erase --key nobody DIR TOPIC",
        "erase --key-file FILE DIR NEW",
        "erase --key-file OUT DIR TOPIC",
        "erase --key-prefix nobody DIR TOPIC/9999",
        "erase --offset 999999999 DIR TOPIC/0",
        "erase --offset 0 DIR TOPIC",
        "erase --key nobody --offset 0 DIR TOPIC/0",
        "erase --key nobody DIR",
        "erase --key nobody DIR __cluster_metadata/0",
        "erase --key nobody -c retention.ms=soon DIR TOPIC",
        "erase DIR TOPIC",
    ],
    "purge": [
        "purge DIR,OUT",
        "purge DIR NEW",
        "purge --stray DIR TOPIC/9999",
        "purge -c retention.ms=soon DIR",
        "purge DIR,FIRST",
    ],
    "undelete": [
        "undelete EMPTY TOPIC",
        "undelete DIR",
        "undelete DIR NEW",
        "undelete DIR NEW/0",
        "undelete DIR TOPIC",
        "undelete DIR TOPIC/0",
        "undelete DIR TOPIC/9999 NEW",
        "undelete --offset 999999999 DIR TOPIC/0",
        "undelete --offset 5 DIR TOPIC",
        "undelete --list --offset 5 DIR TOPIC/0",
    ],
    "recover": [
        "recover OUT",
        "recover EMPTY",
        "recover DIR TOPIC",
        "recover -c retention.ms=soon DIR",
        "recover DIR,FIRST",
    ],
    "transactions": [
        "transactions --abort 1 OUT",
        "transactions --abort 987654321 DIR",
        "transactions --abort 987654321 DIR TOPIC",
        "transactions --abort 1 DIR NEW",
        "transactions --abort -1 DIR",
    ],
    "import": [
        "import DIR TOPIC",
        "import --from OUT DIR",
        "import --from OUT DIR TOPIC",
        "import --from EMPTY DIR TOPIC",
        "import --from FULL DIR TOPIC",
        "import --from FULL DIR",
        "import --from FILE DIR TOPIC",
        "import --from FILE DIR NEW",
        "import --from FILE OUT TOPIC",
        "import --from FIRST DIR TOPIC",
    ],
    "mount": [
        "mount --rw OUT EMPTY",
        "mount --maintain DIR EMPTY",
        "mount --rw -o nonsense DIR EMPTY",
        "mount --rw DIR FILE",
        "mount --rw DIR OUT",
        "mount --rw -c retention.ms=soon DIR EMPTY",
        "mount --rw --isolation serializable DIR EMPTY",
    ],
    "spark verify": ["spark verify", "spark verify --state FILE DIR"],
    "spark stats": ["spark stats --by nothing DIR", "spark stats -o EMPTY DIR"],
    "spark compact": ["spark compact --split-bytes -1 DIR", "spark compact --staging FILE DIR"],
    "spark reindex": ["spark reindex s3a://bucket/x", "spark reindex DIR TOPIC/x"],
    "spark export": ["spark export DIR", "spark export --format xml DIR -o OUT"],
    "spark import": ["spark import DIR", "spark import --from OUT DIR"],
    "spark salvage": ["spark salvage DIR", "spark salvage DIR -o s3a://bucket/x"],
    "spark merge": ["spark merge DIR -o OUT", "spark merge --with s3a://bucket/x DIR -o OUT"],
}

#: Lines that fail only in the directories of a KRaft broker, where new topics would become strays.
FAILING_IN_KRAFT: Final = [
    "topic create DIR NEW",
    "topic create --config retention.ms=5 DIR,OUT NEW",
]


@dataclass(frozen=True, slots=True)
class Scene:
    """The values of the words in capitals: log directories, and a scratch directory `place`."""

    log_dirs: tuple[Path, ...]
    topic: str
    place: Path

    @classmethod
    def of(cls, log_dirs: tuple[Path, ...], place: Path) -> Scene:
        """Selects a topic without deleted records; creates EMPTY, FULL and FILE in `place`."""
        engine = Engine([str(path) for path in log_dirs])
        deleted = {each.topic for each in found_deletions(engine)}
        topics = [name for name in engine.topics() if not name.startswith("__")]
        topic = next(name for name in topics if name not in deleted)
        (place / "empty").mkdir(parents=True)
        (place / "full").mkdir()
        (place / "full" / "letter").write_text("not a log\n")
        (place / "file").touch()
        return cls(log_dirs, topic, place)

    @property
    def is_kraft(self) -> bool:
        engine = Engine([str(path) for path in self.log_dirs])
        return any(log_dir.is_of_kraft for log_dir in engine.log_dirs.dirs)

    def words(self, line: str) -> list[str]:
        engine = Engine([str(path) for path in self.log_dirs])
        number = engine.topics()[self.topic][0]
        partition = Path(engine.partition_dir(self.topic, number).path)
        stands_for = {
            "DIR": ",".join(map(str, self.log_dirs)),
            "FIRST": str(self.log_dirs[0]),
            "TOPIC": self.topic,
            "PARTITION": str(partition),
            "LOG": str(min(partition.glob("*.log"))),
            "NEW": NEW,
            "EMPTY": str(self.place / "empty"),
            "FULL": str(self.place / "full"),
            "FILE": str(self.place / "file"),
            "OUT": str(self.place / "out"),
        }
        pattern = rf"\b({'|'.join(stands_for)})\b"
        return [re.sub(pattern, lambda found: stands_for[found[0]], word) for word in line.split()]


def commands(group: click.Group | None = None, above: str = "") -> Iterator[tuple[str, set[str]]]:
    """Yields every command and its options, by walking the tree of click groups."""
    if group is None:
        assert isinstance(cli, click.Group)
        group = cli
    context = click.Context(group)
    for name in group.list_commands(context):
        found = group.get_command(context, name)
        assert found is not None
        if isinstance(found, click.Group):
            yield from commands(found, f"{above}{name} ")
        elif above + name not in ELSEWHERE:
            yield above + name, {text for option in found.params for text in option.opts}


def writes(command: str) -> bool:
    """Returns whether a command can change log directories."""
    return command.split()[0] in WRITING and command != "topic list"
