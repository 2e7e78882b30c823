"""The pages of the HTTP listener: /metrics, /livez, /readyz, /status.

While the broker starts, /livez answers, /readyz says no with the reason, and the others are not
there yet. What makes the pages is imported with the first that is asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kbroker.server.http_message import Page, Request, text_page

if TYPE_CHECKING:
    from kbroker.api.context import Services
    from kbroker.ext.data_plane import DataPlane
    from kbroker.server.health import Health
    from kbroker.server.observe import Observer
    from kbroker.storage.cleaner import LogCleaner
    from kbroker.storage.disks import DiskGuards

_INDEX: Final = (
    "kbroker\n\n"
    "/metrics  Prometheus and OpenMetrics\n"
    "/client-metrics  what clients push, where kbroker.client.telemetry is set\n"
    "/livez    200 while both planes answer\n"
    "/readyz   200 while clients are served\n"
    "/status   the broker in JSON"
)


class Parts(NamedTuple):
    """What the pages look at."""

    services: Services
    data_plane: DataPlane
    disk: DiskGuards
    cleaner: LogCleaner
    health: Health
    listeners: list[str]
    http: list[str]
    serving_since_ms: int  # monotonic


class Pages:
    """Makes pages; any thread may ask. `parts` is set once, when the broker serves."""

    def __init__(self) -> None:
        self.parts: Parts | None = None
        self._observer: Observer | None = None

    def serve(self, request: Request) -> Page:
        """The page of a request."""
        path = request.path
        if path == "/":
            return text_page(_INDEX)
        if path not in ("/metrics", "/client-metrics", "/livez", "/readyz", "/status"):
            return text_page("there is no such page", 404)
        if self.parts is None:
            return text_page("starting or stopping", 200 if path == "/livez" else 503)
        if path == "/metrics":
            return self._metrics(request.headers.get("accept", ""), self.parts)
        if path == "/client-metrics":
            return self._client_metrics(request.headers.get("accept", ""), self.parts)
        if path == "/status":
            return self._status(self.parts)
        health = self.parts.health
        faults = health.faults() if path == "/livez" else health.unready()
        return text_page("; ".join(faults), 503) if faults else text_page("ok")

    def _metrics(self, accept: str, parts: Parts) -> Page:
        from kbroker.metrics.exposition import expose, negotiated  # noqa: PLC0415
        from kbroker.metrics.families import FAMILIES  # noqa: PLC0415
        from kbroker.server.observe import Observer  # noqa: PLC0415

        if self._observer is None:
            self._observer = Observer(parts)
        content_type = negotiated(accept)
        return Page(200, expose(FAMILIES, self._observer.collect(), content_type), content_type)

    def _client_metrics(self, accept: str, parts: Parts) -> Page:
        from kbroker.metrics.exposition import expose, negotiated  # noqa: PLC0415
        from kbroker.server.client_metrics import FAMILIES, collect  # noqa: PLC0415

        content_type = negotiated(accept)
        samples = collect(parts.services.telemetry.pushes())
        return Page(200, expose(FAMILIES, samples, content_type), content_type)

    def _status(self, parts: Parts) -> Page:
        import json  # noqa: PLC0415

        from kbroker.server.observe import status  # noqa: PLC0415

        body = json.dumps(status(parts), indent=2).encode() + b"\n"
        return Page(200, body, "application/json")
