"""Lines on the screen, of which only those in sight are asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from rich.segment import Segment
from rich.style import Style
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from commands._screen import cells_of

if TYPE_CHECKING:
    from textual import events

    from commands._browse.columns import Styled
    from commands._browse.views import View

_STYLES: dict[str, Style] = {}
_ACROSS = 8
"""Cells that one press of an arrow moves lines to the side."""


class Pane(ScrollView, can_focus=True):
    """The lines of a view, with a line that is chosen."""

    DEFAULT_CSS = """
    Pane {
        background: ansi_default; scrollbar-size-vertical: 1; scrollbar-size-horizontal: 0;
        scrollbar-background: ansi_default; scrollbar-background-hover: ansi_default;
        scrollbar-background-active: ansi_default;
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup,ctrl+b", "page(-1)", show=False),
        Binding("pagedown,ctrl+f,space", "page(1)", show=False),
        Binding("home,g", "edge(0)", show=False),
        Binding("end,G", "edge(1)", show=False),
        Binding("left,h", "aside(-1)", show=False),
        Binding("right,l", "aside(1)", show=False),
        Binding("enter", "open", show=False),
    ]

    class Opened(Message):
        """The chosen line is to be opened."""

        def __init__(self, pane: Pane) -> None:
            self.pane = pane
            super().__init__()

    class Moved(Message):
        """Another line is chosen."""

    def __init__(self, name: str) -> None:
        super().__init__(id=name)
        self.view: View | None = None

    def show(self, view: View) -> None:
        """Show a view where it was left."""
        self.view = view
        view.resized(self._width)
        self.changed()

    def changed(self) -> None:
        """Draw what the view has now."""
        view = self.view
        if view is None:
            return
        view.cursor = max(min(view.cursor, view.count - 1), 0)
        self.virtual_size = Size(max(view.width, 1), view.count + len(view.head()))
        self._follow_cursor()
        self.refresh()

    @property
    def _width(self) -> int:
        return max(self.size.width - 1, 20)

    @property
    def _height(self) -> int:
        """Lines of the view that are in sight."""
        head = len(self.view.head()) if self.view is not None else 0
        return max(self.scrollable_content_region.height - head, 1)

    def on_resize(self, event: events.Resize) -> None:
        """Fold lines to the new width."""
        if self.view is not None:
            self.view.resized(self._width)
            self.changed()

    def render_line(self, y: int) -> Strip:
        """Draw one line of the screen."""
        x, top = int(self.scroll_offset.x), int(self.scroll_offset.y)
        width, view = self.size.width, self.view
        if view is None:
            return Strip.blank(width)
        head = view.head()
        if y < len(head):
            return _strip(head[y], x, width, "")
        number = top + y - len(head)
        if number >= view.count:
            return Strip.blank(width)
        if y == len(head):
            view.need(number, min(number + self._height, view.count))
        chosen = "" if number != view.cursor else "reverse" if self.has_focus else "underline"
        return _strip(view.line(number), x, width, chosen)

    def action_move(self, by: int) -> None:
        """Choose another line; before the first one, read what comes before it."""
        if by < 0 and self.view is not None and not self.view.cursor:
            self.view.before()
        self.choose((self.view.cursor if self.view is not None else 0) + by)

    def action_page(self, by: int) -> None:
        """Go on by what is in sight."""
        self.action_move(by * max(self._height - 1, 1))

    def action_edge(self, end: int) -> None:
        """Choose the first or the last line."""
        self.choose(self.view.count if end and self.view is not None else 0)

    def action_aside(self, by: int) -> None:
        """Move lines that are wider than the pane."""
        self.scroll_to(x=max(self.scroll_offset.x + by * _ACROSS, 0), animate=False, immediate=True)

    def action_open(self) -> None:
        """Open the chosen line."""
        self.post_message(self.Opened(self))

    def choose(self, number: int) -> None:
        """Choose a line, and have it in sight."""
        if self.view is None:
            return
        self.view.cursor = max(min(number, self.view.count - 1), 0)
        self._follow_cursor()
        self.refresh()
        self.post_message(self.Moved())

    def _follow_cursor(self) -> None:
        assert self.view is not None
        cursor, top, height = self.view.cursor, int(self.scroll_target_y), self._height
        if cursor < top or cursor >= top + height:
            wanted = cursor if cursor < top else cursor - height + 1
            if abs(wanted - top) > height:  # a jump, not a step: with something around it
                wanted = max(cursor - height // 3, 0)
            self.scroll_to(y=wanted, animate=False, immediate=True, force=True)

    def on_click(self, event: events.Click) -> None:
        """Choose the line under the mouse; open it where it is chosen already."""
        if self.view is None:
            return
        number = int(self.scroll_offset.y) + event.y - len(self.view.head())
        if not 0 <= number < self.view.count:
            return
        if number == self.view.cursor:
            self.action_open()
        else:
            self.choose(number)


def _strip(line: Styled, x: int, width: int, over: str) -> Strip:
    """Return pieces of a line as cells of a strip."""
    segments = [Segment(text, _style(f"{style} {over}".strip())) for text, style in line]
    filled = sum(cells_of(text) for text, _ in line)
    segments.append(Segment(" " * max(x + width - filled, 0), _style(over)))
    return Strip(segments).crop(x, x + width)


def _style(text: str) -> Style:
    if text not in _STYLES:
        _STYLES[text] = Style.parse(text) if text else Style.null()
    return _STYLES[text]
