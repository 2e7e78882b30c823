"""Slow and obvious versions of what ext does: the oracles of the differential tests."""
