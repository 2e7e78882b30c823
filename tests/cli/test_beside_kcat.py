"""The same letters as kcat: the same bytes out, and the same records in."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable

import pytest

from tests.cli.conftest import Run
from tests.support import wire
from tests.support.kbroker import KbrokerProcess

Kcat = Callable[..., bytes]

ALL = ["-e", "-q", "-Z", "-f", "%k|%K|%s|%S|%T|%h;"]


def binary_lines() -> bytes:
    """KEY:VALUE lines of any bytes, some keys and values empty; none without a byte, which kcat
    passes over."""
    some = random.Random(3)
    lines = []
    for _ in range(300):
        key = some.randbytes(some.randrange(6)).translate(None, b"\n:")
        value = some.randbytes(some.randrange(40)).translate(None, b"\n")
        lines.append(key + b":" + value)
    return b"\n".join([*lines, 'ключ:"значение" \\ / \t'.encode(), b"e:"]) + b"\n"


@pytest.fixture
def filled(kbroker: KbrokerProcess, topic: str, run: Run) -> str:
    """A topic of one partition with records of all kinds."""
    wire.create_topic(kbroker.port, topic)
    run("produce", topic, "-K:", "-Z", "-H", "a=b", "-H", "c", "-H", "d=", stdin=binary_lines())
    run("produce", topic, stdin=b"no key\n")
    return topic


def test_the_same_bytes_out(filled: str, run: Run, kcat: Kcat) -> None:
    for options in (
        [], ["-K:"], ["-D", ";"], ["-K", "\\t", "-D", "\\x01"], ["-Z", "-K", "ab"], ["-uc", "5"],
        ["-f", "%t %p %o %k %K %s %S %T %h %% \\x41\\n\\t"], ["-Z", "-f", "%k|%s|%R"],
        ["-f", "%s"], ["-f", "fixed"], ["-o", "-5"], ["-o", "7", "-c", "3"], ["-o", "end"],
        ["-o", "beginning", "-p", "0", "-q", "-f", "%o,"], ["-f", "%s\\n", "-K", "ignored"],
    ):  # fmt: skip
        theirs = kcat("-C", "-e", "-q", "-t", filled, *options)
        assert run("consume", "-e", "-t", filled, *options).out == theirs, options


def test_numbers_are_unpacked(kbroker: KbrokerProcess, topic: str, run: Run, kcat: Kcat) -> None:
    """As kcat, but for `<`, which kcat 1.7.1 takes for big-endian."""
    wire.create_topic(kbroker.port, topic)
    lines = [struct.pack(">i", 42 - n) + b":" + struct.pack(">iqHb", -n, n << 40, n, -n) + b"tail"
             for n in range(1, 9)]  # fmt: skip
    lines.append(b":" + lines[0][5:])
    run("produce", topic, "-K:", "-Z", "-D", "-#-", stdin=b"-#-".join(lines))
    for options in (
        ["-s", "value=>iqHbs"], ["-s", "value=i q HBs", "-s", "key=i$", "-Z", "-f", "%k %s;"],
        ["-s", "i", "-K:"], ["-s", "key=cch", "-f", "%k=%S "], ["-s", "value=>Q", "-Z", "-D;"],
    ):  # fmt: skip
        theirs = kcat("-C", "-e", "-q", "-t", topic, *options)
        assert run("consume", "-e", "-t", topic, *options).out == theirs, options
    # kcat takes both and unpacks nothing.
    said = run("consume", topic, "-e", "-c", "1", "-J", "-D;;", "-s", "key=i$", "-s", "value=>i")
    assert said.out.endswith(b'"key":"41","payload":"-1"};;')
    little = run("consume", topic, "-e", "-c", "1", "-s", "key=<i", "-f", "%k").out
    assert little == b"%d" % int.from_bytes(struct.pack(">i", 41), "little")
    for form, status, wrong in (
        ("value=i$", 1, "goes on behind byte 4"), ("key=q", 1, "ends before its q"),
        ("value=x", 2, "'value=x': write key=FORM"), ("other=i", 2, "write key=FORM"),
    ):  # fmt: skip
        assert wrong in run("consume", topic, "-eK:", "-s", form, status=status).err


def test_the_same_json_of_text(kbroker: KbrokerProcess, topic: str, run: Run, kcat: Kcat) -> None:
    wire.create_topic(kbroker.port, topic)
    lines = 'ü:"\\/\t{}\nk:\n:v\n'.encode()
    run("produce", topic, "-K:", "-Z", "-H", "a=b", "-H", "c", stdin=lines)
    run("produce", topic, stdin=b"plain\n")
    assert run("consume", topic, "-e", "-J").out == kcat("-C", "-e", "-q", "-t", topic, "-J")


@pytest.mark.parametrize(
    "options",
    [[], ["-K:"], ["-Z", "-K:"], ["-k", "fixed", "-K:"], ["-D", ";"], ["-D", "va"], ["-K", "ab"],
     ["-H", "a=b", "-H", "c"], ["-c", "7"], ["-z", "gzip"]],
    ids=" ".join,
)  # fmt: skip
def test_the_same_records_in(
    kbroker: KbrokerProcess, topic: str, run: Run, kcat: Kcat, options: list[str]
) -> None:
    theirs = f"{topic}-theirs"
    for name in (topic, theirs):
        wire.create_topic(kbroker.port, name)
    lines = b"k1:v1\nk2:\n:v3\nno key\nablab:x;y\nlast:one" + b"\n" * ("-D" not in options)
    kcat("-P", "-t", theirs, *options, stdin=lines)
    run("produce", "-t", topic, *options, stdin=lines)
    shown = [
        kcat("-C", "-e", "-q", "-t", name, "-f", "%k|%s|%K|%S|%h;") for name in (topic, theirs)
    ]
    assert shown[0] == shown[1]
    assert shown[0]


@pytest.mark.parametrize(
    "form", [["-J"], ["-f", "%Q%k%R%s %T %h\\n"]], ids=["json", "sizes"]
)
def test_records_make_the_round(
    kbroker: KbrokerProcess, filled: str, run: Run, kcat: Kcat, form: list[str]
) -> None:
    again = f"{filled}-again"
    wire.create_topic(kbroker.port, again)
    run("produce", again, *form, stdin=run("consume", filled, "-e", *form).out)
    assert kcat("-C", "-t", again, *ALL) == kcat("-C", "-t", filled, *ALL)


def test_json_of_kcat_is_taken(kbroker: KbrokerProcess, filled: str, run: Run, kcat: Kcat) -> None:
    again = f"{filled}-again"
    wire.create_topic(kbroker.port, again)
    run("produce", again, "-J", stdin=kcat("-C", "-e", "-q", "-t", filled, "-J"))
    assert kcat("-C", "-t", again, *ALL) == kcat("-C", "-t", filled, *ALL)


def test_partitions_of_the_input_are_kept_if_asked(
    kbroker: KbrokerProcess, topic: str, run: Run
) -> None:
    wire.create_topic(kbroker.port, topic, 3)
    lines = [json.dumps({"payload": f"{n}", "partition": n % 3}).encode() for n in range(9)]
    run("produce", topic, "-J", "--keep-partitions", stdin=b"\n".join(lines))
    shown = run("consume", topic, "-e", "-f", "%p %s\\n").out.decode().splitlines()
    assert sorted(shown) == sorted(f"{n % 3} {n}" for n in range(9))
    bad = b'{"payload":"a","partition":1}\n{"payload":"b","partition":3}\n'
    told = run("produce", topic, "-J", "--keep-partitions", stdin=bad, status=1)
    assert told.err.splitlines() == [
        f"1 record acknowledged to {topic} partition 1",
        "kbroker: record 2: partition 3, and the topic has 3",
    ]
