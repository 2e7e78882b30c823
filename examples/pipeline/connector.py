"""The jars of Spark's own connector for Kafka, which `format("kafka")` needs and PySpark has not.

They come from Maven Central, once, into ~/.cache/kbroker/spark-4.2.0; KBROKER_SPARK_JARS names a
folder that holds them already. Each is fetched alone: PySpark brings the rest of what they need.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

SPARK_VERSION = "4.2.0"

#: The token provider has not been released since 4.0.0; that one serves 4.2.0.
ARTIFACTS = (
    f"org.apache.spark:spark-sql-kafka-0-10_2.13:{SPARK_VERSION}",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.0",
)

_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>kbroker.spark</groupId><artifactId>jars</artifactId><version>1</version>
  <packaging>pom</packaging>
  <build><plugins><plugin>
    <groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId>
    <configuration>
      <outputDirectory>{folder}</outputDirectory>
      <artifactItems>{items}</artifactItems>
    </configuration>
  </plugin></plugins></build>
</project>
"""
_ITEM = (
    "<artifactItem><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>"
    "</artifactItem>"
)


class NoMavenError(Exception):
    """Maven is not here, and neither are the jars."""


def folder() -> Path:
    """Where the jars are, or will be."""
    told = os.environ.get("KBROKER_SPARK_JARS")
    return Path(told) if told else Path.home() / ".cache" / "kbroker" / f"spark-{SPARK_VERSION}"


@cache
def jars() -> tuple[Path, ...]:
    """The connector's jars, for the setting `spark.jars`; fetched where they are not there yet."""
    target = folder()
    if not os.environ.get("KBROKER_SPARK_JARS"):
        target.parent.mkdir(parents=True, exist_ok=True)
        with (target.parent / ".spark-lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not target.exists():
                _fetch(target)
    found = tuple(target / "{1}-{2}.jar".format(*name.split(":")) for name in ARTIFACTS)
    for path in found:
        if not path.exists():
            raise FileNotFoundError(path)
    return found


def _fetch(target: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise NoMavenError('format("kafka") needs jars of Maven Central: install maven')
    with tempfile.TemporaryDirectory(dir=target.parent) as home:
        fetched, pom = Path(home, "jars"), Path(home, "pom.xml")
        items = "".join(_ITEM.format(*name.split(":")) for name in ARTIFACTS)
        pom.write_text(_POM.format(folder=fetched, items=items))
        subprocess.run(
            [maven, "-q", "-B", "-f", str(pom), "dependency:copy"], check=True, timeout=600
        )
        fetched.rename(target)
