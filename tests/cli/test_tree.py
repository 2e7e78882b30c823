"""The tree of commands as a whole: what each kind of command has."""

from __future__ import annotations

import importlib
from collections.abc import Iterator

import click
import pytest

from kbroker.cli import tree

#: What shows something, by the last word of its name.
SHOWS = {"list", "describe", "show", "get", "status", "info", "health", "api-versions", "logdirs",
         "features", "quorum", "offsets", "lag", "members", "sizes", "check", "version",
         "explain", "strays"}  # fmt: skip
DESTROYS = {"delete", "trim", "reset", "offset-delete", "alter-config", "set", "add-partitions",
            "repair", "stray-delete"}  # fmt: skip
LATER = {"ui"}


def commands() -> Iterator[tuple[str, click.Command]]:
    for name, entry in tree.ROOT.items():
        table = {name: entry} if entry[0] else tree.GROUPS[entry[1]]
        for word, (module, attribute, _) in table.items():
            command = getattr(importlib.import_module(f"kbroker.cli.{module}"), attribute)
            yield name if entry[0] else f"{name} {word}", command


def options_of(command: click.Command) -> set[str]:
    return {option for param in command.params for option in param.opts}


EVERY = [pytest.param(*pair, id=pair[0]) for pair in commands()]


@pytest.mark.parametrize(("name", "command"), EVERY)
def test_every_command_has_what_its_kind_has(name: str, command: click.Command) -> None:
    options, last = options_of(command), name.rsplit(maxsplit=1)[-1]
    if last in SHOWS:
        assert {"--output", "-o"} <= options
        choice = next(param.type for param in command.params if "-o" in param.opts)
        assert isinstance(choice, click.Choice)
        assert list(choice.choices) == ["table", "wide", "json"]
    if last in DESTROYS:
        assert "--dry-run" in options
    if "--bootstrap-server" in options and not name.startswith("profile"):
        assert {"-b", "--profile", "-X", "--command-config"} <= options
    assert command.help


def test_what_this_broker_cannot_answer_is_not_shown() -> None:
    assert not LATER & tree.ROOT.keys()
    assert {"topics", "groups"} <= tree.ALIASES.keys()


def test_names_are_completed_where_names_are_wanted() -> None:
    """Completion goes by the metavar: see kbroker.cli.completion."""
    for name, command in commands():
        for param in command.params:
            if isinstance(param, click.Argument) and param.name in ("topic", "topics"):
                assert "TOPIC" in (param.metavar or ""), name
