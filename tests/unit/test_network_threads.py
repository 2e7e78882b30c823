"""The threads of an engine: added while it runs, left idle, and which nice value they have."""

import os
import threading
from contextlib import ExitStack, suppress
from pathlib import Path

from kbroker.ext import testing_network as handlers
from tests.support.engine import Client, engine_port, running_engine
from tests.support.waits import wait_for


def nice_by_name() -> dict[str, int]:
    """Of this process's threads; some may end while they are looked at."""
    found = {}
    for task in Path("/proc/self/task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            name = (task / "comm").read_text().strip()
            found[name] = os.getpriority(os.PRIO_PROCESS, int(task.name))
    return found


def names_of_threads() -> set[str]:
    return set(nice_by_name())


def test_threads_are_added_and_left_idle_while_the_engine_runs():
    """More: they get connections and jobs. Fewer: new ones go to the first, old ones are served."""
    with running_engine({"num.network.threads": 1, "num.io.threads": 1}) as engine:
        assert not {"kbroker-net-1", "kbroker-io-1"} & names_of_threads()
        with ExitStack() as clients:

            def connect(count: int) -> list[Client]:
                made = [clients.enter_context(Client(engine_port(engine))) for _ in range(count)]
                for client in made:
                    assert client.call(handlers.ECHO, 1, b"net") == b"net"
                    assert client.call(handlers.ON_IO, 2, b"io") == b"io"
                return made

            first = connect(3)
            for network, io in ((4, 5), (1, 1), (2, 3), (4, 5), (1, 1)):
                engine.resize(network, io)
                first += connect(6)
                for client in first:
                    assert client.call(handlers.ECHO, 3, b"net") == b"net"
                    assert client.call(handlers.ON_IO, 4, b"io") == b"io"
            wanted = {f"kbroker-net-{n}" for n in range(4)} | {f"kbroker-io-{n}" for n in range(5)}
            wait_for("their names", lambda: wanted <= names_of_threads(), 10)
        engine.stop(2000)
        engine.resize(8, 8)
        assert not wanted & names_of_threads(), "nothing is started after a stop"


def test_threads_that_are_added_have_the_nice_value_of_the_others():
    """Who asks for them has another nice value; the engine's threads all have the process's."""
    own = os.getpriority(os.PRIO_PROCESS, threading.get_native_id())
    with running_engine({"num.network.threads": 1, "num.io.threads": 1}) as engine:

        def ask() -> None:
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), min(own + 5, 19))
            engine.resize(3, 3)

        asking = threading.Thread(target=ask)
        asking.start()
        asking.join()
        wanted = {f"kbroker-{kind}-{n}" for n in range(3) for kind in ("net", "io")}
        wait_for("their names", lambda: wanted <= names_of_threads(), 10)
        assert {nice_by_name()[name] for name in wanted} == {own}


def test_threads_are_asked_for_while_the_acceptor_ends():
    for _ in range(20):
        with running_engine({"num.network.threads": 1}) as engine:
            ending = threading.Thread(target=engine.stop_accepting)
            ending.start()
            engine.resize(2, 2)
            ending.join()
            engine.resize(3, 3)
            wait_for("the third", lambda: "kbroker-net-2" in names_of_threads(), 10)
