"""The tree of commands, and how a command that fails ends.

Exit status: 0 done, 1 failed, 2 wrong usage. A failure that a user can meet is one line on stderr
that says what to do; a traceback means a bug of ours.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kbroker.cli.nearest import did_you_mean

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["run"]

# Command name -> (module under kbroker.cli, attribute, what --help says of it). The modules are
# loaded when their command runs, so that help and completion cost nothing.
Commands = dict[str, tuple[str, str, str]]

ROOT: Commands = {
    "start": ("start", "start", "Run a broker on a data directory; no format step."),
    "stop": ("process", "stop", "Stop the broker of a data directory."),
    "status": ("process", "status", "Show the broker of a data directory."),
    "topic": ("", "TOPIC", "List, describe, create, change and delete topics."),
    "group": ("", "GROUP", "List, describe, reset and delete consumer groups."),
    "produce": ("produce", "produce", "Send records from standard input or a file."),
    "consume": ("consume", "consume", "Print records of a topic."),
    "cluster": ("", "CLUSTER", "Show brokers, their health, APIs, log directories, features."),
    "config": ("", "CONFIG", "Show, change, check and explain the broker's settings."),
    "log": ("", "LOG", "Read the segment files of a data directory."),
    "bench": ("", "BENCH", "Measure producing, consuming and the way through."),
    "check": ("check", "check", "Check settings, disk and limits before a start."),
    "profile": ("", "PROFILE", "Keep settings of connections by name."),
    "completion": ("completion", "completion", "Print the completion script of a shell."),
    "version": ("process", "version", "Show the version."),
}
TOPIC: Commands = {
    "list": ("topic", "list_topics", "List topics."),
    "describe": ("topic", "describe", "Show a topic's partitions, offsets and settings."),
    "create": ("topic", "create", "Create a topic."),
    "delete": ("topic", "delete", "Delete topics with all their records."),
    "add-partitions": ("topic", "add_partitions", "Add partitions to a topic."),
    "alter-config": ("topic", "alter_config", "Set and unset a topic's settings."),
    "trim": ("topic_offsets", "trim", "Delete the oldest records of a topic."),
    "offsets": ("topic_offsets", "offsets", "Show first and next offsets, or those at a time."),
    "produce": ("produce", "produce", "Send records: `kbroker produce`."),
    "consume": ("consume", "consume", "Print records: `kbroker consume`."),
}
GROUP: Commands = {
    "list": ("group", "list_all", "List groups."),
    "describe": ("group", "describe", "Show a group's offsets, lag and who reads what."),
    "members": ("group", "members", "Show a group's members and their partitions."),
    "lag": ("group", "lag", "Show how many records groups have still to read."),
    "reset": ("group_reset", "reset", "Move a group's committed offsets (also: seek)."),
    "delete": ("group_delete", "delete", "Delete groups with their offsets."),
    "offset-delete": ("group_delete", "offset_delete", "Delete some offsets of a group."),
}
CLUSTER: Commands = {
    "info": ("cluster", "info", "Show the cluster's id and its brokers."),
    "health": ("cluster_health", "health", "Show whether the cluster is well."),
    "api-versions": ("cluster", "api_versions", "Show which APIs brokers answer."),
    "logdirs": ("cluster", "logdirs", "Show log directories and what is free."),
    "features": ("cluster", "features", "Show features and their levels."),
}
CONFIG: Commands = {
    "show": ("config", "show", "Show the settings a broker would run with."),
    "get": ("config_dynamic", "get_values", "Show the settings of a running broker."),
    "set": ("config_dynamic", "set_values", "Change settings of running brokers."),
    "validate": ("config", "validate", "Check a server.properties file."),
    "explain": ("config", "explain", "Say what a setting means, its type, range and default."),
}
LOG: Commands = {
    "dump": ("log", "dump", "Print the batches or records of segment files."),
    "verify": ("log", "verify", "Check segment files and their indexes."),
    "sizes": ("sizes", "sizes", "Show where the space is: topics, journal, metadata, free."),
}
BENCH: Commands = {
    "produce": ("bench", "produce", "How fast records are sent and acknowledged."),
    "consume": ("bench", "consume", "How fast records are read."),
    "e2e": ("bench", "e2e", "How long a record takes from send to poll, at a rate."),
}
PROFILE: Commands = {
    "create": ("profile", "create", "Create a profile."),
    "use": ("profile", "use", "Use a profile from now on."),
    "list": ("profile", "list_profiles", "List profiles."),
    "show": ("profile", "show", "Show a profile's settings, secrets hidden."),
    "edit": ("profile", "edit", "Change settings of a profile."),
    "delete": ("profile", "delete", "Delete profiles."),
}
_GROUPS = {
    "TOPIC": TOPIC,
    "GROUP": GROUP,
    "CLUSTER": CLUSTER,
    "CONFIG": CONFIG,
    "LOG": LOG,
    "BENCH": BENCH,
    "PROFILE": PROFILE,
}
_ALIASES = {
    "topics": "topic",
    "groups": "group",
    "seek": "reset",
    "configs": "config",
    "logs": "log",
    "profiles": "profile",
}

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class LazyGroup(click.Group):
    """A group whose commands are imported when they are run."""

    def __init__(self, name: str, table: Commands, help_text: str) -> None:
        super().__init__(name, help=help_text, context_settings=_CONTEXT)
        self.table = table

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names, in the order of the table."""
        del ctx
        return list(self.table)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command of this name, loaded now."""
        entry = self.table.get(_ALIASES.get(cmd_name, cmd_name))
        if entry is None:
            return None
        module, attribute, help_text = entry
        if not module:
            return LazyGroup(cmd_name, _GROUPS[attribute], help_text)
        command = getattr(importlib.import_module(f"kbroker.cli.{module}"), attribute)
        assert isinstance(command, click.Command)
        if ctx.resilient_parsing:  # the shell completes
            from kbroker.cli.completion import equip

            equip(command)
        return command

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The commands and options that begin so, from the table alone."""
        from click.shell_completion import CompletionItem

        found = [
            CompletionItem(name, help=entry[2])
            for name, entry in self.table.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands from the table alone."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry[2]) for name, entry in self.table.items()])

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Adds the nearest name to the error for one that is none."""
        known = args[0] in self.table or args[0] in _ALIASES or args[0].startswith("-")
        if known or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        meant = did_you_mean(args[0], self.table)
        raise click.UsageError(f"no such command {args[0]!r}{meant}", ctx)


ROOT_HELP = """A broker appliance for one machine that speaks the Apache Kafka protocol.

\b
  kbroker start --detach             run a broker
  echo hello | kbroker produce t     send a record to topic t
  kbroker consume t -e               print the topic and exit
"""


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line; returns the exit status."""
    root = LazyGroup("kbroker", ROOT, ROOT_HELP)
    if os.environ.get("_KBROKER_COMPLETE"):
        with contextlib.suppress(Exception, KeyboardInterrupt):  # nothing may show up in the shell
            importlib.import_module("kbroker.cli.completion")
            root.main([], prog_name="kbroker")
        return 1
    try:
        status = root.main(
            list(sys.argv[1:] if arguments is None else arguments),
            prog_name="kbroker",
            standalone_mode=False,
        )
        sys.stdout.flush()
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "kbroker"
        return _fail(f"{error.format_message()} (see `{command} --help`)", 2)
    except click.ClickException as error:
        return _fail(error.format_message())
    except (click.Abort, KeyboardInterrupt):
        return _fail("stopped", 130)
    except BrokenPipeError:  # the reader of our output has seen enough
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        place = f"{error.filename}: " if error.filename else ""
        return _fail(f"{place}{error.strerror or error}")
    except Exception as error:
        if not _is_mistake(error):
            raise
        return _fail(str(error))
    return status if isinstance(status, int) else 0


def _is_mistake(error: Exception) -> bool:
    """True for the kinds of failures whose text is meant for the user."""
    for module_name, name in (
        ("kbroker.errors", "KbrokerError"),
        ("kbroker.client.errors", "KafkaError"),
    ):
        module = sys.modules.get(module_name)
        if module is not None and isinstance(error, getattr(module, name)):
            return True
    return False


def _fail(text: str, status: int = 1) -> int:
    click.echo(f"kbroker: {text}", err=True)
    return status
