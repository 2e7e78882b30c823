"""A man in the middle: a proxy before a broker that may lie in its place.

Frames go both ways; an answer to an API that the test named goes through a function that may
change the frame, hold it back (None), or cut the connection (`CUT`).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import deque
from collections.abc import Callable

from tests.support.frames import read_frame

CUT = b"cut"
Change = Callable[[int, bytes], bytes | None]
Ask = Callable[[int, bytes], bytes]


class Middle:
    """Listens on a port of the kernel's; `to` is the broker's, set before the first connection.

    change(number, answer): `number` counts the answers to `api`; the answer begins with its
    correlation id, without its length; what is returned goes out as it is, length included where
    it begins with b"raw" (the rest is written as given). ask(number, request): the same for
    requests, which it may change.
    """

    def __init__(self, api: int, change: Change, ask: Ask | None = None) -> None:
        self.to = 0
        self.seen = 0
        self._asks = 0
        self._ask = ask
        self._api = api
        self._change = change
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        with self._lock:
            for each in self._sockets:
                _end(each)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                try:
                    broker = socket.create_connection(("127.0.0.1", self.to))
                except OSError:
                    client.close()
                    continue
                with self._lock:
                    self._sockets += [client, broker]
                asked: deque[int] = deque()
                for work in (self._forth, self._back):
                    threading.Thread(target=work, args=(client, broker, asked), daemon=True).start()

    def _forth(self, client: socket.socket, broker: socket.socket, asked: deque[int]) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame = read_frame(client)
                asked.append(struct.unpack_from(">h", frame)[0])
                if self._ask is not None and asked[-1] == self._api:
                    with self._lock:
                        self._asks += 1
                        number = self._asks
                    frame = self._ask(number, frame)
                broker.sendall(struct.pack(">i", len(frame)) + frame)
        _end(client)
        _end(broker)

    def _back(self, client: socket.socket, broker: socket.socket, asked: deque[int]) -> None:
        with contextlib.suppress(OSError, EOFError):
            while True:
                frame: bytes | None = read_frame(broker)
                if asked.popleft() == self._api:
                    with self._lock:
                        self.seen += 1
                        number = self.seen
                    frame = self._change(number, frame or b"")
                if frame == CUT:
                    break
                if frame is not None and frame.startswith(b"raw"):
                    client.sendall(frame[3:])
                elif frame is not None:
                    client.sendall(struct.pack(">i", len(frame)) + frame)
        _end(client)
        _end(broker)


def _end(each: socket.socket) -> None:
    with contextlib.suppress(OSError):
        each.shutdown(socket.SHUT_RDWR)
    each.close()
