"""The way back of one request, whether its handler answers at once or leaves it for later.

Exactly one answer leaves: what comes after the first is told in the log and dropped. A connection
that has gone meanwhile is the data plane's concern, which lets the answer fall. An answer that is
forgotten closes its connection.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol, TypeVar

from kbroker.api.registry import Registration, Response
from kbroker.errors import ErrorCode
from kbroker.offload import Asker, Offload
from kbroker.operations import Completion, GoneError, Meter, settle
from kbroker.protocol import Answered, encode_response

_LOG: Final = logging.getLogger("kbroker.api")
SMALL_BYTES: Final = 64 << 10
"""Of a body that is decoded at once: in a few ms at the most."""
_SMALL_ELEMENTS: Final = 1_000
"""Of the arrays in an answer that is encoded at once, in some ms; so is one to a small request that
failed as a whole."""

T = TypeVar("T")

Failing = Callable[[ErrorCode, str], Response]


class RequestPort(Protocol):
    """A request of the control lane (kbroker.ext.control.Request)."""

    @property
    def api_key(self) -> int: ...
    @property
    def api_version(self) -> int: ...
    @property
    def body(self) -> bytes: ...
    @property
    def listener(self) -> str: ...
    @property
    def client_id(self) -> str | None: ...
    @property
    def peer(self) -> tuple[str, int]: ...
    @property
    def principal(self) -> int: ...
    @property
    def open(self) -> bool: ...
    @property
    def gone(self) -> bool: ...
    @property
    def state(self) -> bytes: ...
    @property
    def software(self) -> tuple[str, str]: ...
    def remember(self, state: bytes, tokens: bool = False) -> None: ...
    def identify(self, principal: int, session_ms: int = 0) -> None: ...
    def refuse(self, body: bytes | None, delay_ms: int = 0) -> None: ...
    def respond_nothing(self) -> None: ...
    def respond(self, body: bytes) -> None: ...
    def respond_when(
        self, log: Any, offset: int, body: bytes, failed: bytes, timeout_ms: int
    ) -> None: ...
    def respond_when_all(
        self, places: list[tuple[Any, int]], body: bytes, failed: bytes, timeout_ms: int
    ) -> None: ...
    def transaction(self) -> tuple[str, int, int, list[tuple[str, int]]]: ...
    def asked(self, version: int) -> list[tuple[int, str]]: ...
    def settle(self, allowed: list[bool], version: int) -> None: ...
    def go_on(self) -> None: ...
    def proceed(self, errors: dict[tuple[str, int], int]) -> None: ...
    def throttle(self, least_ms: int) -> int: ...
    def handled(self, used_ns: int = -1) -> None: ...
    def close(self) -> None: ...


def asker_of(request: RequestPort) -> Asker:
    """The client of a request among others: connections of one address and principal share."""
    return Asker((request.peer[0], request.principal), lambda: request.gone)


class AnswerServices(Protocol):
    """The parts of the broker that an answer uses."""

    @property
    def answered(self) -> Answered: ...
    @property
    def offload(self) -> Offload: ...


class Parked:
    """Requests that wait for their answers, and the bytes that they hold meanwhile."""

    def __init__(self) -> None:
        self.requests = 0
        self.bytes = 0

    def add(self, size: int) -> None:
        """A request began to wait."""
        self.requests += 1
        self.bytes += size

    def remove(self, size: int) -> None:
        """It was answered."""
        self.requests -= 1
        self.bytes -= size


class RequestAnswer:
    """The answer of one request; the contract is kbroker.group.outcome.Answer."""

    __slots__ = ("_answered", "_entry", "_failing", "_gone", "_held", "_large", "_offload",
                 "_parked", "_request", "_size", "_throttle_ms", "_version", "meter")  # fmt: skip

    def __init__(
        self, request: RequestPort, entry: Registration, entity: Any, services: AnswerServices
    ) -> None:
        self._request: RequestPort | None = request
        self._answered = services.answered
        self._offload = services.offload
        self._large = len(request.body) > SMALL_BYTES
        self._held = len(request.body) if self._large else 0
        self.meter: Meter | None = None
        """The time of its operation; None: it has none."""
        self._entry = entry
        self._version = request.api_version
        self._size = len(request.body)
        self._parked: Parked | None = None
        self._throttle_ms = 0
        self._gone = False
        self._failing: Failing = lambda code, message: entry.failed(entity, code, message)

    @property
    def api(self) -> str:
        """The name of the API."""
        return self._entry.key.name

    @property
    def given(self) -> bool:
        """Whether the answer has left."""
        return self._request is None

    @property
    def open(self) -> bool:
        """Whether the client had said who it is, or need not, when it asked."""
        return self._request is not None and self._request.open

    @property
    def gone(self) -> bool:
        """Whether the client has gone before it was answered."""
        request = self._request
        if request is not None and request.gone:
            self._gone = True
        return self._gone

    @property
    def state(self) -> bytes:
        """What its connection remembers of authentication."""
        return b"" if self._request is None else self._request.state

    def remember(self, state: bytes, *, tokens: bool = False) -> None:
        """Before the answer: what the connection is to remember (kbroker.ext.control)."""
        if self._request is not None:
            self._request.remember(state, tokens)

    def identify(self, principal: int, session_ms: int = 0) -> None:
        """Before the answer: whose connection it is from here on (kbroker.ext.control)."""
        if self._request is not None:
            self._request.identify(principal, session_ms)

    def refuse(self, response: Response, delay_ms: int) -> None:
        """Answer, then close the connection, both after a while."""
        request = self._take()
        if request is not None:
            self._respond(
                request,
                lambda: self._encode(response, 0),
                lambda body: request.refuse(body, delay_ms),
                large=False,
            )

    def close(self) -> None:
        """Close the connection in place of an answer."""
        request = self._take()
        if request is not None:
            request.close()

    def failing(self, make: Failing) -> None:
        """What a failure answers, in the place of what the handler's registration says."""
        self._failing = make

    def throttle(self, milliseconds: int) -> None:
        """The client is over a quota: it is told, and not read for so long after the answer."""
        self._throttle_ms = milliseconds

    def park(self, parked: Parked) -> None:
        """Count the request as one that waits, until it is answered; the control thread's time for
        it is over."""
        if self._request is not None and self.meter is None:
            self._request.handled()
        self._release()
        self._parked = parked
        parked.add(self._size)

    def send(self, response: Response) -> None:
        """Answer at once."""
        request = self._take()
        if request is not None:
            self._answer(request, lambda: response, large=self._is_large(response))

    def send_when(self, log: Any, offset: int, response: Response, timeout_ms: int) -> None:
        """Answer when `log` is durable up to `offset`, with NOT_COORDINATOR when it never will be
        or is not in time (and is counted as `response`)."""
        self.send_when_all([(log, offset)], response, timeout_ms)

    def send_when_all(
        self, places: list[tuple[Any, int]], response: Response, timeout_ms: int
    ) -> None:
        """The same for several logs, each durable up to its offset."""
        request = self._take()
        if request is None:
            return
        code = ErrorCode.NOT_COORDINATOR
        throttle_ms = self._throttled_ms(request)

        def encode() -> tuple[bytes, bytes]:
            failed = self._encode(self._failing(code, code.message), throttle_ms)
            return self._encode(response, throttle_ms), failed

        def respond(bodies: tuple[bytes, bytes]) -> None:
            if len(places) == 1:
                request.respond_when(*places[0], *bodies, timeout_ms)
            else:
                request.respond_when_all(places, *bodies, timeout_ms)

        self._respond(request, encode, respond, large=self._is_large(response))

    def fail(self, code: ErrorCode, message: str | None = None) -> None:
        """Answer that the request failed as a whole."""
        request = self._take()
        if request is not None:
            text = code.message if message is None else message
            self._answer(request, lambda: self._failing(code, text), large=self._large)

    def _answer(
        self, request: RequestPort, make: Callable[[], Response], *, large: bool
    ) -> None:
        throttle_ms = self._throttled_ms(request)
        self._respond(
            request, lambda: self._encode(make(), throttle_ms), request.respond, large=large
        )

    def _throttled_ms(self, request: RequestPort) -> int:
        if self.meter is not None:
            request.handled(self.meter.used_ns)
        return request.throttle(self._throttle_ms)

    def _is_large(self, response: Response) -> bool:
        return self._large or _elements(response, _SMALL_ELEMENTS) < 0

    def _encode(self, response: Response, throttle_ms: int) -> bytes:
        """Encode a response, and count its error codes."""
        if throttle_ms:
            response = {**response, "throttle_time": throttle_ms}
        self._answered.add(self._entry.key, self._version, response)
        return encode_response(self._entry.key, self._version, response)

    def _respond(
        self,
        request: RequestPort,
        encode: Callable[[], T],
        respond: Callable[[T], None],
        *,
        large: bool,
    ) -> None:
        """Encode, on another thread where that takes long, and respond."""
        encoded: Completion[T] = Completion()
        if large:
            encoded = self._offload.run(encode, asker_of(request), encodes=True)
        else:
            settle(encoded, encode)

        def on_done(encoded: Completion[T]) -> None:
            try:
                respond(encoded.result())
            except GoneError:
                request.close()
            except Exception:
                _LOG.exception("%s v%d: no answer", self._entry.key.name, self._version)
                request.close()

        encoded.on_done(on_done)

    def _take(self) -> RequestPort | None:
        request, self._request = self._request, None
        if request is None:
            _LOG.error("%s v%d is answered twice", self._entry.key.name, self._version,
                       stack_info=True)  # fmt: skip
        if self._parked is not None:
            self._parked.remove(self._size)
            self._parked = None
        self._release()
        return request

    def _release(self) -> None:
        """What was decoded of a large request is not needed any more, or counts as parked."""
        if self._held:
            self._offload.release(self._held)
            self._held = 0


def _elements(value: Mapping[str, Any], left: int) -> int:
    """Take the elements of all arrays in a response off `left`, until that is below 0."""
    for field in value.values():
        if isinstance(field, list | tuple):
            left -= len(field)
            if left < 0:
                return left
            for element in field:
                if isinstance(element, Mapping):
                    left = _elements(element, left)
                    if left < 0:
                        return left
    return left
