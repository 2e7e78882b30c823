"""The tree of commands as tables, and its help. Free of click: who only asks what there is does not
wait for more.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["ALIASES", "GROUPS", "ROOT", "ROOT_HELP", "Commands", "plain_help"]

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
    "user": ("", "USER", "List, create and delete users, change passwords."),
    "txn": ("", "TXN", "List, describe, find and abort transactions."),
    "acl": ("", "ACL", "List, create and delete ACLs: who may do what."),
    "cluster": ("", "CLUSTER", "Show brokers, health, APIs, log directories, features, quorum."),
    "config": ("", "CONFIG", "Show, change, check and explain the broker's settings."),
    "quota": ("", "QUOTA", "List, set and delete quotas of users, client ids and addresses."),
    "log": ("", "LOG", "Read, check and mend the segment files of a data directory."),
    "backup": ("", "BACKUP", "Copy a data directory, live or at rest, and bring it back."),
    "top": ("top", "top", "Watch a broker: rates, lag, disk, latencies."),
    "dashboard": ("", "DASHBOARD", "Print dashboards and alert rules for the broker's metrics."),
    "bench": ("", "BENCH", "Measure producing, consuming and the way through."),
    "check": ("check", "check", "Check settings, disk and limits, and the broker that runs."),
    "cert": ("", "CERT", "Make certificates for TLS."),
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
    "browse": ("browse", "browse", "Look for records by key, header, offset, time or text."),
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
TXN: Commands = {
    "list": ("txn", "list_all", "List transactional ids."),
    "describe": ("txn", "describe", "Show a transaction's producer, state and partitions."),
    "find-hanging": ("txn", "find_hanging", "Find transactions that nobody will end."),
    "abort": ("txn", "abort", "End a transaction in a partition."),
}
USER: Commands = {
    "list": ("user", "list_users", "List users with what they can log in with."),
    "create": ("user", "create", "Create a user, who logs in with SCRAM."),
    "delete": ("user", "delete", "Delete users."),
    "passwd": ("user", "passwd", "Give a user another password."),
}
ACL: Commands = {
    "list": ("acl", "list_acls", "List ACLs."),
    "create": ("acl", "create", "Allow or deny principals something."),
    "delete": ("acl", "delete", "Delete ACLs."),
}
CLUSTER: Commands = {
    "info": ("cluster", "info", "Show the cluster's id and its brokers."),
    "health": ("cluster_health", "health", "Show whether the cluster is well."),
    "api-versions": ("cluster", "api_versions", "Show which APIs brokers answer."),
    "logdirs": ("cluster", "logdirs", "Show log directories and what is free."),
    "features": ("cluster", "features", "Show features and their levels."),
    "quorum": ("cluster_quorum", "quorum", "Show who holds the metadata log."),
}
CONFIG: Commands = {
    "show": ("config", "show", "Show the settings a broker would run with."),
    "get": ("config_dynamic", "get_values", "Show the settings of a running broker."),
    "set": ("config_dynamic", "set_values", "Change settings of running brokers."),
    "validate": ("config", "validate", "Check a server.properties file."),
    "explain": ("config", "explain", "Say what a setting means, its type, range and default."),
}
QUOTA: Commands = {
    "list": ("quota", "list_all", "List quotas."),
    "set": ("quota", "set_values", "Set quotas of a user, a client id, both, or an address."),
    "delete": ("quota", "delete", "Delete quotas."),
}
LOG: Commands = {
    "dump": ("log", "dump", "Print the batches or records of segment files."),
    "verify": ("log_care", "verify", "Check segment files and what belongs to them."),
    "repair": ("log_care", "repair", "Mend segment files: only what is asked for."),
    "sizes": ("sizes", "sizes", "Show where the space is: topics, journal, metadata, free."),
    "strays": ("strays", "strays", "List folders that belong to no partition."),
    "stray-delete": ("strays", "stray_delete", "Delete folders that belong to no partition."),
}
BACKUP: Commands = {
    "create": ("backup", "create", "Copy a data directory; a broker may run on it."),
    "restore": ("backup", "restore", "Bring a backup back as a new data directory."),
    "verify": ("backup", "verify", "Compare a backup with its manifest."),
}
BENCH: Commands = {
    "produce": ("bench", "produce", "How fast records are sent and acknowledged."),
    "consume": ("bench", "consume", "How fast records are read."),
    "e2e": ("bench", "e2e", "How long a record takes from send to poll, at a rate."),
    "locust": ("bench_locust", "locust", "Load it with Locust's users, in a shape, and judge."),
}
CERT: Commands = {
    "create": ("cert", "create", "Make a CA and what it signs for a server or a client."),
}
DASHBOARD: Commands = {
    "export": ("dashboard", "export", "Print or write dashboards for Grafana."),
    "alerts": ("dashboard", "alerts", "Print or write alert rules for Prometheus."),
}
PROFILE: Commands = {
    "create": ("profile", "create", "Create a profile."),
    "use": ("profile", "use", "Use a profile from now on."),
    "list": ("profile", "list_profiles", "List profiles."),
    "show": ("profile", "show", "Show a profile's settings, secrets hidden."),
    "edit": ("profile", "edit", "Change settings of a profile."),
    "delete": ("profile", "delete", "Delete profiles."),
}
GROUPS = {
    "TOPIC": TOPIC,
    "GROUP": GROUP,
    "TXN": TXN,
    "ACL": ACL,
    "USER": USER,
    "CLUSTER": CLUSTER,
    "CONFIG": CONFIG,
    "QUOTA": QUOTA,
    "LOG": LOG,
    "DASHBOARD": DASHBOARD,
    "BACKUP": BACKUP,
    "BENCH": BENCH,
    "CERT": CERT,
    "PROFILE": PROFILE,
}
ALIASES = {
    "acls": "acl",
    "topics": "topic",
    "groups": "group",
    "seek": "reset",
    "configs": "config",
    "logs": "log",
    "backups": "backup",
    "profiles": "profile",
    "quotas": "quota",
}

ROOT_HELP = """A broker appliance for one machine that speaks the Apache Kafka protocol.

\b
  kbroker start --detach             run a broker
  echo hello | kbroker produce t     send a record to topic t
  kbroker consume t -e               print the topic and exit
"""

_WIDTH_MAX = 100  # as click's max_content_width
_WIDTH_UNKNOWN = 80


def plain_help(words: Sequence[str]) -> str | None:
    """What `kbroker [GROUP] [--help]` prints, letter by letter as click would; None for other
    words, and where a line would have to be broken."""
    asked = list(words[:-1]) if words[-1:] in (["-h"], ["--help"]) else list(words)
    if not asked:
        name, table, text = "kbroker", ROOT, ROOT_HELP
        own = ["  --version   Show the version and exit."]
    else:
        entry = ROOT.get(ALIASES.get(asked[0], asked[0]))
        if entry is None or entry[0] or len(asked) > 1:
            return None
        name, table, text = f"kbroker {asked[0]}", GROUPS[entry[1]], entry[2]
        own = []
    longest = max(map(len, table))
    lines = [
        f"Usage: {name} [OPTIONS] COMMAND [ARGS]...",
        "",
        *(f"  {line}".rstrip() for line in text.rstrip().split("\n") if line != "\b"),
        "",
        "Options:",
        *own,
        "  -h, --help  Show this message and exit.",
        "",
        "Commands:",
        *(f"  {command.ljust(longest)}  {entry[2]}" for command, entry in table.items()),
    ]
    return "\n".join(lines) if max(map(len, lines)) <= _columns() - 2 else None


def _columns() -> int:
    """Of the terminal, as shutil finds them."""
    told = os.environ.get("COLUMNS", "")
    if told.isascii() and told.isdigit() and int(told) > 0:
        return min(int(told), _WIDTH_MAX)
    try:
        found = os.get_terminal_size(sys.__stdout__.fileno()).columns if sys.__stdout__ else 0
    except (OSError, ValueError):
        found = 0
    return min(found or _WIDTH_UNKNOWN, _WIDTH_MAX)
