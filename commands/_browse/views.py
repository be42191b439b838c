"""What a pane can show, with the command for it; and the rows of a verb.

All methods are called by the thread that draws, and return at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from commands._browse import reading
from commands._browse.columns import Columns, Shown, Styled
from commands._browse.site import Job, Site
from commands._cells import printable, size
from commands._rows import Row
from rmqctl.errors import RmqctlError
from rmqctl.text import number_of

if TYPE_CHECKING:
    from commands._browse.reading import Batch, Reader
    from rmqctl.answer import Answer
    from rmqctl.questions import Question


class View:
    """What one pane shows.

    Attributes:
        title: what it is, for the line above.
        cursor: number of the line that is chosen.
        width: cells of the widest line.
        state: what it is doing, or what stopped it; "".
        failed: :attr:`state` is what stopped it.
        filter: what is typed to choose lines.
        needs_room: its lines want the whole width of a small terminal.
        follows: it can show what has been written since.
        opens_rows: its lines are rows that lead on.
    """

    needs_room = False
    follows = False
    opens_rows = False

    def __init__(self, site: Site, title: str) -> None:
        self.site, self.title = site, printable(title)
        self.cursor, self.width, self.state, self.filter = 0, 0, "", ""
        self.failed = False
        self.changed: Callable[[], object] = lambda: None
        self.crashed: Callable[[Exception], object] = lambda _: None
        self.job: Job | None = None
        self._next: tuple[Reader, Callable[[Any], object]] | None = None

    @property
    def command(self) -> str:
        """What shows the same on a command line; "" where nothing does."""
        return ""

    @property
    def count(self) -> int:
        """How many lines there are."""
        return 0

    def head(self) -> Sequence[Styled]:
        """Return the lines that stay at the top."""
        return ()

    def line(self, number: int) -> Styled:
        """Return a line that is in sight."""
        raise NotImplementedError

    def need(self, first: int, end: int) -> None:
        """Read what these lines show, unless it is there."""

    def before(self) -> None:
        """Read what comes before the first line, if there is anything."""

    def resized(self, width: int) -> None:
        """Take lines of another width."""

    def choose(self, text: str) -> None:
        """Show only what has this text."""
        self.filter, self.cursor = text, 0
        self.changed()

    def start(self) -> None:
        """Begin to read."""

    def renew(self) -> None:
        """Read again what may have changed."""
        self.start()

    @property
    def current(self) -> Row | None:
        """What is chosen, or what all of it is about: a row of a verb."""
        return None

    def opened(self) -> View | None:
        """Return what the chosen line leads to, where no row says it."""
        return None

    def copies(self) -> Mapping[str, str]:
        """Return what can be copied of the chosen line, by name."""
        return {}

    @property
    def topic(self) -> str | None:
        """The topic that it is about."""
        return None

    def sentence(self) -> str:
        """Return what the chosen line says in words; "" where it says all itself."""
        return ""

    def close(self) -> None:
        """Stop reading."""
        self._next = None
        if self.job is not None:
            self.job.stop()

    # --- reading ----------------------------------------------------------------------------------------

    def read(self, reader: Reader, took: Callable[[Any], object]) -> None:
        """Read this now, or as soon as what is being read is there, in the place of what waits.

        Args:
            took: gets each piece.
        """
        if self.job is not None:
            self._next = reader, took
            return
        self.failed, self.state = False, "reading ..."
        self.job = Job(self.site, reader, took, self._failed, self._read_so_far, self._ended)

    def _read_so_far(self, passed: int) -> None:
        self.state = f"reading ... {size(passed)}"
        self.changed()

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, (RmqctlError, OSError, MemoryError)):
            self.crashed(error)
            return
        self.failed, self.state = True, printable(str(error) or type(error).__name__)

    def _ended(self) -> None:
        self.job = None
        waiting, self._next = self._next, None
        if waiting is not None:
            self.read(*waiting)
        elif not self.failed:
            self.state = self.said()
        self.changed()

    def said(self) -> str:
        """Return what there is to say once all is read."""
        return ""


# --- rows of a verb ---------------------------------------------------------------------------------------


class RowsView(View):
    """The rows that a verb answers, as they come.

    Args:
        command: prints the same.
        question: what the store is asked.
        keys, kinds: see :func:`commands._browse.reading.rows`.
    """

    opens_rows = True

    def __init__(
        self,
        site: Site,
        title: str,
        command: str,
        question: Question[Answer],
        keys: Sequence[str] = (),
        kinds: Sequence[str] = (),
    ) -> None:
        super().__init__(site, title)
        self._command, self._reader = command, partial(reading.rows, question, keys, kinds)
        self._columns = Columns()
        self._rows: list[Shown] = []
        self._chosen: list[Shown] | None = None
        self._remarks: Sequence[str] = ()
        self._is_more = False

    @property
    def command(self) -> str:
        return self._command

    @property
    def count(self) -> int:
        return len(self._shown)

    @property
    def _shown(self) -> list[Shown]:
        return self._rows if self._chosen is None else self._chosen

    @property
    def current(self) -> Row | None:
        """The row that is chosen."""
        return self._shown[self.cursor].row if self.cursor < self.count else None

    def head(self) -> Sequence[Styled]:
        return [self._columns.head()] if self._columns.keys else []

    def line(self, number: int) -> Styled:
        return self._columns.line(self._shown[number])

    def choose(self, text: str) -> None:
        wanted = text.casefold()
        self._chosen = [shown for shown in self._rows if wanted in shown.text] if wanted else None
        super().choose(text)

    def start(self) -> None:
        self.read(self._reader, self._took)

    def _took(self, batch: Batch) -> None:
        if batch.is_first:
            self._rows, self._chosen = [], [] if self.filter else None
        self._columns, self.width = batch.columns, batch.columns.width
        self._rows += batch.rows
        if self._chosen is not None:
            wanted = self.filter.casefold()
            self._chosen += [shown for shown in batch.rows if wanted in shown.text]
        self._remarks, self._is_more = batch.remarks, batch.is_more
        part = "" if batch.percent is None else f" {batch.percent}%"
        self.state = f"reading{part} ... {number_of(len(self._rows), 'row')}"
        self.changed()

    def said(self) -> str:
        """Return how many rows there are, and what the verb says beside them."""
        count = number_of(len(self._rows), "row")
        if self._is_more:
            count = f"the first {count}; the command shows all"
        return "; ".join([count, *self._remarks[:2]])

    def sentence(self) -> str:
        row = self.current
        return (
            printable(row["message"]) if row is not None and row.get("kind") == "finding" and self.job is None else ""
        )

    @property
    def topic(self) -> str | None:
        return None if self.current is None else self.current.get("topic")
