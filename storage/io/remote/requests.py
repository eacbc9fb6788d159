"""Requests to a server: counted, repeated after passing failures, and with errors that name the
object."""

from __future__ import annotations

import errno
import os
import random
import re
import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Final, TypeVar

from ...errors import LogDirError, SegmentGone

T = TypeVar("T")

#: How often a request is sent at most, and the pauses between, in seconds: 6.2 s in all.
ATTEMPTS: Final = 6
_FIRST_PAUSE: Final = 0.2
# The libraries of these schemes repeat each request themselves, and cannot be told not to.
_REPEATED: Final = ("gs://",)
_LONGEST_REASON: Final = 300
# In the name of the error of a library that has none for this server.
_CREDENTIALS: Final = re.compile("Credential|ClientAuthentication")
_DENIED: Final = os.strerror(errno.EACCES)

_PASSING: Final = frozenset((408, 425, 429, 500, 502, 503, 504))
_PASSING_CODES: Final = frozenset(
    ("SlowDown", "Throttling", "ThrottlingException", "RequestLimitExceeded", "InternalError",
     "ServiceUnavailable", "RequestTimeout", "RequestTimeTooSkewed", "BandwidthLimitExceeded")
)  # fmt: skip
_CHANGED: Final = 412  # Precondition Failed: another ETag
_REFUSED: Final = (409, _CHANGED)  # Conflict: with a request at the same time
_PASSING_ERRNOS: Final = frozenset(
    (errno.ECONNRESET, errno.ECONNREFUSED, errno.ECONNABORTED, errno.EPIPE, errno.ETIMEDOUT,
     errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EBUSY, errno.EAGAIN)
)  # fmt: skip
# By name, because the libraries that raise them are imported only where they are used.
_PASSING_TYPES: Final = frozenset(
    ("FSTimeoutError", "ServerDisconnectedError", "ClientPayloadError", "ClientConnectionError",
     "ClientConnectorError", "ClientOSError", "EndpointConnectionError", "ConnectTimeoutError",
     "ReadTimeoutError", "ConnectionClosedError", "HTTPClientError", "ResponseStreamingError",
     "IncompleteReadError", "FlexibleChecksumError",
     "ServiceRequestError", "ServiceResponseError", "SSHException", "EOFError")
)  # fmt: skip
# Of those, the ones that remain: who tries again is locked out, or waits long for the same answer.
_LASTING_TYPES: Final = frozenset(
    ("AuthenticationException", "BadHostKeyException", "ClientAuthenticationError", "UnknownHost")
)


class ShortRead(Exception):
    """A server sent fewer bytes than were requested."""


class Counts:
    """Counts what was requested of all servers. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.requests: Counter[str] = Counter()  # by operation: list, stat, read, write, remove
        self.retries = 0
        self.failures = 0
        self.read_bytes = 0

    def add(self, operation: str, *, retries: int = 0, failures: int = 0, read: int = 0) -> None:
        with self._lock:
            self.requests[operation] += 1
            self.retries += retries
            self.failures += failures
            self.read_bytes += read


#: Of this process.
REMOTE_COUNTS: Final = Counts()


def request(operation: str, path: str, send: Callable[[], T]) -> T:
    """Returns what `send` returns, which may fail for a while: it is called up to ATTEMPTS times,
    unless it repeats the request itself.

    Raises SegmentGone if there is no such object, or another one by now; PermissionError; else
    OSError with EIO and the reason. All have `path`.
    """
    pause = _FIRST_PAUSE
    attempts = 1 if path.startswith(_REPEATED) else ATTEMPTS
    for attempt in range(1, attempts + 1):
        try:
            found = send()
        except Exception as error:  # noqa: BLE001 - each library has its own, without a common base
            passes = attempt < attempts and is_passing(error)
            REMOTE_COUNTS.add(operation, retries=passes, failures=not passes)
            if not passes:
                raise translated(error, path) from None
        else:
            size = len(found) if isinstance(found, bytes) else 0
            REMOTE_COUNTS.add(operation, read=size)
            return found
        time.sleep(pause * random.uniform(0.5, 1))
        pause *= 2
    raise AssertionError("unreachable")


def translated(error: Exception, path: str) -> Exception:
    """Returns the exception to raise instead of a library's."""
    if isinstance(error, (SegmentGone, LogDirError)):
        return error
    chain = _chain(error)
    if any(isinstance(each, FileNotFoundError) for each in chain):
        return SegmentGone(path)
    statuses = {_status(each) for each in chain}
    if statuses & {404, 410, _CHANGED}:
        return SegmentGone(path)
    if statuses & {401, 403} or any(isinstance(each, PermissionError) for each in chain):
        return PermissionError(errno.EACCES, f"{_DENIED} ({_reason(error)})", path)
    if any(_CREDENTIALS.search(type(each).__name__) for each in chain):
        return PermissionError(errno.EACCES, f"{_DENIED} (no credentials were found)", path)
    return OSError(errno.EIO, _reason(error), path)


def is_refused_condition(error: Exception) -> bool:
    """Returns whether a request failed because of its condition: that there be no such object, or
    one of a certain version."""
    chain = _chain(error)
    return any(isinstance(each, FileExistsError) or _status(each) in _REFUSED for each in chain)


def is_passing(error: Exception) -> bool:
    """Returns whether the same request may succeed later."""
    chain = _chain(error)
    if any(each.__name__ in _LASTING_TYPES for found in chain for each in type(found).__mro__):
        return False
    return any(map(_passes, chain))


def _passes(error: BaseException) -> bool:
    if isinstance(error, (ShortRead, TimeoutError, ConnectionError)):
        return True
    if _status(error) in _PASSING or _code(error) in _PASSING_CODES:
        return True
    if type(error) is OSError and error.errno is None:
        return True  # paramiko's, of a connection that has been closed
    if isinstance(error, OSError) and error.errno in _PASSING_ERRNOS:
        return True
    return any(each.__name__ in _PASSING_TYPES for each in type(error).__mro__)


def _chain(error: BaseException) -> list[BaseException]:
    """Returns an error and what caused it."""
    found: list[BaseException] = []
    next_error: BaseException | None = error
    while next_error is not None and next_error not in found and len(found) < 10:
        found.append(next_error)
        next_error = next_error.__cause__ or next_error.__context__
    return found


def _status(error: BaseException) -> int | None:
    """Returns the status code of HTTP that an error of botocore, aiohttp, gcsfs or azure has."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
    else:
        status = getattr(error, "status", None) or getattr(error, "status_code", None)
        status = status or getattr(error, "code", None)
    return int(status) if isinstance(status, int) or str(status).isdigit() else None


def _code(error: BaseException) -> str:
    response = getattr(error, "response", None)
    code = response.get("Error", {}).get("Code", "") if isinstance(response, dict) else ""
    return str(code)


def _reason(error: Exception) -> str:
    """Describes an error in one line, without the URL that was requested, which may be signed."""
    statuses = [found for each in _chain(error) if (found := _status(each))]
    code = next((text for each in _chain(error) if (text := _code(each))), "")
    if statuses:
        return f"the server answered {statuses[0]}" + (f" ({code})" if code else "")
    name = type(error).__name__
    if name == "FlexibleChecksumError":
        return "the bytes that arrived do not have the object's checksum"
    if isinstance(error, ShortRead):
        return str(error)
    if isinstance(error, TimeoutError) or "timeout" in name.lower():
        return "the server did not answer in time"
    if isinstance(error, OSError) and error.errno in _PASSING_ERRNOS:
        return os.strerror(error.errno)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror[:_LONGEST_REASON]
    return f"the request failed ({name})"
