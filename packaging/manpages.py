"""`python manpages.py FOLDER`: manual pages of all commands, from the command line itself.

`kbroker` and each group have a page that lists what is below; each command has its own, with text
and options as its help has them. Kafka's scripts have one each, with what their --help prints.
"""

from __future__ import annotations

import inspect
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Final

import click

from kbroker import __version__
from kbroker.cli import tree
from kbroker.cli.root import root_group

FOLDER_MODE: Final = 0o755


def escaped(text: str) -> str:
    """Text as roff takes it: nothing in it is a request or an escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    return "\n".join(f"\\&{line}" if line[:1] in (".", "'") else line for line in text.split("\n"))


def page(name: str, brief: str, sections: list[tuple[str, str]]) -> str:
    """A page of section 1."""
    head = f'.TH "{name.upper()}" "1" "" "kbroker {__version__}" "kbroker"\n'
    text = f"{head}.SH NAME\n{escaped(name)} \\- {escaped(brief.rstrip('.'))}\n"
    return text + "".join(f".SH {title}\n{body.rstrip()}\n" for title, body in sections if body)


def prose(help_text: str) -> str:
    """The text of a help: paragraphs, and as they are those that begin with \\b."""
    parts = []
    for paragraph in inspect.cleandoc(help_text).split("\n\n"):
        if paragraph.startswith("\b"):
            parts.append(f".PP\n.nf\n{escaped(paragraph[1:].strip(chr(10)))}\n.fi")
        else:
            parts.append(f".PP\n{escaped(paragraph)}")
    return "\n".join(parts)


def options(command: click.Command, context: click.Context) -> str:
    """The options of a command, with what they say."""
    found = [one.get_help_record(context) for one in command.get_params(context)]
    return "\n".join(
        f".TP\n\\fB{escaped(names)}\\fR\n{escaped(told)}" for names, told in filter(None, found)
    )


def usage(command: click.Command, context: click.Context) -> str:
    """The line of a synopsis."""
    pieces = " ".join(command.collect_usage_pieces(context))
    return f"\\fB{escaped(context.command_path)}\\fR {escaped(pieces)}"


def table(commands: tree.Commands, prefix: str) -> str:
    """Commands with what they are for, and where more is said."""
    lines = []
    for name, entry in commands.items():
        see = escaped(f"{prefix}-{name}")
        lines.append(f".TP\n\\fB{escaped(name)}\\fR\n{escaped(entry[2])} See \\fB{see}\\fR(1).")
    return "\n".join(lines)


def pages() -> dict[str, str]:
    """Text by the name of the file."""
    made = {}
    root = root_group()
    todo: list[tuple[click.Command, click.Context, str, tree.Commands | None]] = []
    top = click.Context(root, info_name="kbroker")
    todo.append((root, top, tree.ROOT_HELP, tree.ROOT))
    for name, (_, attribute, brief) in tree.ROOT.items():
        command = root.get_command(top, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=top)
        below = tree.GROUPS.get(attribute) if isinstance(command, click.Group) else None
        todo.append((command, context, brief, below))
        for inner_name, entry in (below or {}).items():
            assert isinstance(command, click.Group)
            inner = command.get_command(context, inner_name)
            assert inner is not None
            inside = click.Context(inner, info_name=inner_name, parent=context)
            todo.append((inner, inside, entry[2], None))
    for command, context, brief, below in todo:
        name = context.command_path.replace(" ", "-")
        text = tree.ROOT_HELP if command is root else command.help or brief
        first = brief.strip().split("\n")[0]
        sections = [("SYNOPSIS", usage(command, context)), ("DESCRIPTION", prose(text))]
        if below:
            sections.append(("COMMANDS", table(below, name)))
        sections.append(("OPTIONS", options(command, context)))
        if name != "kbroker":
            assert context.parent is not None
            above = context.parent.command_path.replace(" ", "-")
            sections.append(("SEE ALSO", f"\\fB{escaped(above)}\\fR(1)"))
        else:
            sections.append(("FILES", FILES))
        made[f"{name}.1"] = page(name, first, sections)
    return made


FILES: Final = """\
.TP
/etc/kbroker/server.properties
Settings of kbroker.service; \\fBkbroker\\-config\\-explain\\fR(1) says what one means.
.TP
/etc/default/kbroker
Options of its start.
.TP
/var/lib/kbroker
Its data."""


def script_pages() -> dict[str, str]:
    """The pages of Kafka's scripts."""
    made = {}
    for one in entry_points(group="console_scripts"):
        if one.dist is None or one.dist.name != "kbroker" or one.name == "kbroker":
            continue
        module, _, function = one.value.partition(":")
        code = f"import sys; from {module} import {function}; sys.exit({function}())"
        command = [sys.executable, "-I", "-c", code, "--help"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        text = (done.stdout + done.stderr).strip()
        brief = f"Apache Kafka's {one.name} without a JVM"
        same = "Flags, output and exit statuses are those of Apache Kafka 4.3."
        body = f"{same}\n.PP\n.nf\n{escaped(text)}\n.fi"
        made[f"{one.name}.1"] = page(one.name, brief, [("DESCRIPTION", body)])
    return made


def main(folder: Path) -> None:
    """Write them all."""
    folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    for name, text in (pages() | script_pages()).items():
        (folder / name).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
