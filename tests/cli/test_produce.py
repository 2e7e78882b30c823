"""`kbroker produce`: forms of input, what fails, what is told."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

import confluent_kafka
import pytest

from kbroker.client import Consumer, Producer
from tests.cli.conftest import Run, Start
from tests.support import wire
from tests.support.kbroker import KbrokerProcess
from tests.support.waits import wait_for


@pytest.fixture
def one(kbroker: KbrokerProcess, topic: str) -> str:
    """A topic of one partition."""
    wire.create_topic(kbroker.port, topic)
    return topic


def shown(run: Run, topic: str, form: str = "%k|%s;") -> str:
    return run("consume", topic, "-e", "-Z", "-f", form).out.decode()


def test_files_are_records_and_lines_of_them_too(run: Run, one: str, tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a\nb\n")
    (tmp_path / "c").write_bytes(b"c")
    run("produce", one, str(tmp_path / "a"), str(tmp_path / "c"))
    run("topic", "produce", "-t", one, "-l", str(tmp_path / "a"))
    assert shown(run, one, "%s;") == "a\nb\n;c;a;b;"
    assert "does not exist" in run("produce", one, str(tmp_path / "d"), status=2).err


def test_a_format_of_the_input(run: Run, one: str) -> None:
    run("produce", one, "-f", "%k %v\\n", stdin=b"a b c\nd e")
    run("produce", one, "-f", "%p,%T,%h,%s", stdin=b"0,1000,x=y,one\n0,2000,,two\n")
    run("produce", one, "-f", "%K,%S:%k%s", stdin=b"1,2:abc-1,1:z1,-1:k")
    assert shown(run, one) == "a|b c;d|e;NULL|one;NULL|two;a|bc;NULL|z;k|NULL;"
    assert shown(run, one, "%T %h;").split(";")[2:4] == ["1000 x=y", "2000 "]
    for form, wrong in (("%k%s", "nothing tells where %k"), ("x", "no field"), ("%b", "%b is")):
        assert wrong in run("produce", one, "-f", form, status=2).err
    told = run("produce", one, "-f", "%S:%s", stdin=b"1:a1x:b", status=1).err
    assert "1 record acknowledged" in told
    assert "record 2 does not fit --format: %S is b'1x', no size" in told


def test_a_broken_line_of_json_is_told_by_its_number(run: Run, one: str) -> None:
    lines = b'{"payload":"a"}\n\n{"value":{"b": 1},"headers":[{"key":"h","value":"x"}]}\nno\n{}\n'
    told = run("produce", one, "-J", stdin=lines, status=1).err.splitlines()
    assert told == [
        f"2 records acknowledged to {one} partition 0",
        "kbroker: line 4: no JSON: Expecting value, at column 1",
    ]
    assert shown(run, one, "%s %h;") == 'a ;{"b": 1} h=x;'
    for line, wrong in (
        (b"[]", "no JSON object"),
        (b"{}", 'no "payload"'),
        (b'{"payload":"\\ud800"}', "\\ud800 is no character"),
        (b'{"payload":"", "ts":"now"}', "\"ts\" is 'now'"),
        (b'{"payload":"", "headers":["a"]}', '"headers" is no list'),
        (b'{"payload":"", "headers":[1,"a"]}', "name of a header"),
        (b"[" * 100_000, "line 1"),
    ):
        assert wrong in run("produce", one, "-J", stdin=line, status=1).err


def test_json_is_sent_as_it_was_written(run: Run, one: str) -> None:
    """Numbers that a float does not hold keep their digits, and text its escapes and spaces."""
    payload = b'{"price": 19.990, "n": 12345678901234567890.1234567890, "x": 1e400, "u": "\\u00e9"}'
    lines = b'{"key": 1.0, "payload": %b , "ts": 5}\n' % payload
    lines += b' { "payload":[1.50],"headers":{"a":1.10,"b":"2"}}\n'
    lines += b'{"payload":-0.0,"headers":[{"key":"a","value":{"v": 1.0}}],"payload":2.50}\n'
    lines += b'{"payload":true,"headers":["a",1.0,"b",null]}\n'
    run("produce", one, "-J", stdin=lines)
    assert run("consume", one, "-e", "-f", "%k|%s|%h\n").out == (
        b"1.0|" + payload + b"|\n|[1.50]|a=1.10,b=2\n|2.50|a={\"v\": 1.0}\n|true|a=1.0,b=NULL\n"
    )


def test_header_names_that_are_no_utf8_go_through(
    run: Run, one: str, kbroker: KbrokerProcess
) -> None:
    """From the wire, through JSON and the command line, and back."""
    producer = confluent_kafka.Producer({"bootstrap.servers": kbroker.bootstrap})
    producer.produce(one, b"v", headers=[("plain", b"\xff")])
    assert producer.flush(30) == 0
    line = b'{"payload":"v","headers":["\\udcff\\udcfe","a"]}\n'
    run("produce", one, "-J", stdin=line)
    run("produce", one, "-H", os.fsdecode(b"\xff\xfe=b"), stdin=b"v\n")
    lines = run("consume", one, "-J", "-e").out
    assert lines.count(b'"headers":["\\udcff\\udcfe",') == 2
    run("produce", one, "-J", stdin=lines)
    assert run("consume", one, "-e", "-o", "3", "-f", "%h;").out == (
        b"plain=\xff;\xff\xfe=a;\xff\xfe=b;"
    )
    with Consumer(bootstrap_servers=kbroker.bootstrap) as consumer, Producer(
        bootstrap_servers=kbroker.bootstrap
    ) as back:
        consumer.assign([(one, 0)])
        consumer.seek((one, 0), 1)
        (record,) = consumer.poll(30, 1)
        sent = back.send(one, b"again", headers=record.headers).result(30)
        consumer.seek((one, 0), sent.offset)
        (again,) = consumer.poll(30, 1)
        assert again.headers == record.headers
        with pytest.raises(ValueError, match="surrogates not allowed"):
            back.send(one, b"", headers=[("\ud800", b"")])
    for headers in (b'["\\ud800",""]', b'{"\\ud800":1}'):
        line = b'{"payload":"","headers":%b}' % headers
        assert "is no character" in run("produce", one, "-J", stdin=line, status=1).err


def test_records_that_fail_are_counted_and_the_others_sent(
    kbroker: KbrokerProcess, run: Run, topic: str
) -> None:
    wire.create_topic(kbroker.port, topic, 1, {"max.message.bytes": "500"})
    big = b"x" * 1_200_000
    lines = b"\n".join([b"a", big, b"b", big + b"y", b"y" * 2000, b"c"])
    told = run("produce", topic, "-X", "batch.size=0", stdin=lines, status=1).err.splitlines()
    assert told[0] == f"3 records acknowledged to {topic} partition 0"
    assert told[1].startswith(f"kbroker: 2 records failed: {topic}: a record is larger than max")
    assert told[2].startswith(f"1 record failed: {topic}-0: ")
    assert "MESSAGE_TOO_LARGE" in told[2]
    assert shown(run, topic, "%s") == "abc"
    piece = run("produce", topic, stdin=b"z" * 1_048_500, status=1).err
    assert piece.count("\n") == 1


def test_what_is_wrong_is_one_line(run: Run, one: str) -> None:
    for words, status, wrong in (
        (["produce"], 2, "give a TOPIC"),
        (["produce", one, "-X", "lingr.ms=5"], 2, "did you mean 'linger.ms'?"),
        (["produce", one, "-X", "linger.ms=x"], 2, "linger.ms='x'"),
        (["produce", one, "--acks", "0", "-X", "enable.idempotence=true"], 2, "exclude each other"),
        (["produce", one, "-b", "127.0.0.1:1"], 1, "no broker listens on 127.0.0.1:1"),
        (["produce", one, "-p", "3"], 1, "has no partition 3"),
        (["produce", "no-such", "--no-create"], 1, "UNKNOWN_TOPIC_OR_PARTITION"),
        (["produce", one, "-D", ""], 2, "at least one byte"),
        (["produce", one, "-J", "-f", "%s"], 2, "one of"),
        (["produce", one, "-l"], 2, "give a FILE"),
        (["produce", one, "--keep-partitions"], 2, "goes with"),
    ):
        told = run(*words, stdin=b"x", status=status).err
        assert wrong in told
        assert told.count("\n") == 1


def test_librdkafkas_names_are_known(run: Run, one: str) -> None:
    told = run("produce", one, "-X", "stats_cb=x", status=2).err
    assert "metrics() tells when it is asked" in told
    run("produce", one, "-X", "topic.request.required.acks=1", "-X", "queue.buffering.max.ms=1",
        "-X", "compression.codec=gzip", stdin=b"a")  # fmt: skip
    wait_for("the record", lambda: shown(run, one, "%s") == "a", 60)


def test_a_transaction_as_kcat_has_it(run: Run, one: str) -> None:
    """All of the input or nothing, for who reads committed records."""
    whole = ("-X", f"transactional.id={one}")
    assert "2 records acknowledged" in run("produce", one, *whole, stdin=b"a\nb\n").err
    told = run("produce", one, *whole, "-J", stdin=b'{"payload":"c"}\nno\n', status=1).err
    assert told.splitlines()[0] == f"kbroker: the transaction of {one} was aborted"
    assert "acknowledged" not in told and "line 2: no JSON" in told
    run("produce", one, *whole, stdin=b"d")
    assert run("consume", one, "-e", "--read-committed", "-f", "%s;").out == b"a;b;d;"
    assert shown(run, one, "%s;") == "a;b;c;d;"


def test_a_rate_is_kept_and_a_tee_prints(run: Run, one: str) -> None:
    lines = b"".join(b"%d\n" % n for n in range(60))
    began = time.monotonic()
    said = run("produce", one, "--rate", "100", "-T", stdin=lines)
    assert time.monotonic() - began > 0.4
    assert said.out == lines
    assert shown(run, one, "%s,").count(",") == 60


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_the_input_and_sends_what_was_read(
    kbroker: KbrokerProcess, run: Run, start: Start, one: str, number: int
) -> None:
    process = start("produce", one, "-K:")
    assert process.stdin is not None
    process.stdin.write(b"a:1\nb:2\nhalf")
    process.stdin.flush()
    wait_for("two records", lambda: shown(run, one, "%s") == "12", 60)
    process.send_signal(number)
    _, error = process.communicate(timeout=20)
    assert process.returncode == 128 + number
    assert error.decode() == (
        f"stopped; what was read is sent: 2 records acknowledged to {one} partition 0\n"
    )
