"""Simulations with coordinators in this process."""

from tests.support.patient import _patient_appends  # noqa: F401 - a fixture of every test here
