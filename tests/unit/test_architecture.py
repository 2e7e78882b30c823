"""ARCHITECTURE.md against the folders that it describes."""

from __future__ import annotations

import re

from tests.support.tree import ROOT

CLIENT = ROOT / "kbroker" / "client"


def test_architecture_names_each_module_of_the_client() -> None:
    """In the table of the section on modules, or elsewhere; and the table names no other."""
    text = (ROOT / "ARCHITECTURE.md").read_text()
    section = text.split("## The client: modules\n")[1].split("\n## ")[0]
    columns = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    table = re.findall(r"`([a-z_/]+)`", " ".join(columns))
    modules = {
        str(path.relative_to(CLIENT).with_suffix(""))
        for path in (*CLIENT.glob("*.py"), *CLIENT.glob("group/*.py"))
        if path.name != "__init__.py"
    }
    assert len(table) == len(set(table)) and not set(table) - modules
    elsewhere = set(re.findall(r"`(?:kbroker/client/)?([a-z_/]+)(?:\.py)?`", text))
    assert not modules - elsewhere
