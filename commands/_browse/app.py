"""The screen: a tree on the left, a view on the right, what shows the same, what can be typed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from commands._browse import leads
from commands._browse.bytes import BytesView
from commands._browse.outline import Outline, doctor_view
from commands._browse.pane import Pane
from commands._browse.queue import QueueView
from commands._browse.views import RowsView, View
from commands._cells import printable
from rmqctl import questions
from rmqctl.life import place_in
from rmqctl.store import LoneFile
from rmqctl.text import milliseconds_of

if TYPE_CHECKING:
    from textual import events

    from commands._browse.site import Site

FOLLOW_SECONDS = 2.0
_NARROW = 120
"""Cells of a terminal on which annotated bytes take the whole width."""
_KEYS = (
    ("Enter", "open"),
    ("Esc", "back"),
    ("/", "find"),
    ("f", "filter"),
    ("b", "bytes"),
    ("t", "life"),
    ("y", "copy"),
    ("?", "help"),
    ("q", "quit"),
)
HELP = """\
Tab          the other pane: tree or view
up down j k  another line; PgUp PgDn Home End g G; left right: to the side
Enter        open: a message, a finding, a queue, a file; in the tree also what lies below
Esc          back to where you came from
b            the annotated bytes of a message, a finding or a segment; Esc leads back
t            the life of the message
/            search: a key, an id, @OFFSET, TOPIC/QUEUE@OFFSET, a time
             (2026-11-20 14:05, -15m, now); in bytes a position. key: id: time:
             before it say what it is
f            filter as you type; Enter keeps it, Esc takes it away
y            copy an id, a path, the command that shows the same
r            read again       F  follow a store that grows
w            the view alone, or beside the tree
q            quit
"""
_ID = re.compile(r"[0-9A-Fa-f]{32,}")


class Note(ModalScreen[str]):
    """Lines above the screen, until a key is pressed; gives the key."""

    DEFAULT_CSS = """
    Note { align: center middle; background: ansi_default; }
    Note > Static { width: auto; height: auto; max-width: 100%; border: solid ansi_blue; padding: 0 1; }
    """

    def __init__(self, text: str, keys: frozenset[str] = frozenset()) -> None:
        super().__init__()
        self._text, self._keys = text, keys

    def compose(self) -> ComposeResult:
        """Show the text."""
        yield Static(self._text, markup=False)

    def on_key(self, event: events.Key) -> None:
        """Go away, with the key if it is one that counts."""
        event.stop()
        if event.key != "ctrl+c":
            self.dismiss(event.key if event.key in self._keys else "")


class Browser(App[int]):
    """The walk.

    Args:
        sites: the stores.

    Attributes:
        bug: an error of the program that ended it.
    """

    ENABLE_COMMAND_PALETTE = False
    CSS = """
    Screen { background: ansi_default; }
    #top, #same, #state { height: 1; width: 100%; text-wrap: nowrap; text-overflow: ellipsis; }
    #top { text-style: bold reverse; }
    #keys { height: 1; width: 100%; text-style: dim; text-wrap: nowrap; }
    #tree { width: 28; border-right: solid ansi_bright_black; }
    #body.wide #tree { width: 44; }
    #body.alone #tree { display: none; }
    #title { height: 1; text-style: bold; text-wrap: nowrap; text-overflow: ellipsis; }
    #same { color: ansi_green; }
    #state.failed { color: ansi_red; }
    #typed { display: none; height: 1; border: none; padding: 0; background: ansi_default; }
    #foot { height: 1; }
    #foot.typing > #typed { display: block; }
    #foot.typing > #state { display: none; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("q", "leave", show=False),
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("ctrl+q", "leave", show=False, priority=True),
        Binding("tab,shift+tab", "other_pane", show=False),
        Binding("escape,backspace", "return", show=False),
        Binding("b", "bytes", show=False),
        Binding("t", "trace", show=False),
        Binding("slash", "search", show=False),
        Binding("f", "filter", show=False),
        Binding("y", "copy", show=False),
        Binding("r", "renew", show=False),
        Binding("F", "follow", show=False),
        Binding("w", "alone", show=False),
        Binding("question_mark", "help", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(ansi_color=True)
        self.theme = "ansi-dark"
        self.bug: Exception | None = None
        self.sites: list[Site] = []
        self._outline: Outline | None = None
        self._path: list[View] = []
        self._all: list[View] = []
        self._typing = ""
        self._follows = False
        self._alone = False
        self._said = ""

    def walk(self, sites: list[Site]) -> None:
        """Name the stores, before it runs."""
        self.sites = sites
        self._outline = Outline(sites)
        self._known(self._outline)
        self._follows = any(not isinstance(s.first, LoneFile) and s.first.is_running for s in sites)

    # --- the screen -------------------------------------------------------------------------------------

    def compose(self) -> ComposeResult:
        """Lay out the screen."""
        yield Static(id="top", markup=False)
        with Horizontal(id="body"):
            yield Pane("tree")
            with Vertical():
                yield Static(id="title", markup=False)
                yield Pane("view")
        yield Static(id="same", markup=False)
        with Vertical(id="foot"):
            yield Input(id="typed", select_on_focus=False)
            yield Static(id="state", markup=False)
        yield Static("  ".join(f"{key} {what}" for key, what in _KEYS), id="keys", markup=False)

    def on_mount(self) -> None:
        """Begin with the tree, and with what `doctor` says."""
        assert self._outline is not None
        self._tree.show(self._outline)
        self._outline.start()
        self._go(_first_view(self.sites[0]))
        self._tree.focus()
        self.set_interval(FOLLOW_SECONDS, self._follow)

    @property
    def _tree(self) -> Pane:
        return self.query_one("#tree", Pane)

    @property
    def _pane(self) -> Pane:
        return self.query_one("#view", Pane)

    @property
    def _active(self) -> View:
        """The view that keys are for."""
        view = self._tree.view if self._tree.has_focus or not self._path else self._path[-1]
        assert view is not None
        return view

    def on_resize(self) -> None:
        """Give the tree what it needs of a large terminal."""
        self._arrange()

    def _arrange(self) -> None:
        body = self.query_one("#body")
        body.set_class(self.size.width >= _NARROW, "wide")
        needs_room = bool(self._path) and self._path[-1].needs_room and self.size.width < _NARROW
        alone = self._alone or needs_room
        body.set_class(alone, "alone")
        if alone and self._tree.has_focus:
            self._pane.focus()

    def _redraw(self, view: View) -> None:
        """Draw what a view has now, if it is in sight."""
        for pane in (self._tree, self._pane):
            if pane.view is view:
                pane.changed()
        if view in (self._outline, self._path[-1] if self._path else None):
            self._tell()

    def _tell(self) -> None:
        """Write the lines around the panes."""
        view = self._path[-1] if self._path else self._active
        site = view.site
        store = site.first
        about = "file" if isinstance(store, LoneFile) else f"{store.kind}, {store.state}"
        self.query_one("#top", Static).update(f" {site.name}  {about}{'  following' if self._follows else ''}")
        trail = " > ".join(one.title for one in self._path[-3:])
        self.query_one("#title", Static).update(f"{trail}{f'  [{view.filter}]' if view.filter else ''}")
        self.query_one("#same", Static).update(view.command)
        state = self.query_one("#state", Static)
        shown = self._outline if self._outline is not None and self._outline.failed and not view.state else view
        state.set_class(shown.failed, "failed")
        state.update(self._said or (view.sentence() if shown is view and not shown.failed else "") or shown.state)

    # --- walking ----------------------------------------------------------------------------------------

    def _known(self, view: View) -> None:
        view.changed = lambda: self._redraw(view)
        view.crashed = self._crashed
        self._all.append(view)

    def _go(self, view: View, *, afresh: bool = False) -> None:
        """Show a view, after the one in sight or, from the tree, in the place of all."""
        if afresh:
            self._drop(0, keep=view)
        is_new = view not in self._all
        if is_new:
            self._known(view)
        self._path.append(view)
        self._said = ""
        self._arrange()
        self._pane.show(view)
        if is_new:
            view.start()
        self._tell()

    def _drop(self, keep_first: int, keep: View | None = None) -> None:
        """Leave views; what the tree has made stays as it is, the others end."""
        assert self._outline is not None
        lasting = self._outline.made()
        for view in self._path[keep_first:]:
            if view not in lasting and view is not keep:
                view.close()
                self._all.remove(view)
        del self._path[keep_first:]

    def on_pane_opened(self, event: Pane.Opened) -> None:
        """Open the chosen line."""
        view = event.pane.view
        if view is None:
            return
        row = view.current if view.opens_rows else None
        found = view.opened() if row is None else leads.view_of(view.site, row)
        if found is None:
            self._redraw(view)
            return
        if event.pane is self._tree:
            if self._path and self._path[-1] is found:
                self._pane.focus()
                return
            self._go(found, afresh=True)
        else:
            self._go(found)
        self._pane.focus()

    def on_pane_moved(self) -> None:
        """Say by which command one gets what is chosen now."""
        self._said = ""
        self._tell()

    def action_return(self) -> None:
        """Go back: from a filter, from a view, to the tree."""
        active = self._active
        if active.filter:
            active.choose("")
        elif not self._tree.has_focus and len(self._path) > 1:
            self._drop(len(self._path) - 1)
            self._arrange()
            self._pane.show(self._path[-1])
            self._pane.focus()
        elif not self._alone:
            if self._path[-1].needs_room:
                site = self._path[-1].site
                self._drop(0)
                self._go(_first_view(site))
            self._arrange()
            self._tree.focus()
        self._said = ""
        self._tell()

    def action_other_pane(self) -> None:
        """Go to the tree, or to the view."""
        if self._tree.has_focus:
            self._pane.focus()
        elif self.query_one("#body").has_class("alone"):
            self.action_return()
        else:
            self._tree.focus()

    def action_alone(self) -> None:
        """Show the view alone, or the tree beside it."""
        self._alone = not self._alone
        self._arrange()

    def action_bytes(self) -> None:
        """Show the bytes of what is chosen."""
        view = self._active
        found = None if view.current is None else leads.bytes_of(view.site, view.current)
        self._lead(found, "these lines have no bytes of their own; choose a message, a finding, a file")

    def action_trace(self) -> None:
        """Show the life of the message."""
        view = self._active
        found = None if view.current is None else leads.life_of(view.site, view.current)
        self._lead(found, "choose a message first")

    def _lead(self, view: View | None, otherwise: str) -> None:
        if view is None:
            self._say(otherwise)
            return
        self._go(view)
        self._pane.focus()

    def _say(self, text: str) -> None:
        self._said = text
        self._tell()

    # --- typing -----------------------------------------------------------------------------------------

    def action_search(self) -> None:
        """Ask what to look for."""
        self._type("search", "key, id, @offset, TOPIC/QUEUE@OFFSET, time")

    def action_filter(self) -> None:
        """Choose lines as one types."""
        self._type("filter", "text in a line")

    def _type(self, what: str, hint: str) -> None:
        self._typing = what
        self._typed_for = self._active
        typed = self.query_one("#typed", Input)
        typed.placeholder = f"{what}: {hint}"
        with self.prevent(Input.Changed):
            typed.value = self._typed_for.filter if what == "filter" else ""
        self.query_one("#foot").add_class("typing")
        typed.focus()

    def _typed(self) -> View:
        """Hide what was typed in; return the view that it is for, with its pane chosen."""
        self.query_one("#foot").remove_class("typing")
        self._typing = ""
        view = self._typed_for
        (self._tree if view is self._outline else self._pane).focus()
        return view

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter as one types."""
        if self._typing == "filter":
            self._typed_for.choose(event.value)
            self._tell()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Search, or keep the filter."""
        what = self._typing
        view = self._typed()
        if what == "search" and event.value.strip():
            self._search(view, event.value.strip())

    def on_key(self, event: events.Key) -> None:
        """Leave typing with Escape."""
        if self._typing and event.key == "escape":
            event.stop()
            what = self._typing
            view = self._typed()
            if what == "filter":
                view.choose("")
            self._tell()

    def _search(self, view: View, text: str) -> None:
        """Look for what was typed: a place, a time, an id or a key."""
        word, colon, rest = text.partition(":")
        kind = word if colon and word in {"key", "id", "time"} else ""
        text = rest.strip() if kind else text
        if not kind and self._went_to(view, text):
            return
        site, topic = view.site, view.topic
        if isinstance(site.first, LoneFile):
            self._say("in a single file only positions can be searched")
        elif kind == "time" or (not kind and _is_time(text)):
            self._search_time(site, view, topic, text)
        elif kind == "id" or (not kind and site.is_rocketmq and _ID.fullmatch(text)):
            found = RowsView(site, f"id {text}", site.command("query-id", text), questions.QueryId(text), *_FOUND)
            self._lead(found, "")
        elif site.is_redacted:
            self._say("keys are not in this bundle; search an offset, a time or an id")
        elif topic is None:
            self._lead(leads.trace_view(site, text), "")
        else:
            command = site.command("query-key", topic, text)
            found = RowsView(site, f"key {text}", command, questions.QueryKey(topic, text), *_FOUND)
            self._lead(found, "")

    def _went_to(self, view: View, text: str) -> bool:
        """Go to a place: a byte, an offset, an offset of another queue. False where the text is none."""
        if (place := place_in(text)) is not None and not isinstance(view.site.first, LoneFile):
            self._lead(QueueView(view.site, *place), "")
            return True
        number = text.removeprefix("@")
        if isinstance(view, BytesView) and re.fullmatch(r"\d{1,18}|0x[0-9a-fA-F]{1,15}", number):
            view.go_to(int(number, 0) if number.startswith("0x") else int(number))
        elif isinstance(view, QueueView) and re.fullmatch(r"\d{1,12}" if number is text else r"\d{1,18}", number):
            view.go_to(int(number))
            self._pane.changed()
        elif text.startswith("@") and number.isdecimal():
            self._say("choose a queue first, or say which: TOPIC/QUEUE@OFFSET")
            return True
        else:
            return False
        self._tell()
        return True

    def _search_time(self, site: Site, view: View, topic: str | None, text: str) -> None:
        if topic is None:
            self._say("choose a topic or a queue first: each has its own offset for a time")
            return
        try:
            moment = milliseconds_of(text)
        except ValueError as error:
            self._say(printable(str(error)))
            return
        if isinstance(view, QueueView):
            view.seek(moment)
            return
        command = site.command("query-time", topic, text)
        found = RowsView(site, f"time {text}", command, questions.QueryTime(topic, None, moment), (), ("time_answer",))
        self._lead(found, "")

    # --- copying, reading again, the end ------------------------------------------------------------------

    def action_copy(self) -> None:
        """Offer what can be copied."""
        view = self._active
        row = view.current
        found = dict(view.copies() if row is None else leads.copies_of(view.site, row))
        if view.command:
            found["command"] = view.command
        if not found:
            self._say("nothing to copy here")
            return
        keys = {_COPY_KEYS[name]: name for name in found}
        room = max(self.size.width - 24, 20)
        lines = [f"{key}  {name:<10} {_short(printable(found[name]), room)}" for key, name in keys.items()]

        def copied(key: str | None) -> None:
            if not key:
                return
            try:
                self.copy_to_clipboard(found[keys[key]])
            except UnicodeEncodeError:
                self._say("terminals copy text, and this has bytes that are none; copy the command, which has them")
                return
            self._say(f"copied: {printable(found[keys[key]])}")

        self.push_screen(Note("\n".join(lines), frozenset(keys)), copied)

    def action_help(self) -> None:
        """Show the keys."""
        self.push_screen(Note(HELP))

    def action_renew(self) -> None:
        """Read again what is in sight."""
        view = self._active
        view.site.moment += 1
        view.renew()
        self._tell()

    def action_follow(self) -> None:
        """Follow stores that grow, or stop it."""
        self._follows = not self._follows
        self._tell()

    def _follow(self) -> None:
        view = self._path[-1] if self._path else None
        if not self._follows or self._typing or view is None or not view.follows or view.job is not None:
            return
        if isinstance(view, QueueView):
            view.site.moment += 1
            view.renew()

    def action_leave(self) -> None:
        """End the walk."""
        self._end(0)

    def action_interrupt(self) -> None:
        """End it as Ctrl-C ends commands."""
        self._end(130)

    def _crashed(self, error: Exception) -> None:
        self.bug = error
        self._end(70)

    def _end(self, code: int) -> None:
        for view in self._all:
            view.close()
        self.exit(code)


_COPY_KEYS = {
    "id": "i",
    "unique key": "u",
    "place": "o",
    "offset": "o",
    "path": "p",
    "line": "l",
    "name": "n",
    "command": "c",
}
"""The key for each thing that can be copied."""


def _first_view(site: Site) -> View:
    """What `doctor` says; the bytes of a single file."""
    return BytesView(site, site.first.name) if isinstance(site.first, LoneFile) else doctor_view(site)


def _short(text: str, room: int) -> str:
    return text if len(text) <= room else f"{text[: room - 3]}..."


_FOUND = (
    ("topic", "queue_id", "partition", "queue_offset", "offset", "store_timestamp", "timestamp", "keys", "key"),
    ("message", "record"),
)
"""What is shown of messages that a search finds, and the kinds of their rows."""


def _is_time(text: str) -> bool:
    try:
        milliseconds_of(text)
    except ValueError:
        return False
    return not text.isdigit() or len(text) == 13
