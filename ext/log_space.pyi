from kbroker.ext.log import Log

# (log start, high watermark, log end, bytes, segments, records in, bytes in, bytes out, produce
# requests, those that failed, answers to fetches, those with an error, producer ids) of each log;
# None of one whose lock was not to be had, as when the disk hangs.
def survey(logs: list[Log]) -> list[tuple[int, ...] | None]: ...
def oldest_closed(log: Log) -> tuple[int, int] | None: ...
