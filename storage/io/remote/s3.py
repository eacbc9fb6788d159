"""Reads objects of S3 with botocore itself, in the thread that needs the bytes.

s3fs, which opens and lists buckets, receives all of them in the one thread of fsspec's event loop,
in pieces. That limits a download of many ranges at a time to a fraction of what botocore reaches.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final

# Settings of aiobotocore that botocore does not know.
_ONLY_ASYNCHRONOUS: Final = ("connector_args", "http_session_cls")


class S3Reader:
    """A client with the endpoint, credentials and other settings of an S3FileSystem. Thread-safe,
    but not to be used after a fork."""

    def __init__(self, filesystem: Any) -> None:
        """Raises what s3fs and botocore raise."""
        from fsspec.asyn import sync

        sync(filesystem.loop, filesystem.set_session)
        session = _botocore(".session").Session(**filesystem.kwargs)
        # The description of the service, which takes long to parse, is already there.
        loader = filesystem.session.get_component("data_loader")
        session.register_component("data_loader", loader)
        self._filesystem = filesystem
        self._client = session.create_client(
            "s3",
            config=_botocore(".config").Config(**_config(filesystem)),
            **_client_options(filesystem),
        )

    def read(self, path: str, etag: str, start: int, end: int) -> bytes:
        """Returns bytes of an object that still has this ETag. Raises what botocore raises."""
        bucket, key, _ = self._filesystem.split_path(path)
        which = {"Bucket": bucket, "Key": key, "Range": f"bytes={start}-{end - 1}", "IfMatch": etag}
        get = self._client.get_object
        # It adds what the user has configured for all requests, such as who pays.
        body = get(**self._filesystem._get_s3_method_kwargs(get, **which))["Body"]
        try:
            return bytes(body.read())
        finally:
            body.close()


def _botocore(module: str = "") -> Any:
    """Returns a module of botocore, which is no dependency of its own: it comes with s3fs, in the
    only version that s3fs works with."""
    return import_module(f"botocore{module}")


def _config(filesystem: Any) -> dict[str, Any]:
    config = {
        "connect_timeout": filesystem.connect_timeout,
        "read_timeout": filesystem.read_timeout,
    }
    config |= filesystem.config_kwargs
    if filesystem.anon:
        config["signature_version"] = _botocore().UNSIGNED
    return {name: value for name, value in config.items() if name not in _ONLY_ASYNCHRONOUS}


def _client_options(filesystem: Any) -> dict[str, Any]:
    credentials = {
        "aws_access_key_id": filesystem.key,
        "aws_secret_access_key": filesystem.secret,
        "aws_session_token": filesystem.token,
    }
    options = {"endpoint_url": filesystem.endpoint_url, "use_ssl": filesystem.use_ssl}
    options |= credentials | filesystem.client_kwargs
    return {
        name: value
        for name, value in options.items()
        if value is not None and not (filesystem.anon and name in credentials)
    }
