"""The tree on the left: what can be looked at in each store, its topics and queues, its files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from commands._browse import reading
from commands._browse.bytes import BytesView
from commands._browse.columns import Styled
from commands._browse.queue import QueueView
from commands._browse.site import Site
from commands._browse.text import TextView
from commands._browse.views import RowsView, View
from commands._cells import printable, size
from commands._screen import cells_of
from rmqctl import questions
from rmqctl.doctor import level_of
from rmqctl.store import LoneFile

if TYPE_CHECKING:
    from commands._browse.reading import Make, Reader
    from rmqctl.answer import Answer
    from rmqctl.files.tree import Entry
    from rmqctl.questions import Question

_FINDING = ("severity", "id", "file", "offset", "size", "message")


@dataclass(eq=False, slots=True)
class Node:
    """A line of the tree.

    Attributes:
        label, note: its name, and what stands dim after it.
        view: makes what it opens; None: it only has lines below it.
        below: those lines; None: not read yet.
        grow: reads them, and makes lines of each piece, which take the place of those before.
    """

    site: Site
    label: str
    view: Callable[[], View] | None = None
    note: str = ""
    below: list[Node] | None = field(default_factory=list)
    grow: tuple[Reader, Callable[[Any], list[Node]]] | None = None
    is_open: bool = False
    made: View | None = None
    topic: str | None = None
    path: str = ""

    @property
    def has_below(self) -> bool:
        return self.below is None or bool(self.below)


class Outline(View):
    """The tree."""

    follows = True

    def __init__(self, sites: Sequence[Site]) -> None:
        super().__init__(sites[0], "tree")
        self._roots = [_root(site) for site in sites]
        self._lines: list[tuple[int, Node]] = []
        for root in self._roots:
            root.is_open = True
        self._flatten()

    @property
    def count(self) -> int:
        return len(self._lines)

    @property
    def node(self) -> Node | None:
        """What is chosen."""
        return self._lines[self.cursor][1] if self.cursor < self.count else None

    @property
    def topic(self) -> str | None:
        return None if self.node is None else self.node.topic

    def line(self, number: int) -> Styled:
        depth, node = self._lines[number]
        mark = ("▾ " if node.is_open else "▸ ") if node.has_below else "  "
        return [
            ("  " * depth + mark + node.label, "" if depth else "bold"),
            (f"  {node.note}" if node.note else "", "dim"),
        ]

    def start(self) -> None:
        """Ask each store for its topics."""
        for root in self._roots:
            if (topics := _topics_of(root)) is not None:
                self._grow(topics)

    def opened(self) -> View | None:
        """Open or close what is chosen; return what it shows."""
        node = self.node
        if node is None:
            return None
        if node.has_below:
            node.is_open = not node.is_open
            if node.below is None:
                self._grow(node)
            self._flatten()
            self.changed()
        if node.view is None:
            return None
        if node.made is None:
            node.made = node.view()
        return node.made

    def made(self) -> list[View]:
        """Return the views that lines of the tree have opened, which stay as they are."""
        found: list[View] = []
        waiting = list(self._roots)
        while waiting:
            node = waiting.pop()
            if node.made is not None:
                found.append(node.made)
            waiting += node.below or ()
        return found

    def choose(self, text: str) -> None:
        """Show what has this text in its name, with what it lies in."""
        chosen = self.node
        self.filter = text
        self._flatten(chosen)
        wanted = text.casefold()
        own = (n for n, (_, node) in enumerate(self._lines) if wanted in node.label.casefold())
        same = (n for n, (_, node) in enumerate(self._lines) if node is chosen)
        self.cursor = next(own if wanted else same, 0)
        self.changed()

    def copies(self) -> Mapping[str, str]:
        node = self.node
        if node is None:
            return {}
        return {"name": node.topic or node.label, **({"path": node.path} if node.path else {})}

    def _grow(self, node: Node) -> None:
        assert node.grow is not None
        reader, lines = node.grow
        view = View(node.site, "")
        view.changed, view.crashed = lambda: self._settled(view), self.crashed
        view.read(reader, lambda piece: self._grown(node, lines(piece)))

    def _settled(self, view: View) -> None:
        self.state, self.failed = view.state if view.failed else "", view.failed
        self.changed()

    def _grown(self, node: Node, below: list[Node]) -> None:
        chosen = self.node
        node.below = _merged(node.below or [], below)
        self._flatten()
        self.cursor = next((n for n, (_, one) in enumerate(self._lines) if one is chosen), self.cursor)
        self.changed()

    def _flatten(self, seen: Node | None = None) -> None:
        """Make lines of what is open; with a filter of what has the text, what it lies in, and what is open below it.

        Args:
            seen: is to be among them.
        """
        lines: list[tuple[int, Node]] = []
        wanted = self.filter.casefold()

        def add(node: Node, depth: int, *, is_below: bool) -> bool:
            place = len(lines)
            lines.append((depth, node))
            has = wanted in node.label.casefold()
            if node.is_open or wanted or seen is not None:
                found = [add(child, depth + 1, is_below=is_below or has) for child in node.below or ()]
                if not node.is_open and seen is not None and any(one is seen for _, one in lines[place + 1 :]):
                    node.is_open = True
                if not node.is_open and not (wanted and not has and any(found)):
                    del lines[place + 1 :]
                has = has or any(found)
            if not has and not is_below:
                del lines[place:]
            return has

        for root in self._roots:
            add(root, 0, is_below=False)
        self._lines = lines
        self.width = max((2 * depth + 4 + cells_of(node.label) + len(node.note) for depth, node in lines), default=0)


def _merged(before: list[Node], now: list[Node]) -> list[Node]:
    """Return lines as they are now; those that were there stay what they are, open or chosen."""
    known = {node.label: node for node in before}
    found = []
    for node in now:
        old = known.get(node.label)
        if old is None:
            found.append(node)
            continue
        old.note, old.view, old.grow = node.note, node.view, node.grow
        if node.below:
            old.below = _merged(old.below or [], node.below)
        found.append(old)
    return found


def _topics_of(root: Node) -> Node | None:
    return next((node for node in root.below or () if node.label == "topics"), None)


def _root(site: Site) -> Node:
    """Return what can be looked at in a store."""
    store = site.first
    if isinstance(store, LoneFile):
        below = [_rows(site, "records", "dump", questions.Dump())]
        return Node(site, site.name, lambda: BytesView(site, store.name), below=below)
    lag = ("group", "topic", "queue_id", "partition", "lag", "anomaly")
    below = [
        Node(site, "overview", lambda: doctor_view(site)),
        Node(site, "findings", lambda: findings_view(site)),
        _rows(site, "groups", "lag", questions.Lag(), lag),
        *_of_family(site),
        _rows(site, "segments", "info", questions.Info(segments=True), (), "--segments"),
        _text(site, "recovery", "recover", reading.recovery),
        _text(site, "plan", "repair", reading.plan),
        Node(site, "files", below=None, grow=_directories(site)),
        _topics(site),
    ]
    return Node(site, site.name.rstrip("/").rpartition("/")[2] or site.name, None, store.state, below)


def _of_family(site: Site) -> list[Node]:
    """Return what only stores of one family have."""
    if site.is_rocketmq:
        return [_pending(site, kind) for kind in ("transaction", "delay", "timer", "pop")]
    states = ("transactional_id", "state", "hanging", "producer_id", "partitions", "last_update")
    return [
        _rows(site, "transactions", "transactions", questions.Transactions(), states),
        _rows(site, "producers", "producers", questions.Producers()),
        _rows(site, "metadata", "metadata", questions.Metadata()),
    ]


def _pending(site: Site, kind: str) -> Node:
    label = "transactions" if kind == "transaction" else f"pending {kind}"
    return _rows(site, label, "dump", questions.Dump(pending=kind), (), "--pending", kind)


def _rows(site: Site, label: str, verb: str, question: Question[Answer], keys: Sequence[str] = (), *words: str) -> Node:
    return Node(site, label, lambda: RowsView(site, label, site.command(verb, *words), question, keys))


def _text(site: Site, label: str, verb: str, make: Make) -> Node:
    return Node(site, label, lambda: TextView(site, label, site.command(verb), make))


def doctor_view(site: Site) -> View:
    """The first look."""
    return TextView(site, "overview", site.command("doctor"), partial(reading.doctor, site.options.path))


def findings_view(site: Site) -> View:
    """What `verify` finds, as it comes; as thorough as `doctor` looks."""
    assert not isinstance(site.first, LoneFile)
    level = level_of(site.first)
    words = [] if level == "full" else ["--level", level]
    question = questions.Verify(level=level, processes=1)
    return RowsView(site, "findings", site.command("verify", *words), question, _FINDING, ("finding",))


# --- topics and files -----------------------------------------------------------------------------------------


def _topics(site: Site) -> Node:
    view = _rows(site, "topics", "topics", questions.Topics()).view

    def lines(found: dict[str, list[tuple[int, int, int]]]) -> list[Node]:
        return [_topic(site, name, queues) for name, queues in found.items()]

    return Node(site, "topics", view, below=None, grow=(reading.topics, lines), is_open=True)


def _topic(site: Site, name: str, queues: Sequence[tuple[int, int, int]]) -> Node:
    below = [_queue(site, name, *queue) for queue in queues]
    count = sum(end - begin for _, begin, end in queues)
    return Node(site, printable(name), None, f"{count:,}" if queues else "", below, topic=name)


def _queue(site: Site, topic: str, queue: int, begin: int, end: int) -> Node:
    note = f"{begin}-{end - 1}" if end > begin else "empty"
    return Node(site, str(queue), lambda: QueueView(site, topic, queue), note, topic=topic)


Grow = tuple["Reader", Callable[[Any], list[Node]]]


def _directories(site: Site) -> Grow:
    """Return what reads the files of a store: those of its one directory, or its directories."""
    if len(site.roots) == 1:
        return _directory(site, 0, "")
    nodes = [
        Node(site, printable(root), below=None, grow=_directory(site, number, ""), path=root)
        for number, (_, root) in enumerate(site.roots)
    ]
    return partial(reading.directory, 0, ""), lambda _: nodes


def _directory(site: Site, number: int, path: str) -> Grow:
    def lines(entries: Sequence[Entry]) -> list[Node]:
        return [_entry(site, number, f"{path}/{one.name}" if path else one.name, one) for one in entries]

    return partial(reading.directory, number, path), lines


def _entry(site: Site, number: int, inside: str, entry: Entry) -> Node:
    prefix, root = site.roots[number]
    place = f"{root}/{inside}"
    if entry.is_directory:
        return Node(site, printable(entry.name), below=None, grow=_directory(site, number, inside), path=place)
    note = "leads nowhere" if entry.is_dangling else size(entry.size)
    return Node(
        site, printable(entry.name), lambda: BytesView(site, f"{prefix}{inside}", place=place), note, path=place
    )
