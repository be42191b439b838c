"""The books of a new store: every whole record of the sources is in it, by what it is.

A copy gets another place in its file, so what a record is known by is what copying keeps of it, and its place is
the offset that consumers know. Of each record 32 bytes are kept; those of many lie in files without a name beside
the copy, sixty-four parts of both sides that are compared one after the other, so that memory stays small.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol, Self

import numpy as np
import numpy.typing as npt

from rmqctl.errors import Unbalanced
from rmqctl.repair.books import Books
from rmqctl.repair.changes import named

WHOLE = np.dtype(
    [
        ("identity", np.uint64),  # of what copying keeps
        ("place", np.uint64),  # of topic, queue and offset, or the like
        ("file", np.int32),  # a number of the family's
        ("position", np.int64),  # in it, bytes
        ("records", np.int32),  # messages in it; less than 0: for which it says that it stands
    ]
)
"""A whole record, on one side."""
Rows = npt.NDArray[np.void]
Flags = npt.NDArray[np.bool_]
_BITS = 6
_ODD = np.uint64(0x9E3779B97F4A7C15)
_IN_MEMORY = 1 << 19
"""Rows of one side that are kept without a file."""
_MOST_NAMES = 5


class CopyLedger(Protocol):
    """What a family says of the records of sources and copy. Nothing raises on what the bytes are."""

    def before(self) -> Iterator[Rows]:
        """Yield every whole record of the sources, wherever it lies, of dtype :data:`WHOLE`."""
        ...

    def after(self) -> Iterator[Rows]:
        """Yield every whole record of the copy."""
        ...

    def garbage(self, missing: Rows, holders: Rows) -> Flags:
        """Which of these records, that the copy has not, are no loss, with a proof.

        Args:
            holders: the records of the copy that have their places; file -1 where none has.
        """
        ...

    def given_up(self, missing: Rows, holders: Rows) -> Flags:
        """Which of these records are given up by name."""
        ...

    def may_move(self, moved: Rows) -> Flags:
        """Which of these records may have another place in the copy than they name."""
        ...

    def name(self, record: np.void, *, of_copy: bool) -> str:
        """Return what people call a record, and where it lies."""
        ...


def rows_of(
    identity: npt.ArrayLike, place: npt.ArrayLike, file: int, position: npt.ArrayLike, records: npt.ArrayLike
) -> Rows:
    """Return records as one array; columns of shape (n,)."""
    found = np.empty(np.shape(identity), WHOLE)
    found["identity"], found["place"], found["file"] = identity, place, file
    found["position"], found["records"] = position, records
    return found


def balance_copy(ledger: CopyLedger, into: Path) -> Books:
    """Hold a new store to the records of its sources; both are read once.

    Args:
        into: the new store, in which files without a name may lie for a while.

    Raises:
        Unbalanced: the books do not balance.
        OSError: one of them cannot be read, or the disk is full.
    """
    books = Books()
    with _Pile(into, _keys) as before, _Pile(into, _keys) as after:
        for rows in ledger.before():
            before.add(rows)
            books.whole_before += int(np.abs(rows["records"]).sum())
        for rows in ledger.after():
            after.add(rows)
        missing, displaced, invented, doubled = _compared(before, after, into, ledger, books)
        holders = _holders(missing, after)
    _explain(ledger, missing, holders, books)
    _complain(ledger, displaced, "has another place in the result", books, of_copy=False)
    books.placeholders += -int(invented["records"][invented["records"] < 0].sum())
    _complain(ledger, invented[invented["records"] >= 0], "was in no source", books, of_copy=True)
    _complain(ledger, doubled, "stands there twice", books, of_copy=True)
    if not books.balances:
        raise Unbalanced(into, named(books.problems))
    return books


def _compared(
    before: _Pile, after: _Pile, into: Path, ledger: CopyLedger, books: Books
) -> tuple[Rows, Rows, Rows, Rows]:
    """Return records that the copy has not, has elsewhere and may not, has alone, and has twice; count the others."""
    found: tuple[list[Rows], ...] = ([], [], [], [])
    with _Pile(into, _identities) as gone, _Pile(into, _identities) as new:
        for was, now in zip(before, after, strict=True):
            (old, copies), (made, twice) = _once(was), _once(now)
            books.garbage += _messages(copies)
            gone.add(old[~np.isin(_keys(old), _keys(made))])
            new.add(made[~np.isin(_keys(made), _keys(old))])
            found[3].append(twice)
        for left, more in zip(gone, new, strict=True):
            left, more = left[np.argsort(left["identity"])], more[np.argsort(more["identity"])]
            is_moved, is_known = np.isin(_turns(left), _turns(more)), np.isin(_turns(more), _turns(left))
            moved = left[is_moved]
            books.moved += _messages(moved)
            for rows, some in zip(
                found, (left[~is_moved], moved[~ledger.may_move(moved)], more[~is_known]), strict=False
            ):
                rows.append(some)
    missing, displaced, invented, doubled = (np.concatenate([np.empty(0, WHOLE), *rows]) for rows in found)
    return missing, displaced, invented, doubled


def _holders(missing: Rows, after: _Pile) -> Rows:
    """Return the records of the copy at the places of others, file -1 where there is none."""
    found = np.empty(len(missing), WHOLE)
    found["file"] = -1
    for rows in after if len(missing) else ():
        rows = rows[rows["records"] >= 0]  # a placeholder has nobody's place
        rows = rows[np.argsort(rows["place"])]
        at = np.minimum(np.searchsorted(rows["place"], missing["place"]), max(len(rows) - 1, 0))
        same = rows["place"][at] == missing["place"] if len(rows) else np.zeros(len(missing), np.bool_)
        found[same] = rows[at[same]]
    return found


def _explain(ledger: CopyLedger, missing: Rows, holders: Rows, books: Books) -> None:
    """Hold what the copy has not to the law."""
    is_garbage = ledger.garbage(missing, holders) | (missing["records"] < 0)
    is_named = ~is_garbage & ledger.given_up(missing, holders)
    books.garbage += _messages(missing[is_garbage])
    books.given_up += _messages(missing[is_named])
    books.gives_up += [ledger.name(row, of_copy=False) for row in _in_order(missing[is_named])]
    _complain(ledger, missing[~is_garbage & ~is_named], "is not in the result", books, of_copy=False)


def _complain(ledger: CopyLedger, rows: Rows, what: str, books: Books, *, of_copy: bool) -> None:
    books.problems += [f"{ledger.name(row, of_copy=of_copy)} {what}" for row in _in_order(rows)[:_MOST_NAMES]]
    if (more := len(rows) - _MOST_NAMES) > 0:
        books.problems.append(f"{more:,} more")


def _in_order(rows: Rows) -> Rows:
    return rows[np.lexsort((rows["position"], rows["file"]))]


def _once(rows: Rows) -> tuple[Rows, Rows]:
    """Return each record once, of copies at one place the first, sorted by identity and place; and the other copies."""
    rows = rows[np.lexsort((rows["place"], rows["identity"]))]
    is_first = np.ones(len(rows), np.bool_)
    is_first[1:] = (rows["identity"][1:] != rows["identity"][:-1]) | (rows["place"][1:] != rows["place"][:-1])
    return rows[is_first], rows[~is_first]


def _keys(rows: Rows) -> npt.NDArray[np.uint64]:
    """What has to be the same of a record that is where it was, as one number each."""
    return _mixed(rows["identity"], rows["place"])


def _identities(rows: Rows) -> npt.NDArray[np.uint64]:
    found: npt.NDArray[np.uint64] = rows["identity"]
    return found


def _turns(rows: Rows) -> npt.NDArray[np.uint64]:
    """Identity, and how many of the same came before: who has as many as the other side has all of them."""
    identity = rows["identity"]
    new = np.ones(len(rows), np.bool_)
    new[1:] = identity[1:] != identity[:-1]
    first = np.flatnonzero(new)
    turn = np.arange(len(rows)) - np.repeat(first, np.diff([*first.tolist(), len(rows)]))
    return _mixed(identity, turn.astype(np.uint64))


def _mixed(one: npt.NDArray[np.uint64], other: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    found: npt.NDArray[np.uint64] = (other * _ODD ^ one) * _ODD
    return found ^ (found >> np.uint64(29))


def _messages(rows: Rows) -> int:
    return int(np.abs(rows["records"]).sum())


class _Pile:
    """Records of one side in parts by the first bits of a number of each; few stay in memory.

    Args:
        room: a directory for files without a name.
        number: of each record, shape (n,).
    """

    def __init__(self, room: Path, number: Callable[[Rows], npt.NDArray[np.uint64]]) -> None:
        self.room, self.number = room, number
        self._waiting: list[Rows] = []
        self._count = 0
        self._files: list[IO[bytes]] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._open.close()

    def add(self, rows: Rows) -> None:
        self._waiting.append(rows)
        self._count += len(rows)
        if self._count > _IN_MEMORY:
            self._spill()

    def __iter__(self) -> Iterator[Rows]:
        if not self._files:
            every = np.concatenate([np.empty(0, WHOLE), *self._waiting])
            yield from (every[of_part] for of_part in self._parts(every))
            return
        self._spill()
        for file in self._files:
            file.seek(0)
            yield np.frombuffer(bytearray(file.read()), WHOLE)

    def _spill(self) -> None:
        if not self._files:
            files = (tempfile.TemporaryFile(dir=self.room) for _ in range(1 << _BITS))  # noqa: SIM115 - see __exit__
            self._files = [self._open.enter_context(file) for file in files]
        every = np.concatenate([np.empty(0, WHOLE), *self._waiting])
        for part, of_part in zip(self._files, self._parts(every), strict=True):
            part.write(every[of_part].tobytes())
        self._waiting, self._count = [], 0

    def _parts(self, rows: Rows) -> Iterable[npt.NDArray[np.int64]]:
        """Numbers of the rows of each part, in their order."""
        part = (self.number(rows) >> np.uint64(64 - _BITS)).astype(np.int64)
        order = np.argsort(part, kind="stable")
        return np.split(order, np.searchsorted(part[order], np.arange(1, 1 << _BITS)))
