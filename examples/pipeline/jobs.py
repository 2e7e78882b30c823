"""The jobs: Structured Streaming from topic to topic, and a batch job over ranges of time.

Times are when a flight was due to leave, or when the weather was as told. How late a record may
come (`lateness_days`, the delay of all watermarks) follows from what sits before a job: a
micro-batch of `clean` writes its flights partition by partition, and after a crash a second time,
so its readers see them out of order by as much as it spans, 11 days at 10,000 flights; partitions
of one topic are read up to 5 days apart. Within 30 days nothing is too late: every result is exact.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from examples.pipeline.plan import (
    AIRLINES,
    AIRPORTS,
    DELAYS,
    ENRICHED,
    FLIGHTS,
    INVALID,
    LATE_MINUTES,
    ORIGINS,
    PLANES,
    STRONG_WIND,
    VALID,
    WEATHER,
    Plan,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

RAW = """time_hour string, origin string, dest string, carrier string, flight int, tailnum string,
    dep_delay int, arr_delay int, distance int, tick boolean"""
FLIGHT = RAW + ", id string, cancelled boolean"
AIR = """origin string, time_hour string, temp double, wind_speed double, precip double,
    visib double, tick boolean"""
_ISO = "yyyy-MM-dd'T'HH:mm:ss'Z'"


def parsed(frame: DataFrame, schema: str) -> DataFrame:
    """The fields of JSON values, with `time`. `broken` is a value that is not of the schema."""
    way = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "broken"}
    fields = sf.from_json(sf.col("value").cast("string"), f"{schema}, broken string", way)
    time = sf.try_to_timestamp(sf.col("fields.time_hour"))
    return frame.withColumn("fields", fields).withColumn("time", time)


def flights_of(frame: DataFrame, schema: str) -> DataFrame:
    """Columns of records that are known to be good."""
    return parsed(frame, schema).select("time", "fields.*").drop("broken")


def fault() -> Column:
    """Why a record is no flight that can be worked with; null where it is one."""
    return (
        sf.when(sf.col("value").isNull(), "no value")
        .when(sf.col("fields.broken").isNotNull(), "not a flight in JSON")
        .when(sf.col("time").isNull(), "no time")
        .when(sf.coalesce("fields.tick", sf.lit(False)), None)
        .when(
            ~sf.coalesce(sf.col("fields.origin").isin(*ORIGINS), sf.lit(False)), "not from New York"
        )
        .when(sf.coalesce("fields.distance", sf.lit(0)) <= 0, "no distance")
    )


def flight_id() -> Column:
    """What tells a flight from all others."""
    return sf.concat_ws("/", "fields.time_hour", "fields.carrier", "fields.flight")


def utf8(text: Column | str) -> Column:
    """Text as the value of a header."""
    return sf.encode(text, "UTF-8")


def routed(frame: DataFrame) -> DataFrame:
    """Rows for the sink: good flights for one topic, the rest as it came for another, with headers
    that say why, and where it was."""
    fields = parsed(frame, RAW).withColumn("fault", fault())
    flight = sf.struct(
        "fields.*",
        flight_id().alias("id"),
        sf.col("fields.dep_delay").isNull().alias("cancelled"),
    ).dropFields("broken")
    place = sf.concat_ws("-", "topic", sf.col("partition"), sf.col("offset"))
    told = sf.array(
        sf.struct(sf.lit("fault").alias("key"), utf8("fault").alias("value")),
        sf.struct(sf.lit("from").alias("key"), utf8(place).alias("value")),
    )
    bad = sf.col("fault").isNotNull()
    return fields.select(
        sf.when(bad, INVALID).otherwise(VALID).alias("topic"),
        "key",
        sf.when(bad, sf.col("value"))
        .otherwise(sf.encode(sf.to_json(flight), "UTF-8"))
        .alias("value"),
        sf.when(bad, told).alias("headers"),
    )


def delays(flights: DataFrame) -> DataFrame:
    """Departures of each airport in each hour. Whole numbers: their sums do not depend on the order
    of the records."""
    delay = sf.col("dep_delay")
    return (
        flights.groupBy(sf.window("time", "1 hour"), "origin")
        .agg(
            sf.count("id").alias("flights"),
            sf.count_if("cancelled").alias("cancelled"),
            sf.count(delay).alias("departed"),
            sf.coalesce(sf.sum(delay), sf.lit(0)).alias("delay_sum"),
            sf.max(delay).alias("delay_max"),
            sf.count_if(delay > LATE_MINUTES).alias("late"),
        )
        .withColumn("hour", sf.col("window.start"))
        .drop("window")
    )


def enriched(flights: DataFrame, weather: DataFrame, tables: dict[str, DataFrame]) -> DataFrame:
    """Each flight with the weather at its departure, and what the dimension tables say."""
    told = weather.select(sf.col("origin").alias("at"), sf.col("time").alias("then"), "temp",
                          "wind_speed", "precip", "visib")  # fmt: skip
    same = (sf.col("origin") == sf.col("at")) & (sf.col("time") == sf.col("then"))
    joined = flights.join(told, same, "left_outer")
    for table, key in ((AIRLINES, "carrier"), (AIRPORTS, "dest"), (PLANES, "tailnum")):
        joined = joined.join(sf.broadcast(tables[table]), key, "left_outer")
    return joined.drop("at", "then", "time", "tick")


class Jobs:
    """The jobs on a session; queries are started by name and go on from their checkpoints."""

    #: In the order of the stream: each works off what those before it have written.
    NAMES = ("clean", "enrich", "watch", "archive")

    def __init__(self, spark: SparkSession, plan: Plan) -> None:
        self.spark, self.plan = spark, plan
        self._tables: dict[str, DataFrame] = {}

    def start(self, name: str) -> StreamingQuery:
        """Starts one of NAMES."""
        job: StreamingQuery = getattr(self, name)()
        return job

    def clean(self) -> StreamingQuery:
        """Parses and validates; routes good flights and dead letters to topics of their own."""
        return self._to_topics("clean", routed(self._stream(FLIGHTS)))

    def enrich(self) -> StreamingQuery:
        """Flights with their weather: two streams, joined within the watermark."""
        flights, weather = self._flights(), flights_of(self._stream(WEATHER), AIR)
        weather = weather.withWatermark("time", self._lateness)
        rows = enriched(flights, weather, self.tables())
        return self._to_topics("enrich", self._keyed(rows, ENRICHED, sf.col("id")))

    def watch(self) -> StreamingQuery:
        """Delays by airport and hour as they stand, each change an upsert of its key."""
        rows = delays(self._once(self._flights())).where("origin is not null")
        hour = sf.date_format("hour", _ISO)
        told = self._keyed(rows.withColumn("hour", hour), DELAYS, sf.concat_ws("|", "origin", hour))
        return self._batches("watch", told, "update", self._upsert)

    def archive(self) -> StreamingQuery:
        """The same when an hour is over for good, in Parquet by day."""
        rows = delays(self._once(self._flights()))
        return self._batches("archive", rows, "append", self._to_lake)

    def summarise(self, start_ms: int, end_ms: int) -> list[dict[str, Any]]:
        """The batch job: airport by airport what left in a range of time, and in strong wind, from
        the raw logs."""
        flights = parsed(self._range(FLIGHTS, start_ms, end_ms), RAW).withColumn("fault", fault())
        flights = flights.where("fault is null").select("time", "fields.*")
        weather = flights_of(self._range(WEATHER, start_ms, end_ms), AIR)
        joined = flights.join(
            weather.select("origin", "time", "wind_speed"), ["origin", "time"], "left_outer"
        )
        delay, strong = sf.col("dep_delay"), sf.col("wind_speed") >= STRONG_WIND
        rows = joined.groupBy("origin").agg(
            sf.count("*").alias("flights"),
            sf.count_if(delay.isNull()).alias("cancelled"),
            sf.count(delay).alias("departed"),
            sf.coalesce(sf.sum(delay), sf.lit(0)).alias("delay_sum"),
            sf.count_if(delay > LATE_MINUTES).alias("late"),
            sf.count(sf.when(strong, delay)).alias("in_wind"),
            sf.coalesce(sf.sum(sf.when(strong, delay)), sf.lit(0)).alias("in_wind_sum"),
        )
        return [row.asDict() for row in rows.orderBy("origin").collect()]

    def tables(self) -> dict[str, DataFrame]:
        """The dimension tables: of each key what was told last, if it was not deleted."""
        if not self._tables:
            airlines = self._table(AIRLINES, "carrier string, name string")
            airports = self._table(AIRPORTS, "faa string, name string")
            planes = self._table(
                PLANES, "tailnum string, manufacturer string, model string, seats int"
            )
            self._tables = {
                AIRLINES: airlines.withColumnRenamed("name", "airline"),
                AIRPORTS: airports.withColumnsRenamed({"faa": "dest", "name": "destination"}),
                PLANES: planes,
            }
            for table in self._tables.values():
                table.cache()
        return self._tables

    # ---- sources

    @property
    def _lateness(self) -> str:
        return f"{self.plan.lateness_days} days"

    def _options(self, **more: str) -> dict[str, str]:
        return {"kafka.bootstrap.servers": self.plan.bootstrap, **more}

    def _stream(self, topic: str) -> DataFrame:
        limit = str(self.plan.batch_records)
        options = self._options(
            subscribe=topic, startingOffsets="earliest", maxOffsetsPerTrigger=limit
        )
        return self.spark.readStream.format(self.plan.format).options(**options).load()

    def _flights(self) -> DataFrame:
        flights = flights_of(self._stream(VALID), FLIGHT)
        return flights.withWatermark("time", self._lateness)

    def _once(self, flights: DataFrame) -> DataFrame:
        """Without what `clean` wrote a second time after a crash."""
        return flights.dropDuplicatesWithinWatermark(["id"])

    def _range(self, topic: str, start_ms: int, end_ms: int) -> DataFrame:
        options = self._options(
            subscribe=topic,
            startingTimestamp=str(start_ms),
            endingTimestamp=str(end_ms),
            startingOffsetsByTimestampStrategy="latest",
        )
        return self.spark.read.format(self.plan.format).options(**options).load()

    def _table(self, topic: str, schema: str) -> DataFrame:
        reader = self.spark.read.format(self.plan.format)
        records = reader.options(**self._options(subscribe=topic)).load()
        last = records.groupBy("key").agg(sf.max_by("value", "offset").alias("value"))
        fields = sf.from_json(sf.col("value").cast("string"), schema)
        return last.where("value is not null").select(fields.alias("row")).select("row.*")

    # ---- sinks

    def _keyed(self, rows: DataFrame, topic: str, key: Column) -> DataFrame:
        value = sf.encode(sf.to_json(sf.struct(*rows.columns)), "UTF-8")
        return rows.select(
            sf.lit(topic).alias("topic"), sf.encode(key, "UTF-8").alias("key"), value.alias("value")
        )

    def _to_topics(self, name: str, rows: DataFrame) -> StreamingQuery:
        options = self._options(checkpointLocation=str(self.plan.checkpoints / name))
        writer = rows.writeStream.queryName(name).format(self.plan.format)
        return writer.options(**options).start()

    def _batches(
        self, name: str, rows: DataFrame, mode: str, write: Callable[[DataFrame, int], None]
    ) -> StreamingQuery:
        writer = rows.writeStream.queryName(name).outputMode(mode).foreachBatch(write)
        return writer.option("checkpointLocation", str(self.plan.checkpoints / name)).start()

    def _upsert(self, rows: DataFrame, _batch: int) -> None:
        """Spark gives updates to sinks that are written in Java alone; a batch goes to any."""
        rows.write.format(self.plan.format).mode("append").options(**self._options()).save()

    def _to_lake(self, rows: DataFrame, batch: int) -> None:
        """A micro-batch that is done again after a crash overwrites just what it wrote before."""
        day = sf.date_format("hour", "yyyy-MM-dd")
        told = rows.where("origin is not null").withColumns({"day": day, "batch": sf.lit(batch)})
        writer = told.coalesce(1).sortWithinPartitions("day").write.mode("overwrite")
        writer = writer.option("partitionOverwriteMode", "dynamic").partitionBy("day", "batch")
        writer.parquet(str(self.plan.lake))
