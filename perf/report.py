"""Two Markdown tables, against the targets and beside the peers, and their place in README.md."""

from __future__ import annotations

import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from perf.lifecycle import Measured
from perf.native import ROOT
from perf.rows import FORMATS, ROWS, Row, Target
from perf.series import Results, median
from perf.systems import BY_NAME as SYSTEMS_BY_NAME

README = ROOT / "README.md"

PEERS = ("floor", "kbroker-page-cache", "kafka", "floor-sync", "kbroker-fsync", "kafka-flush",
         "tansu")  # fmt: skip
NOTHING = "-"


def written(figure: str, value: float | None) -> str:
    return NOTHING if value is None else FORMATS[figure][0].format(value)


def shown(results: Results, row: Row, system: str) -> str:
    """A cell: the row's figures of a system."""
    values = [median(results, row.name, system, figure) for figure in row.shown]
    if all(value is None for value in values):
        return NOTHING
    return "; ".join(
        written(figure, value) for figure, value in zip(row.shown, values, strict=True)
    )


def judged(results: Results, row: Row, system: str, target: Target) -> str:
    """A target and how it was met: `0.81x floor of at most 3x`; what is missed stands out."""
    value = median(results, row.name, system, target.figure)
    reference = median(results, row.name, target.of, target.figure) if target.of else None
    limit = target.limit(reference)
    bound = f"{'at least' if target.at_least else 'at most'} {target.bound:,g}"
    unit = FORMATS[target.figure][1]
    if target.of is None:
        wanted, met = f"{bound} {unit}", written(target.figure, value)
    else:
        wanted = f"{bound}x {SYSTEMS_BY_NAME[target.of].title}"
        met = f"{value / reference:.2f}x" if value is not None and reference else NOTHING
    if value is None or limit is None:
        return f"{wanted}: not measured"
    if target.holds(value, limit):
        return f"{met}, {wanted}"
    return f"**{met}, {wanted}: missed**"


def targets_table(results: Results) -> list[str]:
    """Both durabilities against their floors and targets."""
    lines = ["| row | what is shown | floor | kbroker, page-cache | target | floor, synced "
             "| kbroker, fsync | target |", "|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for row in ROWS:
        cells = [row.name, "; ".join(FORMATS[figure][1] for figure in row.shown),
                 shown(results, row, "floor")]  # fmt: skip
        floors = {"kbroker-page-cache": None, "kbroker-fsync": "floor-sync"}
        for system, targets in (("kbroker-page-cache", row.page_cache),
                                ("kbroker-fsync", row.fsync)):  # fmt: skip
            floor = floors[system]
            if floor:
                cells.append(shown(results, row, floor))
            cells.append(shown(results, row, system))
            cells.append("; ".join(judged(results, row, system, target) for target in targets))
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def peers_table(results: Results, systems: Sequence[str]) -> list[str]:
    """Every system beside every other."""
    titles = [SYSTEMS_BY_NAME[name].title for name in systems]
    lines = ["| row | " + " | ".join(titles) + " |", "|---" * (len(titles) + 1) + "|"]
    for row in ROWS:
        label = f"{row.name}: {'; '.join(FORMATS[figure][1] for figure in row.shown)}"
        cells = [shown(results, row, system) for system in systems]
        lines.append("| " + " | ".join((label, *cells)) + " |")
    largest = [median_rss(results, system) for system in systems]
    lines.append("| MB resident after the last row | " + " | ".join(largest) + " |")
    return lines


def median_rss(results: Results, system: str) -> str:
    for row in reversed(ROWS):
        value = median(results, row.name, system, "rss_mb")
        if value is not None:
            return f"{value:,.0f}"
    return NOTHING


def life_table(measured: Sequence[Measured]) -> list[str]:
    """Start, idle and scale."""
    lines = ["| what | system | measured | target |", "|---|---|---|---|"]
    for one in measured:
        lines.append(f"| {one.what} | {one.system} | {one.text()} | {one.verdict()} |")
    return lines


def machine() -> str:
    """The machine in one line."""
    cpus = Path("/proc/cpuinfo").read_text()
    models = [line.split(":", 1)[1].strip() for line in cpus.splitlines() if "model name" in line]
    model = models[0] if models else platform.machine()
    return f"{len(models) or '?'} x {model}, Linux {platform.release().split('-')[0]}"


def report(
    results: Results, measured: Sequence[Measured], missing: Mapping[str, str], command: str,
    taken: str,
) -> str:
    """What stands between the marker comments."""
    systems = [name for name in PEERS if name not in missing]
    parts = [
        f"{command} on {machine()}; {taken}. "
        "[perf/README.md](perf/README.md) says what the rows send and how to read them.",
        "\n".join(targets_table(results)),
        "Beside others:",
        "\n".join(peers_table(results, systems)),
    ]
    if measured:
        parts += ["Start, idle, scale:", "\n".join(life_table(measured))]
    parts += [f"Not measured: {why}." for why in missing.values()]
    return "\n\n".join(parts) + "\n"


def replace_in_readme(text: str, name: str = "perf", readme: Path = README) -> None:
    """Puts the text between the marker comments of that name."""
    first, last = (f"<!-- {name}: {which} -->" for which in ("begin", "end"))
    before, begin, rest = readme.read_text().partition(first)
    _, end, after = rest.partition(last)
    if not begin or not end:
        raise SystemExit(f"{readme} lacks {first} or {last}")
    readme.write_text(f"{before}{first}\n{text}{last}{after}")
