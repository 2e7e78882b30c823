"""kafka-consumer-groups: list, describe, delete and reset groups (ConsumerGroupCommand).

As there, what fails at a broker is told on standard output and the status is 0; only mistakes in
the command line end with 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kbroker.cli.kafka.options import (
    Given,
    UsageError,
    check_invalid,
    check_required,
    flag,
    number,
    text,
)
from kbroker.cli.kafka.tool import Tool, open_cluster, say, shown, start, warn

if TYPE_CHECKING:
    from kbroker.client.cluster import Cluster

_ACTIONS = ("list", "describe", "delete", "reset-offsets", "delete-offsets", "validate-regex")
_LEVEL = ("list", "describe", "delete", "reset-offsets")
SCENARIOS = (
    "to-offset", "shift-by", "to-datetime", "by-duration", "to-earliest", "to-latest",
    "to-current", "from-file",
)  # fmt: skip
_STATES = (
    "PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning",
    "Reconciling",
)  # fmt: skip
_TYPES = ("Classic", "Consumer")

_OPTIONS = (
    text("bootstrap-server", "HOST:PORT", "Brokers to talk to; needed for all but"
         " --validate-regex."),
    text("command-config", "FILE", "Settings of the admin client, as properties."),
    text("group", "GROUP", "The group; may be given again."),
    text("topic", "TOPIC[:P,P]", "The topic whose offsets are reset or deleted, or some of its"
         " partitions; may be given again."),
    flag("all-topics", "Reset the offsets of all topics that the group has committed to."),
    flag("list", "List the groups of consumers."),
    flag("describe", "Show a group's offsets and how far they are behind."),
    flag("all-groups", "All groups of consumers."),
    flag("delete", "Delete groups with their offsets."),
    number("timeout", "MS", "How long a call may take.", bits=64, default=30_000),
    flag("reset-offsets", "Move the offsets of groups without members: name the groups, the topics"
         " or a file, and where to."),
    flag("delete-offsets", "Delete a group's offsets of topics that nobody in it reads."),
    flag("dry-run", "Only show where the offsets would be moved; what is done without --execute."),
    flag("execute", "Move the offsets."),
    flag("export", "Print the offsets as CSV, which --from-file reads."),
    number("to-offset", "OFFSET", "To this offset.", bits=64),
    text("from-file", "FILE", "To the offsets of a CSV file."),
    text("to-datetime", "TIME", "To the first record of this time or later:"
         " YYYY-MM-DDThh:mm:ss.sss, in UTC or with an offset."),
    text("by-duration", "DURATION", "To where time was so long ago: PnDTnHnMnS."),
    flag("to-earliest", "To the first offset."),
    flag("to-latest", "To the end."),
    flag("to-current", "To what is committed; where nothing is, to the end."),
    number("shift-by", "N", "So many offsets on, or with a minus back.", bits=64),
    flag("members", "Describe the members.", "describe"),
    flag("verbose", "Describe more.", "describe"),
    flag("offsets", "Describe the offsets, which is done without it too.", "describe"),
    text("state", "STATES", "Describe the group's state; with --list show states, and only groups"
         " in one of these.", "describe", "list", optional=True),
    text("type", "TYPES", "With --list show types, and only groups of one of these.", "list",
         optional=True),
    text("validate-regex", "REGEX", "Say whether brokers can read this expression (RE2)."),
)  # fmt: skip


def main() -> int:
    """The entry point."""
    return start(TOOL)


def _work(given: Given) -> int:
    _check(given)
    if sum(map(given.has, _ACTIONS)) != 1:
        actions = ", ".join(f"--{action}" for action in _ACTIONS)
        raise UsageError(f"Command must include exactly one action: {actions}")
    if given.has("validate-regex"):
        _validate(given.needed("validate-regex"))
        return 0
    for name in ("to-offset", "shift-by"):
        given.integer(name)  # numbers are looked at whether they are used or not
    server, file = given.needed("bootstrap-server"), given.value("command-config")
    with open_cluster(server, file, timeout_ms=given.integer("timeout")) as cluster:
        _act(cluster, given)
    return 0


def _act(cluster: Cluster, given: Given) -> None:
    if given.has("list"):
        _list(cluster, given)
    elif given.has("describe"):
        from kbroker.cli.kafka.group_describe import describe

        describe(cluster, given)
    elif given.has("delete"):
        _delete(cluster, given)
    elif given.has("reset-offsets"):
        from kbroker.cli.kafka.group_reset import reset

        reset(cluster, given)
    else:
        from kbroker.cli.kafka.group_delete_offsets import delete_offsets

        delete_offsets(cluster, given)


def _failed(given: Given, error: Exception) -> int:
    from kbroker.cli.kafka.java import error_text
    from kbroker.client.errors import KafkaError

    del given
    told = error_text(error) if isinstance(error, KafkaError) else str(error)
    print_error(f"Executing consumer group command failed due to {told}")
    return 0


def print_error(told: str) -> None:
    """An error as the tool tells it, on standard output."""
    say(f"\nError: {told}")


def named_groups(cluster: Cluster, given: Given) -> list[str]:
    """The groups of --group, or all groups of consumers."""
    if not given.has("all-groups"):
        return list(dict.fromkeys(given.values("group")))
    from kbroker.client.groups import list_groups

    return [group.group_id for group in list_groups(cluster) if group.consumes]


def _check(given: Given) -> None:
    if not given.has("validate-regex"):
        check_required(given, "bootstrap-server")
    for action in ("describe", "delete"):
        if given.has(action):
            _check_scope(given, action)
    if given.has("describe"):
        parts = ("members", "offsets", "state")
        if sum(map(given.has, parts)) > 1:
            told = ", ".join(f"[{part}]" for part in parts)
            raise UsageError(f"Option [describe] takes at most one of these options: {told}")
        if given.value("state") is not None:
            raise UsageError("Option [describe] does not take a value for [state]")
    if given.has("delete") and given.has("topic"):
        raise UsageError(
            "The consumer does not support topic-specific offset deletion from a consumer group."
        )
    if given.has("delete-offsets") and not (given.has("group") and given.has("topic")):
        raise UsageError(
            "Option [delete-offsets] takes the following options: [group], [topic]"
        )
    if given.has("reset-offsets"):
        _check_reset(given)
    check_invalid(given, "group", ["all-groups", "list"])
    check_invalid(given, "topic", ["list", "describe"])


def _check_scope(given: Given, action: str) -> None:
    if not given.has("group") and not given.has("all-groups"):
        raise UsageError(f"Option [{action}] takes one of these options: [group], [all-groups]")


def _check_reset(given: Given) -> None:
    if given.has("dry-run") and given.has("execute"):
        raise UsageError("Option [reset-offsets] only accepts one of [execute] and [dry-run]")
    if not given.has("dry-run") and not given.has("execute"):
        warn("WARN: No action will be performed as the --execute option is missing. Kafka 5.0 will"
             " want either --dry-run or --execute.")  # fmt: skip
    _check_scope(given, "reset-offsets")
    for scenario in SCENARIOS:
        check_invalid(given, scenario, [other for other in SCENARIOS if other != scenario])


def _list(cluster: Cluster, given: Given) -> None:
    from kbroker.client.groups import list_groups

    shows_type, shows_state = given.has("type"), given.has("state")
    types = _parsed(given.value("type"), _TYPES, "types")
    states = _parsed(given.value("state"), _STATES, "state")
    groups = list_groups(cluster, states=states, types=types)
    if not shows_type and not shows_state:
        for group in groups:
            if group.consumes:
                say(shown(group.group_id))
        return
    # With a filter of its own the tool tells of all types; the protocol must be consumers' still.
    groups = [group for group in groups if group.protocol_type in ("", "consumer")]
    width = max([15, *(len(group.group_id) for group in groups)]) + 10
    rows = [("GROUP", "TYPE", "STATE")]
    rows += [
        (group.group_id, group.group_type.capitalize() or "Unknown", group.state or "Unknown")
        for group in groups
    ]
    for name, kind, state in rows:
        columns = [f"{shown(name):<{width}}"]
        columns += [f"{kind:<20}"] if shows_type else []
        columns += [f"{state:<20}"] if shows_state else []
        say(" ".join(columns))


def _parsed(told: str | None, known: tuple[str, ...], what: str) -> list[str]:
    """Names with commas between them, in any case, spelt as brokers have them."""
    if not told:
        return []
    spelt = {name.lower(): name for name in known}
    names = [word.strip().lower() for word in told.split(",")]
    if any(name not in spelt for name in names):
        kind = "states" if what == "state" else what
        raise UsageError(f"Invalid {what} list '{told}'. Valid {kind} are: {', '.join(known)}")
    return list(dict.fromkeys(spelt[name] for name in names))


def _delete(cluster: Cluster, given: Given) -> None:
    from kbroker.cli.kafka.java import full_error_text
    from kbroker.client.groups import delete_groups

    told = delete_groups(cluster, named_groups(cluster, given))
    gone = ", ".join(f"'{shown(group)}'" for group, error in sorted(told.items()) if error is None)
    failed = {group: error for group, error in sorted(told.items()) if error is not None}
    if not failed:
        say(f"Deletion of requested consumer groups ({gone}) was successful.")
        return
    print_error("Deletion of some consumer groups failed:")
    for group, error in failed.items():
        say(f"* Group '{shown(group)}' could not be deleted due to: {full_error_text(error)}")
    if gone:
        say(f"\nThese consumer groups were deleted successfully: {gone}")


def _validate(expression: str) -> None:
    import re2

    options = re2.Options()
    options.log_errors = False
    try:
        re2.compile(expression, options)
    except re2.error as error:
        told = error.args[0]
        told = told.decode() if isinstance(told, bytes) else str(told)
        reason = next((ours for theirs, ours in _RE2 if told.startswith(theirs)), told)
        say(f"The regular expression `{expression}` is invalid: {reason}.")
    else:
        say(f"The regular expression `{expression}` is valid.")


# What RE2 says of an expression, and what its port to Java says.
_RE2 = (
    ("missing ]", "missing closing ]"),
    ("missing )", "missing closing )"),
    ("unexpected )", "regexp/syntax: internal error"),
    ("no argument for repetition operator", "missing argument to repetition operator"),
    ("bad repetition operator", "invalid nested repetition operator"),
    ("invalid escape sequence", "invalid escape sequence"),
    ("invalid character class range", "invalid character class range"),
    ("invalid character class", "invalid character class"),
    ("invalid perl operator", "invalid or unsupported Perl syntax"),
    ("invalid named capture group", "invalid named capture"),
    ("trailing \\", "trailing backslash at end of expression"),
    ("invalid repetition size", "invalid repeat count"),
)

TOOL = Tool(
    "List, describe, reset and delete groups of consumers.", _OPTIONS, _work, _failed
)
