"""Shared fixtures of all tests."""

pytest_plugins = ["tests.support.fixtures"]
