"""Imports go down only: see layers.py."""

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.support.tree import CYTHON, files_with, module_name, text_of
from tests.unit.layers import LAYERS

ROOMS = {"kbroker", "ext", "cli", "perf", "examples", "pyspark_kbroker"}

CYTHON_FROM = re.compile(r"^\s*from\s+([\w.]+)\s+c?import\s+(\([^)]*\)|[^#\n]*)", re.MULTILINE)
CYTHON_PLAIN = re.compile(
    r"^\s*c?import\s+([\w.]+(?:\s+as\s+\w+)?(?:\s*,\s*[\w.]+)*)", re.MULTILINE
)
STRING = re.compile(r'("""|\'\'\').*?\1', re.DOTALL)


def imports_of_python(text, module, is_package):
    """Names of modules that Python source imports; `from a import b` may mean `a` or `a.b`."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from ((alias.name,) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                up = node.level - is_package
                parent = module.split(".")[: -up or None]
                base = ".".join([*parent, *base.split(".")]).strip(".")
            yield from ((f"{base}.{alias.name}", base) for alias in node.names)


def imports_of_cython(text):
    """As for Python, read by pattern: only absolute imports are allowed in `ext/`."""
    text = STRING.sub("", text)
    for found in CYTHON_FROM.finditer(text):
        names = re.sub(r"#.*", "", found[2]).strip("()").replace("\n", " ").split(",")
        for name in filter(None, (name.split(" as ")[0].strip() for name in names)):
            yield f"{found[1]}.{name}", found[1]
    for found in CYTHON_PLAIN.finditer(text):
        for name in found[1].split(","):
            yield (name.split(" as ")[0].strip(),)


@cache
def imports_of(path):
    text, name = text_of(path), module_name(path)
    if path.suffix in CYTHON:
        return list(imports_of_cython(text))
    return list(imports_of_python(text, name, path.stem == "__init__"))


def layer_of(name):
    """Index of the longest entry that is the module or a package it is in; None for a stranger."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        entry = ".".join(parts[:length])
        if entry in LAYERS:
            own_line_wanted = entry in ("kbroker", "kbroker.ext") and length < len(parts)
            return None if own_line_wanted else LAYERS.index(entry)
    return None


def sources():
    return [
        path for path in files_with(".py", ".pyi", *CYTHON)
        if path.parts[0] in ROOMS and len(path.parts) > 1
    ]  # fmt: skip


def violations(name, imports):
    """Imports that do not go down, as text."""
    own = layer_of(name)
    if own is None:
        return [f"{name} has no line in tests/unit/layers.py"]
    found = []
    for candidates in imports:
        target = next((t for t in candidates if layer_of(t) is not None), None)
        if target is not None and layer_of(target) > own:
            found.append(f"{name} imports {target}, which stands above it")
        if target is None and candidates[-1].split(".")[0] == "kbroker":
            found.append(f"{name} imports {candidates[-1]}, which has no line in layers.py")
    return found


def test_imports_go_down_only():
    found = [text for path in sources() for text in violations(module_name(path), imports_of(path))]
    assert not found, "\n".join(sorted(set(found)))


def test_every_layer_is_listed_once():
    assert len(set(LAYERS)) == len(LAYERS)


def test_the_rooms_are_never_imported_by_their_folder():
    """`import ext` and `import cli` work by accident where the working folder is on the path."""
    found = [
        f"{path}: import {names[-1]}"
        for path in files_with(".py", ".pyi", *CYTHON)
        for names in imports_of(path)
        if names[-1].split(".")[0] in ("ext", "cli")
    ]
    assert not found, "\n".join(found)


def test_what_is_shipped_imports_nothing_that_is_made_for_tests():
    """perf/ is not shipped: it starts brokers as the tests do. The plugin is pytest's."""
    found = [
        f"{path}: {names[0]}"
        for path in sources()
        if (path.parts[0] != "perf" or path.parts[1] == "locust")
        and path != Path("kbroker/pytest_plugin.py")
        for names in imports_of(path)
        if "kbroker.ext.testing" in names or names[-1].split(".")[0] in ("tests", "pytest")
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("kbroker.ext.wire", "from kbroker.ext.batch cimport Batch"),
        ("kbroker.ext.wire", "from kbroker.ext cimport batch"),
        (
            "kbroker.ext.wire",
            "from kbroker.ext.log_state cimport (\n    Log,  # one\n    X,\n)",
        ),
        ("kbroker.ext.wire", "cimport kbroker.ext.engine as e"),
        ("kbroker.ext.batch", "def f():\n    import kbroker.errors, kbroker.server"),
    ],
)
def test_an_import_that_goes_up_is_seen_in_cython(module, source):
    assert violations(module, imports_of_cython(source))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("kbroker.errors", "from kbroker import server"),
        ("kbroker.errors", "import kbroker.api.k03_metadata"),
        ("kbroker.storage.cleaner", "from ..api import k03_metadata"),
        ("kbroker.storage.cleaner", "if True:\n    from kbroker.metadata.image import Image"),
        ("kbroker.unheard_of", "import os"),
    ],
)
def test_an_import_that_goes_up_is_seen_in_python(module, source):
    assert violations(module, imports_of_python(source, module, False))


@pytest.mark.parametrize(
    ("module", "source"),
    [
        ("kbroker.api.k03_metadata", "from . import registry\nfrom kbroker import __version__"),
        ("kbroker.server", "from kbroker.ext import engine\nimport os, click"),
        ("kbroker.ext.client_link", "from kbroker.ext.batch import build"),
    ],
)
def test_an_import_that_goes_down_is_fine(module, source):
    assert not violations(module, imports_of_python(source, module, False))


def test_sources_are_found():
    assert Path("ext/atomics.pxd") in sources()
    assert Path("kbroker/errors.py") in sources()
    assert module_name(Path("ext/client_link.pyx")) == "kbroker.ext.client_link"
    assert module_name(Path("cli/__init__.py")) == "kbroker.cli"
