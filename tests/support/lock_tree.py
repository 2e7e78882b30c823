"""Cython sources as syntax trees with types, for checks of the data plane's code."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from Cython.Compiler import Errors, ExprNodes, Main, Nodes, Options, Pipeline
from Cython.Compiler.Scanning import FileSourceDescriptor

from tests.support.tree import ROOT

#: Folder that setup.py links the packages into; Cython looks for `kbroker.ext` there.
VIEW = ROOT / "build" / "view"

#: Those of setup.py that decide whether an expression can raise.
DIRECTIVES = {
    "boundscheck": False, "wraparound": False, "cdivision": True, "initializedcheck": False,
}  # fmt: skip

#: The compiler's phase after which every expression has a type and every loop its C form.
LAST_PHASE = "IterationTransform"

COERCIONS = (ExprNodes.CoercionNode, ExprNodes.ProxyNode, ExprNodes.BoolBinopResultNode)


@contextmanager
def working_directory(folder: Path) -> Iterator[None]:
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


class Sources:
    """Parse modules of `ext`. Declarations that several modules use are read once."""

    def __init__(self) -> None:
        self.options = Main.CompilationOptions(
            Options.default_options, language_level=3, include_path=[str(VIEW)], cplus=True,
            compiler_directives=DIRECTIVES,
        )  # fmt: skip
        with working_directory(VIEW):
            self.context = Main.Context.from_options(self.options)

    def module(self, path: Path) -> Any:
        """Return the tree of `ext/x.pyx`, or of a file with an absolute path."""
        module = path.stem if path.is_absolute() else f"kbroker.ext.{path.stem}"
        descriptor = FileSourceDescriptor(str(VIEW / "kbroker" / path), str(path))
        Errors.init_thread()
        with working_directory(VIEW):
            source = Main.CompilationSource(descriptor, module, str(VIEW))
            result = Main.create_default_resultobj(source, self.options)
            error, tree = Pipeline.run_pipeline(self._phases(result), source)
        if error or Errors.get_errors_count():
            raise SyntaxError(f"{path} does not compile")
        return tree

    def _phases(self, result: Any) -> Iterator[Any]:
        for phase in Pipeline.create_pyx_pipeline(self.context, self.options, result):
            if phase is not None:
                yield phase
                if type(phase).__name__ == LAST_PHASE:
                    return


def children(node: Any) -> Iterator[Any]:
    """Yield the nodes directly below a node, in the order of evaluation."""
    for name in node.child_attrs or ():
        child = getattr(node, name)
        for each in child if isinstance(child, list) else [child]:
            if each is not None:
                yield each


def functions_of(node: Any) -> Iterator[Any]:
    """Yield every function and method below a node."""
    for child in children(node):
        if isinstance(child, Nodes.FuncDefNode):
            yield child
        yield from functions_of(child)


def name_of(entry: Any) -> str:
    """Return the name of a function with its module, `log_read.enter`."""
    return str(entry.qualified_name).removeprefix("kbroker.ext.")


def coercions_of(node: Any) -> list[Any]:
    """Return the nodes, outermost first, that only pass on the value of the expression in them."""
    found = []
    while isinstance(node, COERCIONS):
        found.append(node)
        node = node.arg
    return found


def without_coercions(node: Any) -> Any:
    """Return the expression whose value a node passes on."""
    found = coercions_of(node)
    return found[-1].arg if found else node


def path_of(node: Any) -> str:
    """Return the text of an expression that leads to a mutex, without casts and ampersands.

    The text of any other expression has a `?`.
    """
    node = without_coercions(node)
    if isinstance(node, ExprNodes.NameNode):
        return str(node.name)
    if isinstance(node, ExprNodes.AttributeNode):
        return f"{path_of(node.obj)}.{node.attribute}"
    if isinstance(node, ExprNodes.IndexNode):
        return f"{path_of(node.base)}[{path_of(node.index)}]"
    if isinstance(node, ExprNodes.AmpersandNode | ExprNodes.TypecastNode):
        return path_of(node.operand)
    if isinstance(node, ExprNodes.IntNode):
        return str(node.value)
    return "?"


def signature_of(call: Any) -> Any:
    """Return the type of the function that a call names, or that it goes to by a pointer."""
    called = call.function.type
    return called.base_type if called.is_ptr else called


def is_object(node: Any) -> bool:
    return bool(getattr(node, "type", None)) and node.type.is_pyobject


def runs_python(node: Any) -> bool:
    """Return True if a node, its children apart, may raise or run any Python code."""
    if isinstance(node, ExprNodes.SimpleCallNode):
        called = signature_of(node)
        return (
            not called.is_cfunction
            or called.with_gil
            or bool(called.exception_check)
            or called.exception_value is not None
        )
    if isinstance(node, ExprNodes.CoerceToPyTypeNode):
        return True
    if isinstance(node, ExprNodes.NameNode | ExprNodes.AttributeNode):
        entry = node.entry
        return is_object(node) and (entry is None or entry.is_pyglobal or entry.is_builtin)
    if isinstance(node, ExprNodes.PrimaryCmpNode) and node.operator in ("is", "is_not"):
        return False
    if isinstance(node, ExprNodes.ConstNode | ExprNodes.NoneNode | ExprNodes.TypecastNode):
        return False
    return is_object(node) or any(is_object(child) for child in children(node))
