"""The pytest plugin in sessions of pytest's own, each a process: brokers, reports, leftovers.

What is left behind is looked for by path and by process: temporary folders go below one folder of
the test's own, which the command lines of a broker and of its keeper name.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import pages
from tests.support.tree import ROOT
from tests.support.waits import wait_for

pytest_plugins = ["pytester"]

PAGE = ROOT / "docs" / "testing.md"
QUIET = ("-p", "no:cacheprovider", "-p", "no:hypothesispytest")
GONE_S = 20.0


class Temporary:
    """Where the sessions of a test have their temporary folders."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def processes(self) -> list[int]:
        """Those whose command line names the folder."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            try:
                if os.fsencode(self.folder) in path.read_bytes():
                    found.append(int(path.parent.name))
            except OSError:
                continue
        return found

    def homes(self) -> list[Path]:
        return list(self.folder.glob("kbroker-*"))

    def is_empty(self) -> bool:
        return not self.processes() and not self.homes()


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Temporary:
    made = Temporary(tmp_path / "temporary")
    monkeypatch.setenv("TMPDIR", str(made.folder))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    return made


BROKERS = """
    import os
    import pytest
    from kbroker.client.errors import UnknownTopicOrPartitionError
    from kbroker.testing import Broker, BrokerFailedError

    seen = set()

    @pytest.mark.parametrize("turn", range(2))
    def test_each_has_its_own(kbroker, turn):
        assert kbroker.pid not in seen
        seen.add(kbroker.pid)
        with pytest.raises(UnknownTopicOrPartitionError):
            kbroker.records("orders")
        told = kbroker.produce("orders", "one", "k", headers={"h": b"1"}, timestamp_ms=7)
        assert told.offset == 0
        (record,) = kbroker.records("orders")
        assert (record.key, record.value, record.timestamp) == (b"k", b"one", 7)
        assert record.headers == (("h", b"1"),)

    def test_restart_and_kill(kbroker):
        topic = kbroker.topic(partitions=2, configs={"retention.ms": "1000000"})
        address, pid = kbroker.bootstrap_servers, kbroker.pid
        kbroker.produce(topic, b"one", partition=1)
        kbroker.restart()
        assert kbroker.pid != pid
        kbroker.produce(topic, b"two", partition=0)
        kbroker.kill()
        assert not kbroker.is_running()
        with pytest.raises(BrokerFailedError, match="does not run now"):
            kbroker.produce(topic, b"three")
        kbroker.restart()
        assert kbroker.bootstrap_servers == address
        assert [record.value for record in kbroker.records(topic)] == [b"two", b"one"]
        kbroker.stop()
        kbroker.start()
        assert len(kbroker.records(topic, 2)) == 2
        with pytest.raises(BrokerFailedError, match="runs already"):
            kbroker.start()

    def test_waiting_for_records(kbroker):
        with pytest.raises(TimeoutError, match="1 records after 0.3 s, not 2"):
            kbroker.produce("few", b"one")
            kbroker.records("few", 2, timeout_s=0.3)

    def test_session(kbroker_session):
        kbroker_session.produce("kept", b"1")

    def test_the_same_session(kbroker_session, kbroker):
        assert len(kbroker_session.records("kept")) == 1
        assert kbroker_session.pid != kbroker.pid
        assert kbroker_session.settings["num.partitions"] == "3"

    @pytest.mark.kbroker({"num.partitions": 5, "auto.create.topics.enable": False})
    class TestSettings:
        @pytest.mark.kbroker(num_partitions=2)
        def test_the_nearest_wins(self, kbroker):
            assert kbroker.settings["num.partitions"] == "2"
            assert kbroker.settings["auto.create.topics.enable"] == "false"
            assert len(kbroker.data_dir.parts) > 2 and kbroker.data_dir.is_dir()

    def test_one_that_nobody_closes():
        Broker().start()
"""


def run(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    return pytester.runpytest_subprocess(*QUIET, *arguments, timeout=120)


def test_brokers(pytester: pytest.Pytester, temporary: Temporary):
    pytester.makeini("[pytest]\nkbroker_settings =\n    num.partitions = 3\n")
    pytester.makepyfile(BROKERS)
    result = run(pytester, "--strict-markers", "-Werror")
    result.assert_outcomes(passed=8)
    assert temporary.is_empty()


def test_settings_of_the_shell_do_not_reach_the_broker(
    pytester: pytest.Pytester, temporary: Temporary, monkeypatch: pytest.MonkeyPatch
):
    """KBROKER_NUM_PARTITIONS is a setting for `kbroker start`."""
    monkeypatch.setenv("KBROKER_NUM_PARTITIONS", "7")
    monkeypatch.setenv("KBROKER_LOG_RETENTION_MZ", "mistyped, which ends a start")
    pytester.makepyfile("""
        from kbroker.client import Admin

        def test_partitions(kbroker):
            with Admin(bootstrap_servers=kbroker.bootstrap_servers) as admin:
                admin.create_topic("t")
                assert len(admin.describe_topics(["t"])["t"].partitions) == 1
    """)
    run(pytester).assert_outcomes(passed=1)


@pytest.mark.long
def test_the_page(pytester: pytest.Pytester, temporary: Temporary):
    (ini,) = pages.blocks(PAGE, "ini")
    assert "auto.create.topics.enable=false" in ini.code
    pytester.makeini(ini.code.replace("enable=false", "enable=true"))
    for block in pages.blocks(PAGE):
        pytester.makepyfile(**{f"test_line_{block.line}": block.code})
    result = run(pytester, "--strict-markers")
    result.assert_outcomes(passed=7)
    assert temporary.is_empty()


FAILING = """
    import os, signal, sys
    import pytest

    def test_that_fails(kbroker):
        kbroker.restart()
        assert False

    def test_that_has_nothing_to_do_with_it(kbroker_session):
        pass

    def test_that_fails_quietly():
        assert False

    @pytest.fixture
    def application(kbroker):
        raise RuntimeError("no application")

    def test_of_the_application(application):
        pass

    @pytest.mark.kbroker(log_segment_bytes="many")
    def test_that_cannot_start(kbroker):
        pass

    @pytest.mark.kbroker({"listeners": "PLAINTEXT://0.0.0.0:9092"})
    def test_with_a_port(kbroker):
        pass

    @pytest.mark.kbroker(num_partitions=2)
    def test_with_a_marker_for_nothing(kbroker_session):
        pass

    def test_in_which_it_dies(kbroker):
        os.kill(kbroker.pid, signal.SIGABRT)
        kbroker._process.wait()
"""


def test_what_goes_wrong_is_told(pytester: pytest.Pytester, temporary: Temporary):
    pytester.makepyfile(FAILING)
    result = run(pytester, "-rA")
    result.assert_outcomes(passed=2, failed=2, errors=5)
    text = result.stdout.str()
    parts = {}
    for part in text.split("\n____")[1:]:
        title, _, body = part.partition("\n")
        parts[title.strip("_ ").rpartition(" ")[2]] = body.partition("\n====")[0]
    assert "log of kbroker 127.0.0.1:" in parts["test_that_fails"]
    assert "level=info" in parts["test_that_fails"]
    assert "log of kbroker" not in parts["test_that_fails_quietly"]
    assert "no application" in parts["test_of_the_application"]
    start = parts["test_that_cannot_start"]
    assert "the broker ended with status 78" in start and "log.segment.bytes" in start
    assert "many" in start and "Traceback" not in start
    assert "listeners: a test's broker has its own" in parts["test_with_a_port"]
    assert "kbroker_settings" in parts["test_with_a_marker_for_nothing"]
    died = parts["test_in_which_it_dies"]
    assert "the broker ended with signal SIGABRT" in died and "Fatal Python error: Aborted" in died
    assert temporary.is_empty()


def test_an_ini_file_that_is_wrong(pytester: pytest.Pytester, temporary: Temporary):
    pytester.makeini("[pytest]\nkbroker_settings = num.partitions\n")
    pytester.makepyfile("def test(kbroker): pass")
    result = run(pytester)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*kbroker_settings: 'num.partitions' is not KEY=VALUE*"])
    assert temporary.is_empty()


LONG = """
    import pathlib, signal, threading
    import pytest

    @pytest.fixture
    def left(kbroker):
        yield
        kbroker.produce("torn-down", b"1")
        assert len(kbroker.records("torn-down")) == 1
        pathlib.Path("torn-down").touch()

    def test_long(kbroker_session, kbroker, left):
        # What a broker's thread would be to PR_SET_PDEATHSIG: it was started by one that ended.
        starter = threading.Thread(target=kbroker.restart)
        starter.start()
        starter.join()
        kbroker.produce("t", b"1")
        pathlib.Path("ready").touch()
        signal.pause()
"""


def start_long(pytester: pytest.Pytester, temporary: Temporary) -> subprocess.Popen[bytes]:
    """pytest in the middle of a test with two brokers, as the leader of a process group."""
    pytester.makepyfile(LONG)
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *QUIET], cwd=pytester.path, process_group=0,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    ready = pytester.path / "ready"
    wait_for("the test", lambda: ready.exists() or process.poll() is not None, 60)
    assert process.poll() is None, process.communicate()[0].decode()
    assert len(temporary.processes()) == 3  # two brokers and their keeper
    assert len(temporary.homes()) == 1
    return process


def test_ctrl_c(pytester: pytest.Pytester, temporary: Temporary):
    """The terminal's: to the process group. The teardown still has its broker."""
    process = start_long(pytester, temporary)
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, said.decode()
    assert temporary.is_empty()
    assert (pytester.path / "torn-down").exists(), said.decode()


def test_a_session_that_is_killed(pytester: pytest.Pytester, temporary: Temporary):
    process = start_long(pytester, temporary)
    process.kill()
    process.communicate(timeout=60)
    wait_for("everything to be gone", temporary.is_empty, GONE_S)


def test_a_start_that_is_interrupted(pytester: pytest.Pytester, temporary: Temporary):
    """Ctrl-C while the fixture waits for its broker, which is not there yet."""
    pytester.makepyfile("def test(kbroker): pass")
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *QUIET], cwd=pytester.path, process_group=0,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
    )  # fmt: skip
    wait_for("the broker's process", lambda: len(temporary.processes()) == 2, 60, pause_s=0.002)
    os.killpg(process.pid, signal.SIGINT)
    said, _ = process.communicate(timeout=60)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, said.decode()
    wait_for("everything to be gone", temporary.is_empty, GONE_S)


WORKERS = """
    import json, os, pathlib, signal, threading
    import pytest

    @pytest.mark.parametrize("number", range(2))
    def test_worker(kbroker_session, worker_id, number):
        kbroker_session.produce("mine", worker_id)
        told = {"pid": kbroker_session.pid, "of": os.getpid(),
                "values": [one.value.decode() for one in kbroker_session.records("mine")]}
        pathlib.Path(worker_id).write_text(json.dumps(told))
        while len(list(pathlib.Path.cwd().glob("gw?"))) < 2:  # so that each worker has one
            threading.Event().wait(0.01)
        if pathlib.Path("stay").exists():
            signal.pause()
"""


def test_workers_of_xdist(pytester: pytest.Pytester, temporary: Temporary):
    pytester.makepyfile(WORKERS)
    run(pytester, "-n", "2").assert_outcomes(passed=2)
    told = [json.loads((pytester.path / name).read_text()) for name in ("gw0", "gw1")]
    assert [one["values"] for one in told] == [["gw0"], ["gw1"]]
    assert told[0]["pid"] != told[1]["pid"]
    assert temporary.is_empty()


def test_workers_that_are_killed(pytester: pytest.Pytester, temporary: Temporary):
    """The whole run with its workers, by kill -9."""
    pytester.makepyfile(WORKERS)
    (pytester.path / "stay").touch()
    process = subprocess.Popen(
        [sys.executable, "-m", "pytest", *QUIET, "-n", "2"], cwd=pytester.path, process_group=0,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    wait_for("both workers", lambda: len(list(pytester.path.glob("gw?"))) == 2, 60)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    wait_for("everything to be gone", temporary.is_empty, GONE_S)


def test_who_does_not_use_it_does_not_load_it(pytester: pytest.Pytester, temporary: Temporary):
    pytester.makepyfile(
        """
        import sys

        def test_unloaded(request):
            assert request.config.pluginmanager.has_plugin("kbroker")
            loaded = {name for name in sys.modules if name.split(".")[0] == "kbroker"}
            assert loaded == {"kbroker", "kbroker.pytest_plugin"}
            assert not {"asyncio", "kio"} & set(sys.modules)
        """
    )
    run(pytester).assert_outcomes(passed=1)
    run(pytester, "-p", "no:kbroker").assert_outcomes(failed=1)
