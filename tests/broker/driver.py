"""Kafka's own client: Driver.java in a long-lived process, and methods to call it."""

from __future__ import annotations

import base64
import itertools
import json
import subprocess
import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.answers import ExpectedOffsets, ExpectedRecord, record
from tests.broker.jvm import KafkaError, installation, java

ANSWER_SECONDS = 120


@dataclass(frozen=True, slots=True)
class Message:
    """A record to send; if `timestamp` is None, the client uses the time of sending."""

    key: bytes | None
    value: bytes | None
    timestamp: int | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


class Driver:
    """Kafka's client in a process. Commands start at once and run in parallel; `submit` does not
    wait for the answer.

    Producers are named and stay open as long as the driver. The name of one made with
    `transactional=True` is its transactional.id. Closing the driver does not end their
    transactions.
    """

    def __init__(self, bootstrap: str, output: Path) -> None:
        self._numbers = itertools.count(1)
        self._waiting: dict[int, Future[Any]] = {}
        self._lock = threading.Lock()
        with output.open("ab") as log:
            self._process = subprocess.Popen(
                java(installation(), "Driver", bootstrap),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        self._reader = threading.Thread(target=self._read_answers, daemon=True)
        self._reader.start()
        self.call("cluster")

    def close(self) -> None:
        """Ends the process like a crashing client: open transactions stay open."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait(ANSWER_SECONDS)
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def submit(self, command: str, **arguments: Any) -> Future[Any]:
        """Sends `command` to Driver.java; the future's result is its answer, or KafkaError."""
        answer: Future[Any] = Future()
        with self._lock:
            number = next(self._numbers)
            self._waiting[number] = answer
            line = json.dumps({"id": number, "do": command, **arguments})
            assert self._process.stdin is not None
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        return answer

    def call(self, command: str, **arguments: Any) -> Any:
        """Does what `submit` does, and waits for the answer."""
        return self.submit(command, **arguments).result(ANSWER_SECONDS)

    def create_topic(
        self, topic: str, partitions: int = 1, configs: Mapping[str, str] | None = None
    ) -> str:
        """Creates the topic and returns its ID."""
        configs = dict(configs or {})
        answer = self.call("create_topic", topic=topic, partitions=partitions, configs=configs)
        return str(answer)

    def produce(
        self, topic: str, messages: Iterable[Message], partition: int = 0, **options: Any
    ) -> list[int]:
        """Sends `messages`, as one batch or in batches of `batch=N`, and returns their offsets."""
        lines = [
            {
                "key": _base64(message.key),
                "value": _base64(message.value),
                "timestamp": message.timestamp,
                "headers": [[name, _base64(value)] for name, value in message.headers],
            }
            for message in messages
        ]
        answer = self.call("produce", topic=topic, partition=partition, records=lines, **options)
        return [int(offset) for offset in answer]

    def records(
        self, topic: str, partition: int = 0, isolation: str = "read_committed"
    ) -> list[ExpectedRecord]:
        """Returns what a consumer with that isolation level reads from the log start to the end."""
        answer = self.call("records", topic=topic, partition=partition, isolation=isolation)
        return [record(line) for line in answer]

    def offsets(self, topic: str, partition: int = 0) -> ExpectedOffsets:
        """Returns the log start offset, end offset and last stable offset."""
        answer = self.call("offsets", topic=topic, partition=partition)
        return ExpectedOffsets(
            beginning=answer["beginning"],
            end=answer["end"],
            last_stable=answer["last_stable"],
            max_timestamp=None,
        )

    def _read_answers(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            answer = json.loads(line)
            waiting = self._waiting.pop(answer["id"])
            if "error" in answer:
                waiting.set_exception(KafkaError(answer["error"]))
            else:
                waiting.set_result(answer["ok"])
        with self._lock:
            for waiting in self._waiting.values():
                waiting.set_exception(KafkaError("the driver ended; see its output"))
            self._waiting.clear()


def _base64(data: bytes | None) -> str | None:
    return None if data is None else base64.b64encode(data).decode("ascii")
