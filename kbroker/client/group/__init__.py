"""Membership of a consumer in a group: assignors, rebalances, heartbeats, commits."""

from __future__ import annotations
