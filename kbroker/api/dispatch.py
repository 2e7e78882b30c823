"""Request dispatch: from the bytes of a request to the bytes of its answer.

A request that does not follow its schema closes the connection, as its sender and this broker
disagree on what was said. What a handler raises becomes the answer: the client's own mistake
with its text, a disk error as KAFKA_STORAGE_ERROR, anything else as UNKNOWN_SERVER_ERROR with a
traceback in the log.

A handler answers in one of three ways. It returns its response. It is a generator, or returns a
Completion: then the request is an operation (kbroker.operations) that the control thread runs in
slices, with the client's deadline. Or it returns DEFERRED and has handed its answer on. Requests
that wait in that third way are bounded in number and bytes: above that what may wait (`parks` in
its registration) is refused with an error that makes the client ask again, and everything else goes
on.

Decoding a large body takes long, and is left to another thread.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final

from kbroker.api.answer import SMALL_BYTES, Parked, RequestAnswer, RequestPort, asker_of
from kbroker.api.context import Context, Services
from kbroker.api.data_rights import settle_rights
from kbroker.api.registry import Left, Registration, Response, inner_table
from kbroker.bounded_log import BoundedLog
from kbroker.errors import ClientError, DiskError, ErrorCode, code_of
from kbroker.group.outcome import DEFERRED
from kbroker.limits import PARKED_REQUESTS_MAX_BYTES, PARKED_REQUESTS_MAX_COUNT
from kbroker.operations import Completion, GoneError, Meter, OperationTimeoutError, Steps
from kbroker.printable import host_port
from kbroker.protocol import ApiKey, MalformedRequestError, decode_request

_READS: Final = frozenset({
    ApiKey.METADATA, ApiKey.OFFSET_FETCH, ApiKey.DESCRIBE_GROUPS, ApiKey.LIST_GROUPS,
    ApiKey.OFFSET_FOR_LEADER_EPOCH, ApiKey.DESCRIBE_ACLS, ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS, ApiKey.DESCRIBE_CLIENT_QUOTAS,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TRANSACTIONS, ApiKey.LIST_TRANSACTIONS, ApiKey.CONSUMER_GROUP_DESCRIBE,
    ApiKey.LIST_CONFIG_RESOURCES, ApiKey.DESCRIBE_TOPIC_PARTITIONS,
})  # fmt: skip
"""APIs that leave nothing behind, and are cancelled when their client is gone."""
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
                "closing %s: API key %d version %d is not served",
                host_port(*request.peer),
                key,
                version,
            )
            request.close()
            return
        if len(request.body) <= SMALL_BYTES:
            self._decoded(entry, request, lambda: decode_request(entry.key, version, request.body))
            return
        body = request.body
        decoded = self._services.offload.run(
            lambda: decode_request(entry.key, version, body),
            asker_of(request),
            holds=len(body),
        )
        decoded.on_done(lambda done: self._decoded_large(entry, request, done))

    def _decoded_large(
        self, entry: Registration, request: RequestPort, decoded: Completion[Any]
    ) -> None:
        if decoded.error is not None:
            self._services.offload.release(len(request.body))
        self._decoded(entry, request, decoded.result)

    def _decoded(
        self, entry: Registration, request: RequestPort, entity_of: Callable[[], Any]
    ) -> None:
        try:
            entity = entity_of()
        except MalformedRequestError as error:
            self._tell_malformed(request.peer, error)
            request.close()
            return
        except GoneError:
            request.close()
            return
        settle_rights(request, self._services)
        answer = RequestAnswer(request, entry, entity, self._services)
        context = Context(
            self._services,
            request.api_version,
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
        self._closed.tell(
            logging.WARNING, "closing %s: malformed request: %s", host_port(*peer), error
        )

    def _take_over(self, take: Left, request: RequestPort) -> None:
        """What the data plane asks, or leaves of a request."""
        try:
            take(request, self._services)
            request.handled()
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
            deadline_ms = self._deadline_ms(entry, request, context)
            response = entry.handler(request, context)
        except Exception as error:
            self._fail(entry, context, answer, error)
            return
        if isinstance(response, Mapping):
            self._respond(response, answer)
        else:
            self._start(entry, response, context, answer, deadline_ms)

    def _deadline_ms(self, entry: Registration, request: Any, context: Context) -> int | None:
        if entry.timeout is None:
            return None
        timeout_ms = entry.timeout(request, context)
        if timeout_ms <= 0:
            raise OperationTimeoutError
        return self._services.clock.monotonic_ms() + timeout_ms

    def _start(
        self,
        entry: Registration,
        outcome: Steps[Response | Completion[Response]] | Completion[Response],
        context: Context,
        answer: RequestAnswer,
        deadline_ms: int | None,
    ) -> None:
        def on_end(response: Any, error: BaseException | None) -> None:
            if isinstance(error, Exception):
                self._fail(entry, context, answer, error)
            else:
                self._respond(response, answer)

        answer.meter = Meter()
        steps: Steps[Response | Completion[Response]]
        steps = _waiting_for(outcome) if isinstance(outcome, Completion) else outcome

        def gone() -> bool:
            return answer.gone

        if entry.changes:
            steps = _waiting_for(
                self._services.changes.run(steps, deadline_ms, answer.meter, gone)
            )
        self._services.operations.start(
            _response_of(steps),
            on_end,
            on_cancel=answer.close,
            deadline_ms=deadline_ms,
            meter=answer.meter,
            gone=gone if entry.changes or entry.key in _READS else None,
        )

    def drop_gone(self) -> None:
        """Drop what clients that are gone wait for; about once a second."""
        self._services.operations.drop_gone()
        self._services.offload.drop_gone()

    def _respond(self, response: Response, answer: RequestAnswer) -> None:
        if response is not DEFERRED:
            answer.send(response)
        elif not answer.given:
            answer.park(self.parked)

    def _fail(
        self, entry: Registration, context: Context, answer: RequestAnswer, error: Exception
    ) -> None:
        if isinstance(error, MalformedRequestError):
            self._tell_malformed(context.peer, error)
            answer.close()
        elif isinstance(error, ClientError):
            answer.fail(error.code, str(error))
        elif isinstance(error, DiskError | OSError):
            _LOG.error("%s: %s", entry.key.name, error)
            answer.fail(ErrorCode.KAFKA_STORAGE_ERROR)
        else:
            _LOG.error("%s v%d failed", entry.key.name, context.version, exc_info=error)
            answer.fail(code_of(error))

    def _is_full(self) -> bool:
        return (
            self.parked.requests >= PARKED_REQUESTS_MAX_COUNT
            or self.parked.bytes >= PARKED_REQUESTS_MAX_BYTES
        )


def _waiting_for(completion: Completion[Any]) -> Steps[Any]:
    return (yield completion)


def _response_of(steps: Steps[Response | Completion[Response]]) -> Steps[Response]:
    """The steps of a handler that return its response, or the completion of it."""
    response = yield from steps
    if isinstance(response, Completion):
        response = yield response
    return response
