"""Decrypts objects: AES-256-GCM, with a key that is itself encrypted with RSA (OAEP with SHA3-512,
which of Python's libraries PyCryptodome has)."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ...errors import ConfigError, CorruptError
from ...io.disk import read_given
from ...wording import printable
from .manifest import WrappedKey

if TYPE_CHECKING:  # an optional dependency, loaded for encrypted objects
    from Crypto.PublicKey.RSA import RsaKey

#: AES-GCM's initialization vector, before the data, and its tag, after them.
IV_BYTES: Final = 12
TAG_BYTES: Final = 16
OVERHEAD: Final = IV_BYTES + TAG_BYTES
_MAX_KEY_FILE_BYTES: Final = 1 << 20
_CONFIG: Final = "kafkafs.tier.keys"
_INSTALL: Final = "pip install 'kafkafs[tier]'"


@dataclass(frozen=True, slots=True)
class SegmentCipher:
    """Decrypts the chunks and indexes of one segment."""

    key: bytes
    aad: bytes

    def decrypt(self, data: bytes) -> bytes:
        """Returns the content. Raises ValueError if it was changed, or has another key."""
        from Crypto.Cipher import AES

        if len(data) < OVERHEAD:
            raise ValueError("too short to be encrypted")
        cipher = AES.new(self.key, AES.MODE_GCM, nonce=data[:IV_BYTES])
        cipher.update(self.aad)
        try:
            return cipher.decrypt_and_verify(data[IV_BYTES:-TAG_BYTES], data[-TAG_BYTES:])
        except ValueError:
            raise ValueError("it does not decrypt: it was changed, or has another key") from None


class Keyring:
    """RSA private keys by their id, "" for a key that is tried for any id. Thread-safe."""

    def __init__(self, files: Mapping[str, str]) -> None:
        self._files = files
        self._keys: dict[str, RsaKey] = {}
        self._lock = threading.Lock()  # guards _keys

    def cipher(self, key: WrappedKey) -> SegmentCipher:
        """Returns the cipher of a segment's objects. Raises CorruptError if its key cannot be
        unwrapped, ConfigError if a file is not a key."""
        path = self._files.get(key.key_id) or self._files.get("")
        if path is None:
            name = printable(key.key_id)
            what = f"encrypted, and its key is wrapped with RSA key {name}, which was not given"
            raise CorruptError(f"{what}: --tier-key {name}=FILE")
        try:
            from Crypto.Cipher import PKCS1_OAEP
            from Crypto.Hash import SHA3_512
        except ModuleNotFoundError:
            raise CorruptError(f"encrypted: reading it needs {_INSTALL}") from None
        try:
            unwrapped = PKCS1_OAEP.new(self._key(path), SHA3_512).decrypt(key.wrapped)
            if len(unwrapped) not in (16, 24, 32):
                raise ValueError
        except (ValueError, TypeError):
            what = f"its key cannot be unwrapped with {printable(path)}"
            raise CorruptError(f"encrypted, and {what}") from None
        return SegmentCipher(unwrapped, key.aad)

    def _key(self, path: str) -> RsaKey:
        from Crypto.PublicKey import RSA

        with self._lock:
            known = self._keys.get(path)
            if known is None:
                try:
                    known = RSA.import_key(read_given(path, _MAX_KEY_FILE_BYTES))
                except (ValueError, IndexError, TypeError, CorruptError) as error:
                    why = f"{printable(path)}: not an RSA key in PEM: {error}"
                    raise ConfigError(_CONFIG, why) from None
                if not known.has_private():
                    raise ConfigError(_CONFIG, f"{printable(path)}: not a private key")
                self._keys[path] = known
            return known
