"""Which quota holds, and how long a client over its quota waits."""

from __future__ import annotations

import random

import pytest

from kbroker.security.quotas import DEFAULT, Rate, candidates, entity, ip_limit, limit_of

ORDER = [
    entity(user="u", client_id="c"), entity(user="u", client_id=DEFAULT), entity(user="u"),
    entity(user=DEFAULT, client_id="c"), entity(user=DEFAULT, client_id=DEFAULT),
    entity(user=DEFAULT), entity(client_id="c"), entity(client_id=DEFAULT),
]  # fmt: skip


def test_the_order_of_precedence():
    assert list(candidates("u", "c")) == ORDER
    limits = {one: float(place) for place, one in enumerate(ORDER)}
    for place, one in enumerate(ORDER):
        assert limit_of(limits, candidates("u", "c")) == (one, place)
        del limits[one]
    assert limit_of(limits, candidates("u", "c")) is None
    others = {entity(user="v"): 1.0, entity(client_id="d"): 2.0}
    assert limit_of(others, candidates("u", "c")) is None


def test_addresses():
    limits = {entity(ip="1.2.3.4"): 5.0, entity(ip=DEFAULT): 7.0}
    assert (ip_limit(limits, "1.2.3.4"), ip_limit(limits, "::1")) == (5, 7)
    assert ip_limit({}, "::1") is None


class Kafkas:
    """Rate and WindowedSum of Apache Kafka 4.3, told from its source, slow and plain."""

    def __init__(self, samples, window):
        self.samples, self.window, self.all, self.at = samples, window, [], 0

    def current(self, now):
        if not self.all:
            self.all.append({"start": now, "last": now, "value": 0.0})
        return self.all[self.at]

    def record(self, value, now):
        sample = self.current(now)
        if now - sample["start"] >= self.window:
            self.at = (self.at + 1) % (self.samples + 1)
            if self.at >= len(self.all):
                self.all.append({})
            sample = self.all[self.at]
            sample.update(start=now, last=now, value=0.0)
        sample["value"] += value
        sample["last"] = now

    def measure(self, now):
        for sample in self.all:
            if now - sample["last"] >= self.samples * self.window:
                sample.update(start=now, last=now, value=0.0)
        total = sum(sample["value"] for sample in self.all)
        elapsed = now - min((sample["start"] for sample in self.all), default=now)
        full = elapsed // self.window
        elapsed += max(self.samples - 1 - full, 0) * self.window
        return total / (max(elapsed, 1) / 1000)


@pytest.mark.parametrize("seed", range(10))
def test_the_rate_is_kafkas(seed):
    chance = random.Random(seed)
    samples, window = chance.choice([(11, 1000), (2, 500), (1, 1000)])
    ours, theirs, now = Rate(samples, window), Kafkas(samples, window), 5
    for _ in range(400):
        now += chance.choice([0, 1, 7, 200, 999, 1000, 1001, 5000, 30_000])
        if chance.random() < 0.7:
            amount = chance.randrange(10_000)
            ours.record(amount, now)
            theirs.record(amount, now)
        assert ours.measure(now) == pytest.approx(theirs.measure(now))


def test_a_client_that_waits_as_told_keeps_its_quota():
    """100,000 bytes a second in requests of 30,000: over a minute, within 5 in 100."""
    rate, now, sent, limit = Rate(), 0, 0, 100_000
    while now <= 60_000:
        rate.record(30_000, now)
        sent += 30_000
        now += rate.wait_ms(limit, now) + 3
    assert sent / (now / 1000 + 10) == pytest.approx(limit, rel=0.05)  # ten windows go ahead


def test_nothing_waits_below_its_quota():
    rate = Rate()
    assert (rate.measure(7), rate.wait_ms(1, 7)) == (0, 0)
    rate.record(5, 1000)
    assert rate.wait_ms(1, 1000) == 0 and rate.measure(1000) == 0.5
    assert rate.measure(12_000) == 0
