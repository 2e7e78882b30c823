"""The keys of whoever signs tokens (RFC 7517), from a file or an address.

A file is read again when it has changed. An address is asked by a thread of its own: at the start,
every `refresh_ms`, after a failure, and when a token names a key that is not known, but then at
most every 10 s. Until the first answer no token is valid.
"""

from __future__ import annotations

import base64
import http.client
import json
import logging
import threading
import urllib.parse
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from kbroker.config.types import ConfigError
from kbroker.urls import shown_url, split_credentials

_LOG: Final = logging.getLogger("kbroker.security")
_ANSWER_MAX_BYTES: Final = 1 << 20
_SETTING: Final = "sasl.oauthbearer.jwks.endpoint.url"
_ANSWER_S: Final = 10.0
_UNKNOWN_S: Final = 10.0
_AGAIN_S: Final = 5.0

Key = Mapping[str, Any]


def parse_keys(text: bytes) -> list[Key]:
    """The keys of a key set. Raises ValueError."""
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deep") from None
    keys = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(keys, list) or not all(isinstance(key, dict) for key in keys):
        raise ValueError('no key set: {"keys": [...]}')
    return keys


def _request(url: str) -> urllib.request.Request:
    """A request for the address; user and password in it go into a header, to this host alone.
    Raises ConfigError for what is no address of an HTTP server."""
    try:
        address, credentials = split_credentials(url)
        parts = urllib.parse.urlsplit(address)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError("it is no file: or http(s):")
    except ValueError as error:
        raise ConfigError(f"{_SETTING}: {shown_url(url)}: {error}") from None
    request = urllib.request.Request(address)
    if credentials:
        told = base64.b64encode(credentials.encode()).decode()
        request.add_unredirected_header("Authorization", f"Basic {told}")
    return request


class KeySet:
    """Keys by their id. `close` ends its thread."""

    def __init__(self, url: str, refresh_ms: int) -> None:
        """Raises ConfigError for a file that holds no keys, and for what is no address."""
        self._refresh_s = max(refresh_ms / 1000, 1.0)
        self._keys: list[Key] = []
        self._stamp: tuple[int, int] | None = None
        self._file: Path | None = None
        self._wanted = threading.Event()
        self._closed = threading.Event()
        if url.lower().startswith("file:"):
            self._file = Path(urllib.parse.unquote(urllib.parse.urlsplit(url).path))
            self._read_file()
        else:
            asked = _request(url)
            threading.Thread(
                target=self._run, args=(asked, shown_url(url)), name="jwks", daemon=True
            ).start()

    def keys(self, key_id: str | None) -> list[Key]:
        """Those that a token with this key id, or none, may be signed by."""
        if self._file is not None:
            self._look_at_file()
        keys = self._keys
        if key_id is not None:
            keys = [key for key in keys if key.get("kid") == key_id]
            if not keys:
                self._wanted.set()
        return keys

    def close(self) -> None:
        """Ask no more."""
        self._closed.set()
        self._wanted.set()

    def _look_at_file(self) -> None:
        try:
            self._read_file()
        except ConfigError as error:
            _LOG.error("%s; the keys read before hold", error)

    def _read_file(self) -> None:
        assert self._file is not None
        try:
            found = self._file.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if stamp != self._stamp:
                self._stamp = stamp
                self._keys = parse_keys(self._file.read_bytes())
        except (OSError, ValueError) as error:
            raise ConfigError(f"{_SETTING}: {self._file}: {error}") from None

    def _run(self, asked: urllib.request.Request, shown: str) -> None:
        while not self._closed.is_set():
            wait_s = self._refresh_s
            try:
                with urllib.request.urlopen(asked, timeout=_ANSWER_S) as answer:
                    self._keys = parse_keys(answer.read(_ANSWER_MAX_BYTES))
            except (OSError, ValueError, http.client.HTTPException) as error:
                _LOG.error("no keys from %s: %r", shown, error)
                wait_s = min(_AGAIN_S, self._refresh_s)
            self._wanted.clear()
            if self._closed.wait(min(_UNKNOWN_S, wait_s)):
                return
            self._wanted.wait(max(wait_s - _UNKNOWN_S, 0.0))
