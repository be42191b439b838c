"""The numbers of the house: how many modules, how long, who imports whom. ``python -m tests.house`` prints them."""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from statistics import median
from types import FrameType

ROOT = Path(__file__).parent.parent
FAMILIES = ("rmqctl.rocketmq", "rmqctl.kafka")
ABOVE = (*FAMILIES, "rmqctl.pipeline", "rmqctl.convert", "rmqctl.report")


DEBT = {"rmqctl.rocketmq.store.files": {"rmqctl.rocketmq.queues.ranges"}}
"""Late imports that close a circle, to be worked off: whether RocksDB has the queues is a property of a store's files,
and where files of queues are there, too, only their last units say which of both counts.
"""


@cache
def modules() -> dict[str, Path]:
    """Every module of the library and the commands, by its dotted name."""
    found = {}
    for top in ("rmqctl", "commands"):
        for file in sorted((ROOT / top).rglob("*.py")):
            parts = file.relative_to(ROOT).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = file
    return found


def lines(name: str) -> int:
    return len(modules()[name].read_text("utf-8").splitlines())


@cache
def imports(name: str, *, late: bool = True, typing: bool = True) -> frozenset[str]:
    """Modules that one names in an import; without ``late`` those it needs while it is imported; without ``typing``
    none that only annotations name.
    """
    tree = ast.parse(modules()[name].read_text("utf-8"))
    return frozenset(m for m in _named(tree, late=late, typing=typing) if m in modules() and m != name)


def _named(node: ast.AST, *, late: bool, typing: bool) -> Iterator[str]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Import):
            yield from (alias.name for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and child.module:
            for alias in child.names:
                full = f"{child.module}.{alias.name}"
                yield full if full in modules() else child.module
        elif (late or not _is_late(child)) and ((late and typing) or not _is_typing(child)):
            yield from _named(child, late=late, typing=typing)


def _is_late(node: ast.AST) -> bool:
    """Whether what stands in a node is not run while its module is imported."""
    return isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda))


def _is_typing(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


def within(name: str, packages: tuple[str, ...]) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def circles(graph: dict[str, set[str]] | None = None) -> list[set[str]]:
    """Groups of modules that need each other, late imports included; without a graph those of the house, but for
    :data:`DEBT`.
    """
    if graph is None:
        graph = {name: set(imports(name, typing=False)) - DEBT.get(name, set()) for name in modules()}
    while True:  # take away what leads nowhere, then what nothing leads to
        ends = {name for name, to in graph.items() if not to & graph.keys()}
        ends |= graph.keys() - {name for to in graph.values() for name in to}
        if not ends:
            return [set(graph)] if graph else []
        graph = {name: to for name, to in graph.items() if name not in ends}


def importers() -> dict[str, set[str]]:
    found: dict[str, set[str]] = defaultdict(set)
    for name in modules():
        for imported in imports(name):
            found[imported].add(name)
    return found


def family_imports() -> list[tuple[str, str]]:
    """Imports by which a command names a family."""
    return sorted((c, m) for c in modules() if c.startswith("commands") for m in imports(c) if within(m, FAMILIES))


def rooms_that_know_a_family() -> list[tuple[str, str]]:
    """Imports from a shared room into a family."""
    rooms = [m for m in modules() if m.startswith("rmqctl") and not within(m, ABOVE) and m != "rmqctl.__main__"]
    return sorted((room, m) for room in rooms for m in imports(room) if within(m, ABOVE))


def in_root_of(family: str) -> list[str]:
    """Modules that lie loose in the root of a family."""
    depth = family.count(".") + 1
    return [m for m, file in modules().items() if m.startswith(f"{family}.") and m.count(".") == depth
            and file.name != "__init__.py"]  # fmt: skip


def run_through(*arguments: object) -> dict[str, set[str]]:
    """The functions that a command runs, by module: what a reader who follows it has to open.

    What runs while a module is imported, properties and lambdas included, is counted where it is called later.
    """
    from click.testing import CliRunner

    from commands import cli

    files = {str(file): name for name, file in modules().items()}
    found: dict[str, set[str]] = defaultdict(set)

    def note(frame: FrameType, event: str, _: object) -> None:
        name = files.get(frame.f_code.co_filename) if event == "call" else None
        if name is not None and frame.f_code.co_name not in {"<module>", "<lambda>"} and not _is_importing(frame):
            found[name].add(frame.f_code.co_qualname)

    sys.setprofile(note)
    try:
        CliRunner().invoke(cli, [str(argument) for argument in arguments])
    finally:
        sys.setprofile(None)
    return dict(found)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None:
        if frame.f_code.co_name == "<module>" and "importlib" not in frame.f_code.co_filename:
            return frame.f_back is not None and "importlib" in frame.f_back.f_code.co_filename
        frame = frame.f_back
    return False


def places_by_number() -> list[str]:
    """Numbers that are read of bytes at a place which stands there as a literal: places come from `formats`."""
    found = []
    for name in modules():
        if within(name, FAMILIES) and name not in _PLACES:
            tree = ast.parse(modules()[name].read_text("utf-8"))
            found += [f"{name}:{node.lineno}" for node in ast.walk(tree) if reads_at_number(node)]
    return found


_PLACES = ("rmqctl.kafka.log.codecs", "rmqctl.rocketmq.store.database_files")
"""Frames of compression libraries and files of RocksDB, which are no formats of ours."""


def reads_at_number(node: ast.AST) -> bool:
    """Whether a node reads a number of bytes whose place stands there as a literal.

    It is like ``int.from_bytes(data[28:36], "big")``, ``…(data[at + 4 :])`` or ``…(data[:4])``, or it reads or unpacks
    from ``at + 4``; or it packs several fields by a format that stands beside those of `formats`.
    """
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    if name == "from_bytes" and node.args and isinstance(node.args[0], ast.Subscript):
        taken = node.args[0].slice
        ends = (taken.lower, taken.upper) if isinstance(taken, ast.Slice) else ()
        return any(_is_number(end) for end in ends if end is not None) or (bool(ends) and _adds_number(ends[0]))
    if name in {"read", "read_at", "unpack_from", "_word"}:
        return any(map(_adds_number, node.args[:2]))
    forms = node.args[:1] if name in {"Struct", "pack", "unpack", "pack_into", "unpack_from", "calcsize"} else []
    return any(isinstance(form, ast.Constant) and len(re.findall("[a-zA-Z?]", str(form.value))) > 1 for form in forms)


def _is_number(node: ast.AST) -> bool:
    """Whether a node is a literal, not that of the begin, counted from the front or, below 0, from the end."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and bool(node.value)


def _adds_number(node: ast.AST | None) -> bool:
    """Whether a node is like ``at + 4``; 1 more is the next byte, no field's place."""
    if not (isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub))):
        return False
    return any(isinstance(side, ast.Constant) and side.value not in {0, 1} for side in (node.left, node.right))


ODD_WORDS = re.compile(r"(?<![a-z.])(behind|told|tells|anew)(?![a-z])", re.IGNORECASE)
SAID_IN_JSON = re.compile(r"^(> |\*What to do\.\*)")
"""Lines of pages made from tables whose sentences stand in JSON, and so stay."""


def odd_words() -> list[str]:
    """Places where words stand that have a plainer one: pages, docstrings, comments, help texts."""
    found = []
    for page in [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(ROOT.glob("docs/**/*.md"))]:
        for number, line in enumerate(page.read_text("utf-8").splitlines(), 1):
            if ODD_WORDS.search(line) and not SAID_IN_JSON.match(line):
                found.append(f"{page.relative_to(ROOT)}:{number}: {line}")
    for file in sources():
        text = file.read_text("utf-8")
        if not ODD_WORDS.search(text):
            continue
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            is_text = token.string.lstrip("rbf").startswith('"""') or file.parts[-2] == "commands"
            read = token.type == tokenize.COMMENT or (token.type == tokenize.STRING and is_text)
            if read and ODD_WORDS.search(token.string):
                found.append(f"{file.relative_to(ROOT)}:{token.start[0]}: {token.string}")
    return found


_BY_HAND = re.compile(r"(?<![\w-])rmqctl [a-z][a-z-]*( [^;:,`]*)?$")
"""What stands before a value in a command that a text is made of."""


def commands_by_hand() -> list[str]:
    """Places where a command to type is put together from texts, and modules that quote words for a shell themselves;
    `rmqctl.text` does both.
    """
    found = []
    for file in sources():
        text, name = file.read_text("utf-8"), file.relative_to(ROOT)
        if "rmqctl " not in text and "shlex" not in text:
            continue
        tree = ast.parse(text)
        for node in ast.walk(tree):
            if isinstance(node, ast.JoinedStr):
                texts = [one.value for one in node.values[:-1] if isinstance(one, ast.Constant)]
                found += [f"{name}:{node.lineno}: {text}" for text in texts if _BY_HAND.search(str(text))]
        if "shlex" in _named(tree, late=True, typing=True) and name != Path("rmqctl/text.py"):
            found.append(f"{name}: shlex")
    return found


def failures_that_say_nothing() -> list[str]:
    """Lines of docstrings that only say what `rmqctl.files` says for every room."""
    plain = re.compile(
        r"^ +(OSError|IOFailure): (the system refuses|(it|they|(a|the) (file|log|directory)) cannot be "
        r"(read|written|made|deleted)( or built)?)\.$"
    )
    lines = ((file, line) for file in sources() for line in file.read_text("utf-8").splitlines())
    return [f"{file.relative_to(ROOT)}: {line.strip()}" for file, line in lines if plain.match(line)]


def classes(*names: str) -> dict[str, list[str]]:
    """The modules that define a class of each name, or give it to a type."""
    found: dict[str, list[str]] = {}
    defined = re.compile(rf"^(?:class |)({'|'.join(names)})(?:[:(\[]| = )", re.MULTILINE)
    for file in sources():
        for name in defined.findall(file.read_text("utf-8")):
            found.setdefault(name, []).append(".".join(file.relative_to(ROOT).with_suffix("").parts))
    return {name: found[name] for name in names if name in found}


def sources() -> list[Path]:
    """The modules of all three packages."""
    return [file for top in ("formats", "rmqctl", "commands") for file in sorted((ROOT / top).rglob("*.py"))]


def main() -> None:
    library = [m for m in modules() if m.startswith("rmqctl")]
    real = [m for m in library if lines(m) > 20]
    single = [m for m in real if len(importers()[m]) == 1]
    print(f"modules in rmqctl             {len(library)} ({sum(within(m, FAMILIES[1:]) for m in library)} of Kafka)")
    print(f"median of their lines         {median(lines(m) for m in real):.0f}")
    print(f"longest                       {max((lines(m), m) for m in library)}")
    print(f"with one importer only        {len(single)}")
    print(f"in the root of rmqctl.rocketmq {in_root_of('rmqctl.rocketmq')}")
    print(f"imports of a family in commands {len(family_imports())}")
    print(f"shared rooms that know a family {rooms_that_know_a_family()}")
    print(f"circles                       {circles()}")
    print(f"places in bytes by number     {places_by_number()}")


if __name__ == "__main__":
    main()
