"""The import arrow: commands -> rmqctl -> formats, never back, and what each layer may not know."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
LAYERS = ("formats", "rmqctl", "commands")
FILES = [file for layer in LAYERS for file in sorted((ROOT / layer).rglob("*.py"))]
ENTRY = Path("rmqctl/__main__.py")


def imports(file: Path) -> Iterator[str]:
    """Every module that a file names in an import, at its top or inside a function."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def within(module: str, package: str) -> bool:
    return module == package or module.startswith(f"{package}.")


@pytest.mark.parametrize("file", FILES, ids=lambda file: str(file.relative_to(ROOT)))
def test_imports_follow_the_arrow(file: Path) -> None:
    path = file.relative_to(ROOT)
    above = LAYERS[LAYERS.index(path.parts[0]) + 1 :]
    forbidden = {*above, "tests", "fixtures"}
    if path.parts[0] != "commands":
        forbidden |= {"click", "rich"}
    if path.parts[:2] != ("rmqctl", "pipeline"):
        forbidden.add("pyspark")
    if path.parts[:2] == ("rmqctl", "rocketmq"):
        forbidden.add("rmqctl.kafka")
    if path.parts[:2] == ("rmqctl", "kafka"):
        forbidden.add("rmqctl.rocketmq")
    if path == ENTRY:
        forbidden.discard("commands")
    found = {module for module in imports(file) for name in forbidden if within(module, name)}
    assert not found


def test_formats_open_no_files() -> None:
    for file in (ROOT / "formats").rglob("*.py"):
        assert not {m for m in imports(file) if m.split(".")[0] in {"os", "io", "pathlib", "mmap", "fsspec"}}, file


def test_nothing_imports_the_entry_module() -> None:
    assert not [file for file in FILES if any(within(m, "rmqctl.__main__") for m in imports(file))]


def test_the_core_of_the_pipeline_knows_no_family() -> None:
    """A family brings its tables; only the jobs that write a store again or compare two are RocketMQ's own."""
    own = {"diff.py", "rebuild.py"}
    core = [file for file in (ROOT / "rmqctl" / "pipeline").glob("*.py") if file.name not in own]
    families = ("rmqctl.rocketmq", "rmqctl.kafka")
    assert not [file.name for file in core if any(within(m, one) for m in imports(file) for one in families)]
