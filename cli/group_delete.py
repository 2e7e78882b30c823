"""`kbroker group delete` and `kbroker group offset-delete`."""

from __future__ import annotations

import click

from kbroker.cli.group_scope import active, consumer_groups, parse_topics
from kbroker.cli.options import bootstrap_option, open_cluster
from kbroker.cli.render import say


@click.command()
@click.argument("names", metavar="[GROUP...]", nargs=-1)
@bootstrap_option
@click.option("--all-groups", "-a", "every", is_flag=True, help="All groups.")
@click.option("--if-exists", is_flag=True, help="No error where it does not exist.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
def delete(
    names: tuple[str, ...], bootstrap: str | None, every: bool, if_exists: bool, dry_run: bool
) -> int:
    """Delete groups with their committed offsets; those with members are refused."""
    if bool(names) == every:
        raise click.UsageError("give either GROUP or --all-groups")
    failed = 0
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.errors import BrokerError
        from kbroker.client.groups import delete_groups, describe_groups
        from kbroker.errors import ErrorCode

        wanted = consumer_groups(cluster) if every else list(dict.fromkeys(names))
        found: dict[str, BrokerError | None] = {}
        if dry_run:
            there = describe_groups(cluster, wanted)
            for name in wanted:
                code = ErrorCode.NON_EMPTY_GROUP if active(there.get(name)) else None
                code = code if name in there else ErrorCode.GROUP_ID_NOT_FOUND
                found[name] = BrokerError(code, f"group {name!r}") if code else None
        else:
            found = delete_groups(cluster, wanted)
        for name, error in found.items():
            if error is None:
                say(f"group {name} {'would be ' if dry_run else ''}deleted")
            elif if_exists and error.code == ErrorCode.GROUP_ID_NOT_FOUND:
                say(f"group {name} does not exist")
            else:
                say(f"kbroker: {error}", err=True)
                failed = 1
    return failed


@click.command()
@click.argument("name", metavar="GROUP")
@bootstrap_option
@click.option("--topic", "-t", "topics", multiple=True, metavar="T[:P,...]", help="These alone.")
@click.option("--all-topics", is_flag=True, help="Every topic it has offsets of.")
@click.option("--dry-run", is_flag=True, help="Only say what would be deleted.")
def offset_delete(
    name: str, bootstrap: str | None, topics: tuple[str, ...], all_topics: bool, dry_run: bool
) -> int:
    """Delete committed offsets of a group; a topic that members subscribe to is refused."""
    if bool(topics) == all_topics:
        raise click.UsageError("give either --topic or --all-topics")
    scope = parse_topics(topics)
    failed = 0
    with open_cluster(bootstrap) as cluster:
        from kbroker.client.errors import BrokerError
        from kbroker.client.group_offsets import committed_offsets, delete_offsets
        from kbroker.client.groups import describe_groups
        from kbroker.errors import ErrorCode

        if name not in describe_groups(cluster, [name]):
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {name!r}")
        committed = committed_offsets(cluster, [name])[name]
        meant = list(committed)
        if not all_topics:
            meant = [
                (topic, index)
                for topic, indexes in scope
                for index in indexes or [at for of, at in committed if of == topic] or [-1]
            ]
        there = [key for key in dict.fromkeys(meant) if key in committed]
        told = dict.fromkeys(there) if dry_run else delete_offsets(cluster, name, there)
        for key in dict.fromkeys(meant):
            place, error = key[0] if key[1] < 0 else f"{key[0]}-{key[1]}", told.get(key)
            if key not in committed:
                say(f"{place} has no offset in group {name}")
            elif error is None:
                would = "would be " if dry_run else ""
                say(f"{place} offset {committed[key].offset} {would}deleted")
            else:
                say(f"kbroker: {error}", err=True)
                failed = 1
    return failed
