"""`kbroker backup`: create, restore and verify copies of the log directories of a broker."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kbroker.cli.directories import log_directories
from kbroker.cli.options import Folder, directories_option, output_option
from kbroker.cli.progress import Progress
from kbroker.cli.render import human_bytes, human_time, print_json

if TYPE_CHECKING:
    from kbroker.care.manifest import Incomplete

_INCOMPLETE_MAX = 20

_FOLDER = Folder(path_type=Path)
_BACKUP = click.Path(exists=True, file_okay=False, path_type=Path)


class _Read:
    """Bytes read so far, on a terminal's line."""

    def __init__(self) -> None:
        self.bytes = 0
        self._progress = Progress(shown=True)

    def __call__(self, more: int) -> None:
        self.bytes += more
        self._progress.read(self.bytes)

    def clear(self) -> None:
        """Takes the line away."""
        self._progress.clear()


@click.command()
@click.argument("target", metavar="BACKUP", type=_FOLDER)
@directories_option
@click.option("--since", metavar="BACKUP", type=_BACKUP,
              help="An earlier backup on the same disk: what has not changed is linked from it."
              " Each can be deleted without the other.")  # fmt: skip
@output_option
def create(target: Path, data_dir: tuple[Path, ...], since: Path | None, output: str) -> int:
    """Copy all log directories of a broker, which runs or not, as the new folder BACKUP.

    All that was acknowledged before is in it. Closed segments are cloned or hard-linked where the
    disk can, everything else is copied; BACKUP is there when it is complete and on disk. On the
    same disk it helps against mistakes, not against the loss of the disk.

    Exit status 1 with a BACKUP that is there: it lacks partitions, which are named. Their log
    directory is not there or is offline.
    """
    from kbroker.care.backup import create as create_backup

    (source, *further), read = log_directories(data_dir), _Read()
    try:
        made = create_backup(source, target, since, read, further)
    finally:
        read.clear()
    manifest = made.manifest
    told: dict[str, Any] = {
        "backup": str(target),
        "source": manifest.source,
        "further_dirs": [one.source for one in manifest.directories[1:]],
        "live": manifest.live,
        "cluster_id": manifest.cluster_id,
        "partitions": len(manifest.partitions),
        "incomplete": list(map(str, manifest.incomplete)),
        "records": sum(one.end - one.start for one in manifest.partitions),
        "files": len(manifest.files),
        "bytes": manifest.bytes,
        "bytes_by_way": made.bytes_by_way,
        "bytes_read": read.bytes,
        "took_ms": manifest.ended_ms - manifest.began_ms,
    }
    if output == "json":
        print_json(told)
        return 1 if manifest.incomplete else 0
    ways = ", ".join(f"{human_bytes(size)} {how}" for how, size in made.bytes_by_way.items())
    state = "while a broker served it" if manifest.live else "at rest"
    sources = ", ".join(one.source for one in manifest.directories)
    click.echo(f"{target}: {sources}, {state}")
    click.echo(
        f"{told['partitions']} partitions, {told['files']} files, {human_bytes(told['bytes'])}"
        f" ({ways}) in {human_time(told['took_ms'] / 1000)}"
    )
    _print_incomplete(manifest.incomplete)
    return 1 if manifest.incomplete else 0


def _print_incomplete(incomplete: Sequence[Incomplete]) -> None:
    for one in incomplete[:_INCOMPLETE_MAX]:
        click.echo(str(one), err=True)
    if len(incomplete) > _INCOMPLETE_MAX:
        click.echo(
            f"and {len(incomplete) - _INCOMPLETE_MAX} more: `kbroker backup verify` names all",
            err=True,
        )


@click.command()
@click.argument("backup", metavar="BACKUP", type=_BACKUP)
@click.argument("targets", metavar="DIR...", nargs=-1, required=True, type=_FOLDER)
def restore(backup: Path, targets: tuple[Path, ...]) -> None:
    """Bring BACKUP back as the data directory DIR, which is new or empty.

    A backup of several log directories takes one DIR for each of them: first that of the metadata
    log, the others in the order in which `create` named them.

    Every checksum is compared on the way. Run it as the user that the broker runs as, or as root:
    then all of it is the user's of DIR, or of BACKUP where DIR is new. The broker that DIR came
    from must not run beside the restored one: both are the same node.
    """
    from kbroker.care.restore import restore as restore_backup

    began, read = time.monotonic(), _Read()
    try:
        manifest = restore_backup(backup, targets, read)
    finally:
        read.clear()
    took_s = time.monotonic() - began
    click.echo(
        f"{', '.join(map(str, targets))}: {len(manifest.partitions)} partitions,"
        f" {len(manifest.files)} files, {human_bytes(manifest.bytes)} in {human_time(took_s)}"
    )
    _print_incomplete(manifest.incomplete)
    options = " ".join(f"--data-dir {target}" for target in targets)
    click.echo(f"`kbroker start {options}` serves it")


@click.command()
@click.argument("backup", metavar="BACKUP", type=_BACKUP)
@output_option
def verify(backup: Path, output: str) -> int:
    """Compare every file of BACKUP with the lengths and checksums of its manifest.

    Exit status 0: all of it is what it was, and no partition of the broker is missing.
    `kbroker log verify -D BACKUP/data` looks into the segments themselves; the further log
    directories are BACKUP/data.2 and so on.
    """
    from kbroker.care.manifest import read_manifest
    from kbroker.care.restore import verify as verify_backup

    read = _Read()
    try:
        faults = list(verify_backup(backup, read))
    finally:
        read.clear()
    manifest = read_manifest(backup)
    status = 1 if faults else 0
    if output == "json":
        print_json({"backup": str(backup), "files": len(manifest.files), "faults": faults})
        return status
    for fault in faults:
        click.echo(fault)
    verdict = f"{len(faults)} faults" if faults else "all good"
    click.echo(f"{len(manifest.files)} files, {human_bytes(manifest.bytes)}, {verdict}")
    return status
