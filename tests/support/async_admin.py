"""Writes kbroker/client/async_admin.pyi from Admin: `python -m tests.support.async_admin`."""

from __future__ import annotations

import ast
from pathlib import Path

CLIENT = Path(__file__).parents[2] / "kbroker" / "client"
TARGET = CLIENT / "async_admin.pyi"

_HEAD = '''\
"""AsyncAdmin as type checkers see it; made from admin_client by tests.support.async_admin."""

# ruff: noqa: E501, I001
from __future__ import annotations

'''

_OWN = '''\
class AsyncAdmin:
    config: AdminConfig
    def __init__(self, config: Mapping[str, Any] | None = None, /, **settings: Any) -> None: ...
    async def __aenter__(self) -> AsyncAdmin: ...
    async def __aexit__(self, *_: object) -> None: ...
'''


def source() -> str:
    """The text of the stub: what Admin imports for its types, and its methods, awaited."""
    tree = ast.parse((CLIENT / "admin_client.py").read_text())
    (admin,) = (node for node in tree.body if isinstance(node, ast.ClassDef))
    methods = [
        node
        for node in admin.body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_")
    ]
    body = "".join(f"    {_stub(method)}\n" for method in methods)
    used = {node.id for node in ast.walk(ast.parse(_OWN + body)) if isinstance(node, ast.Name)}
    lines = ["from kbroker.client.config_admin import AdminConfig"]
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module != "__future__":
            names = sorted(alias.name for alias in node.names if alias.name in used)
            if names and node.module != "kbroker.client":
                lines.append(f"from {node.module} import {', '.join(names)}")
        elif isinstance(node, ast.Import):
            lines += [f"import {a.name}" for a in node.names if a.name in used]
    plain = sorted(line for line in lines if line.startswith("import"))
    others = sorted(set(lines) - set(plain), key=lambda line: ("kbroker" in line, line))
    imports = "\n".join([*plain, *others])
    return f"{_HEAD}{imports}\n\nPartition = tuple[str, int]\n\n{_OWN}{body}"


def _stub(method: ast.FunctionDef) -> str:
    arguments = ast.unparse(method.args)
    returned = ast.unparse(method.returns) if method.returns is not None else "None"
    return f"async def {method.name}({arguments}) -> {returned}: ..."


if __name__ == "__main__":
    TARGET.write_text(source())
