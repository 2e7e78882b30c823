"""The Spark process: runs the jobs until the replay is over and all is worked off.

Argument: the plan in JSON. Tells on standard output, in lines of JSON, how far each job is and at
last {"done": true}; what Spark logs goes to standard error. It may be killed at any moment: the
next one goes on from the checkpoints.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import TYPE_CHECKING, Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

from examples.pipeline.connector import jars
from examples.pipeline.jobs import Jobs
from examples.pipeline.months import months
from examples.pipeline.plan import FLIGHTS, VALID, Plan
from examples.pipeline.replay import send_all
from examples.pipeline.source import ticks

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery

_TELL_S = 0.5
#: A job that failed is started again so often; a broker that was away may have been the reason.
_RESTARTS_MAX = 20


def tell(**what: Any) -> None:
    """One line, now."""
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


def session(plan: Plan) -> SparkSession:
    """A local Spark on the loopback; tasks that fail are tried four times."""
    builder = SparkSession.builder.master("local[2, 4]").appName("pipeline")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.local.dir": str(plan.home / "spark"),
        "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(plan.home / "spark"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    if plan.format == "kafka":
        settings["spark.jars"] = ",".join(map(str, jars()))
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    for name, value in settings.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class Running:
    """Queries that are under way."""

    def __init__(self, jobs: Jobs) -> None:
        self.jobs = jobs
        self.queries: dict[str, StreamingQuery] = {name: jobs.start(name) for name in jobs.NAMES}
        self.restarts = 0

    def work_off(self) -> None:
        """Returns when the jobs have done all that is there now, one after the other."""
        for name in self.jobs.NAMES:
            done = False
            while not done:
                try:
                    self.queries[name].processAllAvailable()
                    done = True
                except StreamingQueryException as error:
                    self.revive(name, error)

    def look_after(self) -> None:
        """Starts again what has failed."""
        for name, query in list(self.queries.items()):
            error = query.exception()
            if error is not None:
                self.revive(name, error)

    def revive(self, name: str, error: Exception) -> None:
        """Starts a job again, from its checkpoint."""
        self.restarts += 1
        if self.restarts > _RESTARTS_MAX:
            raise error
        tell(failed=name, why=str(error).splitlines()[0])
        self.queries[name] = self.jobs.start(name)

    def tell(self) -> None:
        """How far each job is: offsets behind the flights that it has read, summed up."""
        for name, query in self.queries.items():
            progress = query.lastProgress
            if progress is None:
                continue
            ends = [json.loads(each["endOffset"] or "{}") for each in progress["sources"]]
            flights = [of[topic] for of in ends for topic in (FLIGHTS, VALID) if topic in of]
            at = sum(sum(offsets.values()) for offsets in flights)
            tell(job=name, at=at, batch=progress["batchId"])


def main() -> int:
    """Exit status 0 when all is done."""
    plan = Plan.from_json(sys.argv[1])
    jobs = Jobs(session(plan), plan)
    java = jobs.spark.sparkContext._jvm
    assert java is not None
    tell(java=java.ProcessHandle.current().pid())
    running = Running(jobs)
    over = threading.Event()

    def tell_on() -> None:
        while not over.wait(_TELL_S):
            running.tell()

    teller = threading.Thread(target=tell_on, daemon=True)
    teller.start()
    while not plan.replayed.exists():
        running.look_after()
        time.sleep(_TELL_S)
    running.work_off()
    # Here and not by the replay: of two streams that are joined Spark remembers, over a restart,
    # not how far each one is, so each must show a late record in the life of this process.
    send_all(plan.bootstrap, ticks(plan, int(plan.replayed.read_text())))
    running.work_off()
    over.set()
    teller.join()
    running.tell()
    for query in running.queries.values():
        query.stop()
    tell(summarising=True)
    found = {name: jobs.summarise(*ends) for name, ends in months(plan.days).items()}
    plan.summary.write_text(json.dumps(found))
    tell(done=True)
    jobs.spark.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
