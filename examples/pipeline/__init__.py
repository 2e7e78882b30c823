"""Flights through Spark's Structured Streaming, from topics to topics: `make pipeline`.

    flights (raw) --- clean ---> flights.valid --- enrich ---> flights.enriched   (by flight)
                        |             |   weather, airlines, airports, planes joined in
                        |             |-- watch ----> delays                      (by airport, hour)
                        |             `-- archive --> lake/, Parquet by day
                        `----------> flights.invalid (dead letters)
    flights, weather (raw) --- summarise, a batch job by time range ---> a table

Every sink may write a record twice after a crash (at least once); the end result is exact all the
same: what has a key is written again with the same key and value into a compacted topic, `watch`
and `archive` drop the repeated, and Parquet is written by whole partitions of one micro-batch each.
"""
