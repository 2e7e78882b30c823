"""How commands are found and run, and how one that fails ends. The tree of them is tree.py's.

Exit status: 0 done, 1 failed, 2 wrong usage, of `start` 78 for wrong settings. A failure that a
user can meet is one line on stderr that says what to do; a traceback means a bug of ours.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import io
import os
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from kbroker import __version__
from kbroker.cli.nearest import did_you_mean
from kbroker.cli.streams import closed, forget_unwritten
from kbroker.cli.tree import ALIASES, GROUPS, ROOT, ROOT_HELP, Commands
from kbroker.printable import escaped

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

__all__ = ["LazyGroup", "root_group", "run"]

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
        entry = self.table.get(ALIASES.get(cmd_name, cmd_name))
        if entry is None:
            return None
        module, attribute, help_text = entry
        if not module:
            return LazyGroup(cmd_name, GROUPS[attribute], help_text)
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
        known = args[0] in self.table or args[0] in ALIASES or args[0].startswith("-")
        if known or ctx.resilient_parsing:
            return super().resolve_command(ctx, args)
        meant = did_you_mean(args[0], self.table)
        raise click.UsageError(f"no such command {args[0]!r}{meant}", ctx)


def root_group() -> LazyGroup:
    """`kbroker` itself."""
    root = LazyGroup("kbroker", ROOT, ROOT_HELP)
    told = click.version_option(
        __version__, message="kbroker %(version)s", help="Show the version and exit."
    )
    return told(root)


def run(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line; returns the exit status."""
    root = root_group()
    if os.environ.get("_KBROKER_COMPLETE"):
        with contextlib.suppress(Exception, KeyboardInterrupt):  # nothing may show up in the shell
            importlib.import_module("kbroker.cli.completion")
            root.main([], prog_name="kbroker")
        return 1
    # What a terminal that is not UTF-8 cannot show is shown as an escape.
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")
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
        return _fail(error.format_message(), error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _fail("stopped", 130)
    except BrokenPipeError:  # the reader of our output has seen enough
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        return _fail(f"{_place(error)}{error.strerror or error}")
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


def _place(error: OSError) -> str:
    """Where it happened, as far as that is known."""
    unwritten = forget_unwritten()
    if error.filename:
        return f"{error.filename}: "
    if error.errno == errno.EBADF and closed:
        return f"{' or '.join(closed)}: "
    return "standard output: " if unwritten else ""


def _fail(text: str, status: int = 1) -> int:
    click.echo("\n".join(escaped(line) for line in f"kbroker: {text}".split("\n")), err=True)
    return status
