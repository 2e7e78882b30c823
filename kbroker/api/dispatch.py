"""From the bytes of a request to the bytes of its answer.

A request that does not follow its schema closes the connection, as its sender and this broker
disagree on what was said. What a handler raises becomes the answer: the client's own mistake
with its text, a disk error as KAFKA_STORAGE_ERROR, anything else as UNKNOWN_SERVER_ERROR with a
traceback in the log.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from kbroker.api.context import Context, Services
from kbroker.api.registry import Registration, Response
from kbroker.errors import ClientError, DiskError, ErrorCode, code_of
from kbroker.protocol import ApiKey, MalformedRequestError, decode_request, encode_response

_LOG: Final = logging.getLogger("kbroker.api")


class Dispatcher:
    """Answers requests of the control lane; the control thread owns it."""

    def __init__(self, services: Services, table: Mapping[ApiKey, Registration]) -> None:
        self._services = services
        self._table = dict(table)

    def answer(
        self,
        key: int,
        version: int,
        body: bytes,
        *,
        listener: str,
        client_id: str | None = None,
        peer: tuple[str, int] = ("", 0),
    ) -> bytes | None:
        """The body of the answer; None means that the connection is to be closed."""
        entry = self._table.get(key)  # type: ignore[call-overload]  # an IntEnum is its number
        if entry is None or entry.handler is None or not entry.low <= version <= entry.high:
            _LOG.warning("closing %s:%d: API key %d version %d is not served", *peer, key, version)
            return None
        try:
            request = decode_request(entry.key, version, body)
        except MalformedRequestError as error:
            _LOG.warning("closing %s:%d: malformed request: %s", *peer, error)
            return None
        context = Context(self._services, version, listener, client_id, peer)
        return encode_response(entry.key, version, self._handle(entry, request, context))

    def _handle(self, entry: Registration, request: Any, context: Context) -> Response:
        assert entry.handler is not None
        try:
            return entry.handler(request, context)
        except ClientError as error:
            return entry.failed(request, error.code, str(error))
        except (DiskError, OSError) as error:
            _LOG.error("%s: %s", entry.key.name, error)
            code = ErrorCode.KAFKA_STORAGE_ERROR
            return entry.failed(request, code, code.message)
        except Exception as error:
            _LOG.exception("%s v%d failed", entry.key.name, context.version)
            code = code_of(error)
            return entry.failed(request, code, code.message)
