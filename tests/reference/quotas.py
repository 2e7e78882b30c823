"""Apache Kafka's Rate over its SampledStat, as slow and plain as it can be said."""

from __future__ import annotations


class Rate:
    """How much a second, over `samples` windows of `window_ms` and the present one."""

    def __init__(self, samples: int = 11, window_ms: int = 1000) -> None:
        self._samples = samples
        self._window_ms = window_ms
        self._windows: list[list[float]] = []  # [begin, last event, sum], one more than samples
        self._at = 0

    def record(self, amount: float, now_ms: int) -> None:
        if not self._windows:
            self._windows.append([now_ms, now_ms, 0.0])
        elif now_ms - self._windows[self._at][0] >= self._window_ms:
            self._advance(now_ms)
        window = self._windows[self._at]
        window[1], window[2] = now_ms, window[2] + amount

    def _advance(self, now_ms: int) -> None:
        self._at = (self._at + 1) % (self._samples + 1)
        fresh = [now_ms, now_ms, 0.0]
        if self._at == len(self._windows):
            self._windows.append(fresh)
        else:
            self._windows[self._at] = fresh

    def measure(self, now_ms: int) -> float:
        elapsed = self.elapsed_ms(now_ms)
        return sum(window[2] for window in self._windows) * 1000 / elapsed

    def elapsed_ms(self, now_ms: int) -> int:
        for window in self._windows:
            if now_ms - window[1] >= self._samples * self._window_ms:
                window[:] = (now_ms, now_ms, 0.0)
        began = min((window[0] for window in self._windows), default=now_ms)
        elapsed = int(now_ms - began)
        missing = self._samples - 1 - elapsed // self._window_ms
        return max(elapsed + max(missing, 0) * self._window_ms, 1)

    def wait_ms(self, limit: float, now_ms: int) -> int:
        """How long nothing may happen until the rate is back at its limit; 0 where it is below."""
        rate = self.measure(now_ms)
        if rate <= limit:
            return 0
        return int((rate - limit) / limit * self.elapsed_ms(now_ms) + 0.5)
