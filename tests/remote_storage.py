"""Writes objects as Aiven's plugin for tiered storage does, from those of LocalTieredStorage."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import cramjam
from Crypto.Cipher import AES, PKCS1_OAEP
from Crypto.Hash import SHA3_512
from Crypto.PublicKey import RSA

#: The indexes in the order of their object, with the suffixes of LocalTieredStorage.
INDEXES = (
    ("offset", "index"),
    ("timestamp", "timeindex"),
    ("producerSnapshot", "snapshot"),
    ("leaderEpoch", "leader_epoch_checkpoint"),
    ("transaction", "txnindex"),
)


@dataclass
class KeyPair:
    """An RSA key, and the file with it."""

    path: Path
    key_id: str = "key1"
    key: RSA.RsaKey = field(init=False)

    def __post_init__(self) -> None:
        self.key = RSA.generate(2048)
        self.path.write_bytes(self.key.export_key(pkcs=8))

    def wrap(self, data_key: bytes) -> str:
        wrapped = PKCS1_OAEP.new(self.key.public_key(), SHA3_512).encrypt(data_key)
        return f"{self.key_id}:{base64.b64encode(wrapped).decode()}"


@dataclass
class AivenWriter:
    """How objects are written: below `root`, with names that start with `prefix`."""

    root: Path
    prefix: str = ""
    chunk_size: int = 4096
    compression: bool = False
    keys: KeyPair | None = None
    has_metadata: bool = True

    def copy(self, local: Path, segments: Sequence[dict[str, Any]]) -> None:
        """Copies `segments`, as the metadata of remote storage describe them, from the files that
        LocalTieredStorage has in `local`."""
        for segment in segments:
            self._copy(local, segment)

    def _copy(self, local: Path, segment: dict[str, Any]) -> None:
        topic, number = segment["topic"], segment["topic_partition"]
        topic_id, segment_id = segment["topic_id"], segment["segment_id"]
        name = f"{segment['start_offset']:020d}-{segment_id}"
        source = local / f"{topic}-{number}-{topic_id}" / name
        target = self.root / f"{self.prefix}{topic}-{topic_id}" / str(number)
        target.mkdir(parents=True, exist_ok=True)
        data_key, aad = os.urandom(32), os.urandom(32)
        log = Path(f"{source}.log").read_bytes()
        parts = [log[at : at + self.chunk_size] for at in range(0, len(log), self.chunk_size)]
        chunks = [self._transformed(part, data_key, aad, self.compression) for part in parts]
        (target / f"{name}.log").write_bytes(b"".join(chunks))
        indexes: dict[str, Any] = {}
        together = b""
        for index, suffix in INDEXES:
            path = Path(f"{source}.{suffix}")
            if index == "transaction" and not path.exists():
                indexes[index] = None
                continue
            data = path.read_bytes()
            data = self._transformed(data, data_key, aad, False) if data else b""
            indexes[index] = {"position": len(together), "size": len(data)}
            together += data
        (target / f"{name}.indexes").write_bytes(together)
        manifest: dict[str, Any] = {
            "version": "1",
            "chunkIndex": self._chunk_index(len(log), list(map(len, chunks))),
            "segmentIndexes": indexes,
            "compression": self.compression,
        }
        if self.keys is not None:
            manifest["encryption"] = {
                "dataKey": self.keys.wrap(data_key),
                "aad": base64.b64encode(aad).decode(),
            }
        if self.has_metadata:
            manifest["remoteLogSegmentMetadata"] = described(segment)
        (target / f"{name}.rsm-manifest").write_text(json.dumps(manifest))

    def _transformed(self, data: bytes, key: bytes, aad: bytes, compress: bool) -> bytes:
        if compress:
            data = bytes(cramjam.zstd.compress(data))
        if self.keys is not None:
            vector = os.urandom(12)
            cipher = AES.new(key, AES.MODE_GCM, nonce=vector)
            cipher.update(aad)
            data = b"".join((vector, *cipher.encrypt_and_digest(data)))
        return data

    def _chunk_index(self, size: int, chunks: list[int]) -> dict[str, Any]:
        found: dict[str, Any] = {"originalChunkSize": self.chunk_size, "originalFileSize": size}
        if self.compression:
            return {"type": "variable", **found, "transformedChunks": encoded_sizes(chunks)}
        return {
            "type": "fixed",
            **found,
            "transformedChunkSize": chunks[0],
            "finalTransformedChunkSize": chunks[-1],
        }


def encoded_sizes(sizes: list[int]) -> str:
    """Encodes chunk sizes as ChunkSizesBinaryCodec does."""
    data = len(sizes).to_bytes(4, "big")
    if len(sizes) > 1:
        least = min(sizes[:-1])
        width = max(1, (max(sizes[:-1]) - least).bit_length() + 7 >> 3)
        data += least.to_bytes(4, "big") + bytes([width])
        data += b"".join((size - least).to_bytes(width, "big") for size in sizes[:-1])
    if sizes:
        data += sizes[-1].to_bytes(4, "big")
    return base64.b64encode(bytes(cramjam.zstd.compress(data))).decode()


def described(segment: dict[str, Any]) -> dict[str, Any]:
    """Returns a segment's metadata as a manifest has them."""
    return {
        "remoteLogSegmentId": {
            "topicIdPartition": {
                "topicId": segment["topic_id"],
                "topicPartition": {
                    "topic": segment["topic"],
                    "partition": segment["topic_partition"],
                },
            },
            "id": segment["segment_id"],
        },
        "startOffset": segment["start_offset"],
        "endOffset": segment["end_offset"],
        "maxTimestampMs": segment["max_timestamp"],
        "brokerId": segment["broker"],
        "eventTimestampMs": segment["event_timestamp"],
        "segmentLeaderEpochs": segment["leader_epochs"],
    }
