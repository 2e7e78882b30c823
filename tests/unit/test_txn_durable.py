"""Steps that wait for the disk: in order within a log directory, and for no other one."""

from __future__ import annotations

from kbroker.txn.durable import Durable


class Log:
    """A log that is durable up to an offset."""

    def __init__(self, directory=0):
        self.directory = directory
        self.high_watermark = 0
        self.gone = False


def told(log, offset):
    return log.gone or log.high_watermark >= offset


def test_one_directory_is_a_queue():
    first, second = Log(), Log()
    done = []
    durable = Durable(told)
    durable.when(first, 5, lambda well: done.append(("first", well)))
    durable.when(second, 1, lambda well: done.append(("second", well)))
    second.high_watermark = 1
    durable.run()
    assert not done and len(durable) == 2
    first.high_watermark = 5
    durable.run()
    assert done == [("first", True), ("second", True)] and not len(durable)


def test_a_directory_that_hangs_holds_up_no_other():
    slow, quick = Log(0), Log(1)
    done = []
    durable = Durable(told)
    durable.when(slow, 5, lambda well: done.append("slow"))
    durable.when(quick, 1, lambda well: done.append("quick"))
    quick.high_watermark = 1
    durable.run()
    assert done == ["quick"]


def test_all_of_several_are_waited_for_once():
    logs = [Log(0), Log(1), Log(1)]
    done = []
    durable = Durable(told)
    durable.when_all([(log, 3) for log in logs], done.append)
    for log in logs:
        assert not done
        log.high_watermark = 3
        durable.run()
    assert done == [True]


def test_one_that_is_gone_is_told():
    logs = [Log(0), Log(1)]
    done = []
    durable = Durable(told)
    durable.when_all([(log, 3) for log in logs], done.append)
    logs[0].high_watermark = 3
    logs[1].gone = True
    durable.run()
    assert done == [False]


def test_what_a_step_queues_elsewhere_is_done_in_the_same_run():
    first, second = Log(0), Log(1)
    done = []
    durable = Durable(told)
    durable.when(second, 1, lambda _: durable.when(first, 0, lambda _: done.append("first")))
    second.high_watermark = 1
    durable.run()
    assert done == ["first"]


def test_fail_all_calls_each_step_once_with_false():
    logs = [Log(0), Log(1)]
    done = []
    durable = Durable(told)

    def broken(_):
        raise RuntimeError("a step that fails")

    durable.when(logs[0], 1, broken)
    durable.when(logs[0], 1, lambda well: done.append(("one", well)))
    durable.when_all([(log, 1) for log in logs], lambda well: done.append(("all", well)))
    durable.fail_all()
    for log in logs:
        log.high_watermark = 1
    durable.run()
    assert done == [("one", False), ("all", False)] and not len(durable)
