"""`kbroker completion`: the shell's half of completion, and the names that commands complete.

The shell runs `kbroker` with _KBROKER_COMPLETE set; click finds what is to be completed. Whatever
has the metavar TOPIC, GROUP, PROFILE or KEY (with `...`, `[ ]` around it) completes to such names:
`equip` sees to it when a command is loaded for completion. Topics and groups are asked of the
broker that the words before name, within a second ($KBROKER_COMPLETION_TIMEOUT, seconds); what
fails, or comes later, completes to nothing, silently.
"""

from __future__ import annotations

import logging
import os
import re
import threading
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    add_completion_class,
    get_completion_class,
    split_arg_string,
)

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster

__all__ = ["completion", "equip"]

_LIMIT_S = 1.0
_KIND = re.compile(r"\[?(TOPIC|GROUP|PROFILE|KEY|T\[:P,)\W*")
_VARIABLE = "_KBROKER_COMPLETE"

_HOW = """\b
  bash   eval "$(kbroker completion bash)"       in ~/.bashrc
  zsh    eval "$(kbroker completion zsh)"        in ~/.zshrc, behind compinit
  fish   kbroker completion fish | source        in ~/.config/fish/config.fish
"""


# Bash breaks words at `:` and `=`, as in HOST:PORT; the line so far is read here instead.
_BASH = """\
%(complete_func)s() {
    local type value
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            plain) COMPREPLY+=("$value") ;;
            file) compopt -o default ;;
            dir) compopt -o dirnames ;;
        esac
    done < <(KBROKER_LINE="${COMP_LINE:0:COMP_POINT}" %(complete_var)s=bash_complete "$1")
}
complete -o nosort -F %(complete_func)s %(prog_name)s
"""


# As click's, but a line is split at its first comma alone: what a command is for has some, too.
_FISH = """\
function %(complete_func)s
    for completion in (env %(complete_var)s=fish_complete COMP_WORDS=(commandline -cp) \
COMP_CWORD=(commandline -t) %(prog_name)s)
        set -l metadata (string split -m 1 "," $completion)
        switch $metadata[1]
            case dir
                __fish_complete_directories $metadata[2]
            case file
                __fish_complete_path $metadata[2]
            case plain
                echo $metadata[2]
        end
    end
end
complete --no-files --command %(prog_name)s --arguments "(%(complete_func)s)"
"""


class _Fish(FishComplete):
    source_template = _FISH


class _Bash(BashComplete):
    source_template = _BASH

    def source(self) -> str:
        """The script, whichever bash is to read it."""
        return self.source_template % self.source_vars()

    def get_completion_args(self) -> tuple[list[str], str]:
        """The whole words behind `kbroker`, and the one that is begun."""
        line = os.environ.get("KBROKER_LINE", "")
        words = split_arg_string(line)
        begun = words.pop() if words and not line[-1:].isspace() else ""
        return words[1:], begun


add_completion_class(_Bash)
add_completion_class(_Fish)


@click.command(help=f"Print what a shell needs to complete commands, topics and groups.\n\n{_HOW}")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """See the decorator."""
    made = get_completion_class(shell)
    assert made is not None
    root = click.Group("kbroker")
    click.echo(made(root, {}, "kbroker", _VARIABLE).source(), nl=False)


class _Names(click.types.StringParamType):
    """Text that completes to names."""

    def __init__(self, find: Callable[[str, click.Context], Iterable[str]]) -> None:
        self.find = find

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """The names that begin so and are not given yet."""
        given = ctx.params.get(param.name or "")
        there = set(given) if isinstance(given, tuple) else set()
        found = _within(lambda: self.find(incomplete, ctx))
        return [
            CompletionItem(name)
            for name in found
            if name.startswith(incomplete) and name not in there
        ]


def equip(command: click.Command) -> None:
    """Has the parameters of a command complete to names."""
    for param in command.params:
        kind = _KIND.fullmatch(param.metavar or "")
        if kind is not None and isinstance(param.type, click.types.StringParamType):
            param.type = _Names(_FINDERS[kind[1]])


def _within(find: Callable[[], Iterable[str]]) -> list[str]:
    """What is found in time, in order; a thread that waits longer ends with the process."""
    logging.disable()
    found: list[str] = []

    def run() -> None:
        try:
            found.extend(sorted(find()))
        except Exception:
            found.clear()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(_limit_s())
    return [] if thread.is_alive() else found


def _limit_s() -> float:
    return float(os.environ.get("KBROKER_COMPLETION_TIMEOUT") or _LIMIT_S)


def _topics(incomplete: str, ctx: click.Context) -> Iterable[str]:
    with _cluster(ctx) as cluster:
        internal = incomplete.startswith("_")
        return [topic.name for topic in cluster.topics(internal=internal)]


def _groups(_: str, ctx: click.Context) -> Iterable[str]:
    from kbroker.client.groups import list_groups

    with _cluster(ctx) as cluster:
        return [group.group_id for group in list_groups(cluster)]


def _cluster(ctx: click.Context) -> Cluster:
    """The broker that the words before name."""
    from kbroker.cli.options import open_cluster

    with ctx.scope(cleanup=False):
        return open_cluster(ctx.params.get("bootstrap"), timeout_s=_limit_s())


def _profiles(*_: object) -> Iterable[str]:
    from kbroker.cli.profiles import read_profiles

    return read_profiles().settings


def _broker_settings(*_: object) -> Iterable[str]:
    from kbroker.config.definitions import BROKER, TOPIC

    return {*BROKER, *TOPIC}


_FINDERS: dict[str, Callable[[str, click.Context], Iterable[str]]] = {
    "TOPIC": _topics,
    "T[:P,": _topics,
    "GROUP": _groups,
    "PROFILE": _profiles,
    "KEY": _broker_settings,
}
