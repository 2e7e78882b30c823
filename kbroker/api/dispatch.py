"""From the bytes of a request to the bytes of its answer.

A request that does not follow its schema closes the connection, as its sender and this broker
disagree on what was said. What a handler raises becomes the answer: the client's own mistake
with its text, a disk error as KAFKA_STORAGE_ERROR, anything else as UNKNOWN_SERVER_ERROR with a
traceback in the log.

A handler that returns DEFERRED has handed its request's answer on. Requests that wait so are
bounded in number and bytes: above that what may wait (`parks` in its registration) is refused with
an error that makes the client ask again, and everything else goes on.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any, Final

from kbroker.api.answer import Parked, RequestAnswer, RequestPort
from kbroker.api.context import Context, Services
from kbroker.api.data_rights import settle_rights
from kbroker.api.registry import Left, Registration, inner_table
from kbroker.bounded_log import BoundedLog
from kbroker.errors import ClientError, DiskError, ErrorCode, code_of
from kbroker.group.outcome import DEFERRED
from kbroker.limits import PARKED_REQUESTS_MAX_BYTES, PARKED_REQUESTS_MAX_COUNT
from kbroker.protocol import ApiKey, MalformedRequestError, decode_request

_LOG: Final = logging.getLogger("kbroker.api")


class Dispatcher:
    """Answers requests of the control lane; the control thread owns it."""

    def __init__(self, services: Services, table: Mapping[ApiKey, Registration]) -> None:
        self._services = services
        self._table = dict(table)
        self._inner = inner_table()
        self.parked = Parked()
        self._closed = BoundedLog(_LOG, services.clock)

    def serve(self, request: RequestPort) -> None:
        """Answer a request, close its connection, or see it answered later."""
        key, version = request.api_key, request.api_version
        entry = self._table.get(key)  # type: ignore[call-overload]  # an IntEnum is its number
        if entry is not None and entry.left is not None:
            self._take_over(entry.left, request)
            return
        if (key, version) in self._inner:
            self._take_over(self._inner[key, version], request)
            return
        if entry is None or entry.handler is None or not entry.low <= version <= entry.high:
            self._closed.tell(
                logging.WARNING,
                "closing %s:%d: API key %d version %d is not served",
                *request.peer,
                key,
                version,
            )
            request.close()
            return
        try:
            entity = decode_request(entry.key, version, request.body)
        except MalformedRequestError as error:
            self._tell_malformed(request.peer, error)
            request.close()
            return
        settle_rights(request, self._services)
        answer = RequestAnswer(request, entry, entity, self._services.answered)
        context = Context(
            self._services,
            version,
            request.listener,
            request.client_id,
            request.peer,
            answer,
            request.principal,
            request.software,
        )
        self._handle(entry, entity, context, answer)

    def tell_dropped(self) -> None:
        """How many lines on requests that cannot be read were too many; about once a second."""
        self._closed.tell_dropped()

    def _tell_malformed(self, peer: tuple[str, int], error: MalformedRequestError) -> None:
        self._closed.tell(logging.WARNING, "closing %s:%d: malformed request: %s", *peer, error)

    def _take_over(self, take: Left, request: RequestPort) -> None:
        """What the data plane asks, or leaves of a request."""
        try:
            take(request, self._services)
        except Exception:
            _LOG.exception("API key %d v%d failed", request.api_key, request.api_version)
            request.close()

    def _handle(
        self, entry: Registration, request: Any, context: Context, answer: RequestAnswer
    ) -> None:
        assert entry.handler is not None
        try:
            if entry.parks and self._is_full():
                raise ClientError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            response = entry.handler(request, context)
        except MalformedRequestError as error:
            self._tell_malformed(context.peer, error)
            answer.close()
        except ClientError as error:
            answer.fail(error.code, str(error))
        except (DiskError, OSError) as error:
            _LOG.error("%s: %s", entry.key.name, error)
            answer.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        except Exception as error:
            _LOG.exception("%s v%d failed", entry.key.name, context.version)
            answer.fail(code_of(error))
        else:
            if response is not DEFERRED:
                answer.send(response)
            elif not answer.given:
                answer.park(self.parked)

    def _is_full(self) -> bool:
        return (
            self.parked.requests >= PARKED_REQUESTS_MAX_COUNT
            or self.parked.bytes >= PARKED_REQUESTS_MAX_BYTES
        )
