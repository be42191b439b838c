"""What the verbs say of some stores, gathered into the document of a report.

A document is bounded, however large the stores are: of what is many a part is kept, and ``sampled`` says which.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from rmqctl import __version__
from rmqctl.answer import Answer, Row
from rmqctl.doctor import LEVELS, examine, level_of
from rmqctl.errors import RmqctlError, WrongUsage
from rmqctl.findings import all_kinds
from rmqctl.fleet import Fleet
from rmqctl.inventory import Member
from rmqctl.opening import open_path
from rmqctl.release import Release
from rmqctl.repair.edits import Overwrite, Plan
from rmqctl.report.document import KIND, VERSION
from rmqctl.store import Store
from rmqctl.text import typed

_FINDINGS, _OF_ONE_KIND = 800, 100
_STRETCHES, _STRETCH, _FIELDS = 60, 2048, 60
_ROWS, _SEGMENTS, _CHANGES, _STEPS = 600, 1500, 40, 200
_RAW = 64
"""What a document keeps at most, all stores together: findings, stretches of annotated bytes and their bytes and
fields, rows of a table, segments, changed bytes and steps of a plan, bytes of a field.
"""
_GROUPS = 60
"""Rows of a kind of figures."""
_CONTENT = frozenset({"body", "value", "gap", "line", "records"})
"""Fields that hold what users sent: shown only where the damage is in them."""
_PENDING = ("timer", "delay", "transaction", "pop")
_START = frozenset({"partition", "log_start_offset", "log_end_offset", "lost", "stopped_by"})
"""What is kept of a row of `recover`: names of files are many, and no picture has them."""
_EPOCHS, _LAST_EPOCHS = 200, 20
"""Partitions whose leader epochs are read, and the last of them that are kept."""
_FIGURES = ("all", "topic", "compression", "producer", "host", "tag")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a report is to say.

    Attributes:
        level: of the checks; None: what ends soon, by the size of the log.
        as_release: judge as this release; None: the one the store shows.
        everything: also what reads a large log again: figures, the start of each release, the plan of a repair.
        replicas: the stores are replicas of each other: say what each choice of a leader loses.
        redact: no body, no key and no value of a property.
        verified: what `verify -o json` said of the stores, instead of checking them.
    """

    level: str | None = None
    as_release: Release | None = None
    everything: bool = False
    replicas: bool = False
    redact: bool = False
    verified: Mapping[str, Any] | None = None


def collect(fleet: Fleet, wanted: Wanted = Wanted(), advance: Callable[[int], object] = lambda _: None) -> Row:
    """Ask the stores, one after the other; one that cannot be read is there with ``error``.

    Args:
        advance: called with the bytes of log that have been checked since its last call.

    Raises:
        WrongUsage: an option does not go with one of the stores.
    """
    share = max(len(fleet), 1)
    stores = []
    for member, store in fleet.stores:
        try:
            if isinstance(store, Exception):
                raise store
            if not isinstance(store, Store):
                raise RmqctlError(f"{member.path} is a result of verify, and no store")
            found = _Collected(member, store, wanted, share).row(advance)
        except (RmqctlError, OSError) as error:
            if isinstance(error, WrongUsage) and error.option != "PATH":
                raise
            found = {"path": member.path, "error": str(error)}
        stores.append({**member.head, **member.facts, **found})
    ids = {finding["id"] for store in stores for finding in store.get("findings", ())}
    kinds = {kind.id: {k: str(v) for k, v in asdict(kind).items() if v} for kind in all_kinds() if kind.id in ids}
    return {
        "kind": KIND,
        "version": VERSION,
        "made": int(time.time() * 1000),
        "made_by": f"rmqctl {__version__}",
        "redacted": wanted.redact,
        "stores": stores,
        "kinds": kinds,
        "replicas": _elected(fleet) if wanted.replicas else None,
        "differences": _different(fleet, wanted) if wanted.replicas else [],
        "remarks": list(fleet.remarks),
    }


def _elected(fleet: Fleet) -> Row:
    stores = [store for _, store in fleet.stores if isinstance(store, Store)]
    if len(stores) < 2 or len(stores) < len(fleet):
        raise WrongUsage("--replicas", "compares two stores or more, all of which can be read.")
    answer = stores[0].elect(stores[1:])
    answer.prepare()
    found = answer.document() if answer.document is not None else {"rows": list(answer)}
    return {**found, "remarks": list(answer.remarks)}


def _different(fleet: Fleet, wanted: Wanted) -> list[Row]:
    """Return what `diff` finds of the first store against each other one, with the name of the other."""
    (_, first), *others = fleet.stores
    assert isinstance(first, Store)
    rows = list[Row]()
    for member, other in others:
        assert isinstance(other, Store)
        if not wanted.everything and max(first.size, other.size) > LEVELS[0][0]:
            why = "it is large, and both logs would be read again; --everything asks for it"
            rows.append({"store": member.name, "message": f"not compared: {why}"})
            continue
        try:
            found = [row for row in first.diff(other) if row.get("kind") == "finding"]
        except (RmqctlError, OSError) as error:
            rows.append({"store": member.name, "message": f"not compared: {error}"})
            continue
        said = [{"store": member.name, **{name: row[name] for name in _DIFFERENCE if name in row}} for row in found]
        rows += said[: _ROWS // len(others)] or [{"store": member.name, "message": "no difference"}]
    return rows


_DIFFERENCE = (
    "severity", "id", "topic", "queue_id", "queue_offset", "partition", "file", "offset", "size", "physical_offset",
    "message",
)  # fmt: skip
"""What is kept of a finding of `diff`; it quotes no content."""


class _Collected:
    """What is gathered of one store.

    Attributes:
        sampled: what was left out for its size, a row each.
        unasked: verbs that were not asked or did not answer, a row each with the reason.
    """

    def __init__(self, member: Member, store: Store, wanted: Wanted, share: int) -> None:
        """
        Args:
            share: among how many stores the document is divided.
        """
        self.member, self.store, self.share = member, store, share
        release = wanted.as_release or member.release
        self.wanted = replace(wanted, as_release=release)
        self.sampled: list[Row] = []
        self.unasked: list[Row] = []
        self.reads_again = wanted.everything or store.size <= LEVELS[0][0]

    def row(self, advance: Callable[[int], object]) -> Row:
        """Return all of it."""
        checked = self._checked()
        counts, kept = Counter[tuple[str, str]](), list[Row]()
        checked.prepare()
        checked.rows = self._kept(checked.rows, counts, kept)
        seen = examine(self.store, self.member.path, checked)
        seen.on_advance = advance
        seen.prepare()
        document = seen.document() if seen.document is not None else {}
        said = [list(section.lines) for section in seen.sections()] if seen.sections is not None else []
        summary = dict(checked.summary()) if checked.summary is not None else {}
        order = ("error", "warning", "note")
        kept.sort(key=lambda finding: order.index(finding["severity"]))
        findings = [{**finding, "number": n} for n, finding in enumerate(kept[: self._most(_FINDINGS)])]
        self._say("findings", len(findings), counts.total(), "the worst first, and of each kind the first ones")
        repair, changes = self._repaired(document)
        return {
            "path": self.store.root,
            "sound": not seen.is_no,
            "doctor": {**document, "said": said},
            "verify": {"summary": {k: v for k, v in summary.items() if k not in {"kind", "start"}}},
            "start": summary.get("start"),
            "counts": [{"severity": s, "id": i, "findings": n} for (s, i), n in sorted(counts.items())],
            "findings": findings,
            "bytes": self._stretches(findings),
            "info": self._document("info", self.store.info()),
            "recover": self._compared(),
            "repair": repair,
            "changes": changes,
            "topics": self._rows("topics", self.store.topics, lambda row: -(row.get("bytes") or 0), "the largest"),
            "lag": self._lag(),
            "transactions": self._rows(
                "transactions", self.store.transactions, lambda row: not row["hanging"], "hanging first"
            ),
            "producers": self._rows("producers", self.store.producers, _open_first, "open transactions first"),
            "pending": self._pending(),
            "disk": self._rows("room on disk", lambda: self.store.topics(disk=True), _largest, "the largest"),
            "partitions": self._started(),
            **self._laid_out(),
            "figures": self._figures(),
            "sampled": self.sampled,
            "unasked": self.unasked,
            "remarks": [*checked.remarks, *([str(checked.error)] if checked.error is not None else [])],
        }

    def _most(self, number: int) -> int:
        return max(number // self.share, 5)

    def _say(self, what: str, shown: int, of: int, how: str) -> None:
        if shown < of:
            self.sampled.append({"what": what, "shown": shown, "of": of, "how": how})

    # --- the scan ---------------------------------------------------------------------------------------

    def _checked(self) -> Answer:
        wanted = self.wanted
        if wanted.verified is None:
            return self.store.verify(level=wanted.level or level_of(self.store), as_release=wanted.as_release)
        stores = wanted.verified.get("stores")
        found: Any = wanted.verified
        if stores is not None:
            found = next((one for one in stores if one.get("store") == self.member.name), None)
        if not isinstance(found, dict) or not {"summary", "findings"} <= found.keys():
            raise WrongUsage("--verified", f"holds no answer of `verify -o json` on {self.member.name}.")
        summary = {**found["summary"], "start": found.get("start")}
        return Answer(rows=found["findings"], summary=lambda: summary)

    def _kept(
        self, rows: Iterable[Row | None], counts: Counter[tuple[str, str]], kept: list[Row]
    ) -> Iterator[Row | None]:
        """Pass rows on; count them, and keep the first ones of each kind."""
        for row in rows:
            if row is not None:
                key = row["severity"], row["id"]
                counts[key] += 1
                if counts[key] <= _OF_ONE_KIND:
                    kept.append(row)
            yield row

    # --- bytes ------------------------------------------------------------------------------------------

    def _stretches(self, findings: Sequence[Row]) -> list[Row]:
        """Return annotated bytes of the first damaged places."""
        places = [f for f in findings if f["size"] or f["offset"]]
        worth = [f for f in places if f["severity"] != "note"] or places
        shown = worth[: self._most(_STRETCHES)]
        self._say("annotated bytes", len(shown), len(worth), "of the first findings")
        return [stretch for finding in shown if (stretch := self._stretch(finding)) is not None]

    def _stretch(self, finding: Row) -> Row | None:
        begin = finding["offset"]
        end = begin + min(max(finding["size"], 1), _STRETCH)
        path = self.store.path_of(finding["file"])
        try:
            with_group = self._fields(path, (begin, end))
        except (RmqctlError, OSError):
            return None
        if not with_group:
            return None
        group = with_group[0].group
        around = (
            (begin, end)
            if group is None
            else (min(group.offset, begin), min(group.offset + group.size, group.offset + _STRETCH))
        )
        notes = with_group if around == (begin, end) else self._fields(path, (around[0], max(around[1], end)))
        rows = [self._field(note, (begin, begin + finding["size"])) for note in notes]
        return {
            "finding": finding["number"],
            "file": finding["file"],
            "begin": begin,
            "end": begin + finding["size"],
            "shown_to": end,
            "command": typed("dump", path, "-o", "hex", "--bytes", f"{around[0]}-{max(around[1], end)}"),
            "fields": rows,
        }

    def _fields(self, path: str, within: tuple[int, int]) -> list[Any]:
        place = open_path(path, format=self.store.family)
        found = list[Any]()
        for stretch in place.hex(within=within).stretches:
            for note in stretch.notes:
                if note.offset >= within[1] or len(found) == _FIELDS:
                    break
                found.append(note)
        return found

    def _field(self, note: Any, damaged: tuple[int, int]) -> Row:
        """Return one field; what it holds only where that may be shown."""
        is_content = bool(_CONTENT & set(note.path)) and not (note.offset < damaged[1] and note.end > damaged[0])
        is_text = not isinstance(note.value, int)
        hidden = is_content or (self.wanted.redact and is_text and note.path[-1] not in _NAMES)
        value = None if hidden else note.value
        return {
            "offset": note.offset,
            "size": note.size,
            "name": note.path[-1],
            "depth": note.depth,
            "value": value.hex(" ") if isinstance(value, bytes) else value,
            "meaning": "" if hidden or (self.wanted.redact and is_text) else note.meaning,
            "wrong": note.wrong,
            "raw": "" if hidden else note.raw[:_RAW].hex(),
            "hidden": hidden,
            "record": "" if note.group is None else f"{note.group.name} {note.group.title}".strip(),
        }

    # --- other verbs ------------------------------------------------------------------------------------

    def _document(self, name: str, answer: Answer) -> Row:
        answer.prepare()
        return dict(answer.document()) if answer.document is not None else {"rows": list(answer)}

    def _rows(self, name: str, verb: Callable[[], Answer], order: Callable[[Row], Any], how: str) -> list[Row]:
        """Return the rows of a verb; none where the family does not have it."""
        try:
            answer = verb()
            found = sorted(answer, key=order)
        except WrongUsage:
            return []
        except (RmqctlError, OSError) as error:
            self.unasked.append({"what": name, "why": str(error)})
            return []
        shown = found[: self._most(_ROWS)]
        self._say(name, len(shown), len(found), how)
        return shown

    def _lag(self) -> list[Row]:
        def order(row: Row) -> tuple[bool, int]:
            return row.get("anomaly") is None, -(row.get("lag") or 0)

        rows = self._rows("lag", self.store.lag, order, "anomalies, then the largest lag")
        return [{**row, "metadata": None} if self.wanted.redact and "metadata" in row else row for row in rows]

    def _pending(self) -> list[Row]:
        """Return what waits: timers, delayed messages, half messages, and what pop consumers hold."""
        rows = list[Row]()
        for what in _PENDING:
            asked = partial(self.store.dump, pending=what)
            rows += self._rows(f"pending, {what}", asked, _due, "the first ones due")
        return [{**row, "unique_key": None} if self.wanted.redact else row for row in rows]

    def _started(self) -> list[Row]:
        """Return where a start of the broker ends each partition; a store without partitions has no rows."""
        if not self.reads_again:
            return []  # that `recover` was not asked is said where releases are compared
        try:
            with self.store.recover(as_release=self.wanted.as_release) as answer:
                rows: list[Row] = [
                    {name: row[name] for name in row if name in _START} for row in answer if row.keys() >= _START
                ]
        except (RmqctlError, OSError) as error:
            self.unasked.append({"what": "recover", "why": str(error)})
            return []
        rows.sort(key=lambda row: -row["lost"]["records"])
        shown = rows[: self._most(_ROWS)]
        self._say("partitions of a start", len(shown), len(rows), "what loses the most first")
        return shown

    def _laid_out(self) -> Row:
        """Return segments, and the leader epochs of partitions."""
        found = self._rows_of_segments()
        directories = dict.fromkeys(one["file"].rpartition("/")[0] for one in found if "partition" in one)
        most = self._most(_EPOCHS)
        self._say("leader epochs of partitions", min(len(directories), most), len(directories), "the first ones")
        epochs = [row for directory in list(directories)[:most] for row in self._epochs(directory)]
        return {"segments": self._some(found), "leader_epochs": epochs}

    def _epochs(self, directory: str) -> list[Row]:
        """Return what `dump` says of the leader epochs in the directory of a partition; nothing where it has none."""
        path = self.store.path_of(f"{directory}/leader-epoch-checkpoint")
        try:
            rows = list(open_path(path, format=self.store.family).dump())
        except (RmqctlError, OSError):
            return []
        topic, _, number = directory.rpartition("/")[2].rpartition("-")
        own = [row for row in rows if row["kind"] == "leader_epoch" and number.isdecimal()]
        last = own[-_LAST_EPOCHS:]
        return [
            {"topic": topic, "partition": int(number), "epoch": r["epoch"], "start_offset": r["start_offset"]}
            for r in last
        ]

    def _some(self, found: list[Row]) -> list[Row]:
        """Return as many segments as a document keeps."""
        most = self._most(_SEGMENTS)
        if len(found) <= most:
            return found
        every = -(-len(found) // most)
        shown = found[::every]
        self._say("segments", len(shown), len(found), f"each {every}th")
        return shown

    def _rows_of_segments(self) -> list[Row]:
        try:
            return list(self.store.info(segments=True))
        except (RmqctlError, OSError) as error:
            self.unasked.append({"what": "info --segments", "why": str(error)})
            return []

    def _large(self, what: str) -> bool:
        """Whether a verb that reads the whole log is left out; then it is said."""
        if self.reads_again:
            return False
        self.unasked.append({"what": what, "why": "it reads the whole log again; --everything asks it"})
        return True

    def _compared(self) -> list[Row]:
        if self._large("recover --compare"):
            return []
        try:
            with self.store.recover(compare=True) as answer:
                return list(answer)
        except (RmqctlError, OSError) as error:
            self.unasked.append({"what": "recover --compare", "why": str(error)})
            return []

    def _repaired(self, document: Row) -> tuple[Row | None, list[Row]]:
        """Return the plan of a repair, and the bytes that it would change; None where nothing is wrong."""
        if not document["worst"] or self._large("repair"):
            return None, []
        try:
            with self.store.repair() as planned:
                planned.prepare()
                found = dict(planned.document()) if planned.document is not None else {}
                changes = [] if planned.plan is None else list(self._changes(planned.plan))
        except (RmqctlError, OSError) as error:
            self.unasked.append({"what": "repair", "why": str(error)})
            return None, []
        for name in ("steps", "left"):
            rows = found.get(name, [])
            shown = rows[: self._most(_STEPS)]
            self._say(f"{name} of the plan", len(shown), len(rows), "the first ones")
            found[name] = [{**row, "edits_in_all": len(row["edits"]), **_first(row)} for row in shown]
        summary = dict(found.get("summary", {}))
        summary["remaining"] = summary.get("remaining", [])[: self._most(_CHANGES)]
        return {**found, "summary": summary}, changes

    def _changes(self, plan: Plan) -> Iterator[Row]:
        edits = [
            (step, edit)
            for step in plan.steps
            for edit in step.edits
            if isinstance(edit, Overwrite) and len(edit.before) <= _RAW
        ]
        shown = edits[: self._most(_CHANGES)]
        self._say("changed bytes", len(shown), len(edits), "the first ones")
        for step, edit in shown:
            row = {"id": step.id, "file": edit.file, "offset": edit.offset, "size": len(edit.before)}
            if not self.wanted.redact:
                row |= {"before": edit.before.hex(), "after": edit.after.hex()}
            yield row

    def _figures(self) -> Row | None:
        if self._large("stats"):
            return None
        from rmqctl.pipeline.stats import collect_here

        try:
            found = asdict(collect_here(self.store.as_tables(), keys=not self.wanted.redact))
        except (RmqctlError, OSError) as error:
            self.unasked.append({"what": "stats", "why": str(error)})
            return None
        del found["read"]  # findings say what is damaged
        hidden = {"tag"} if self.wanted.redact else set()
        names = [name for name in _FIGURES if name in found["groups"] and name not in hidden]
        groups = {name: sorted(found["groups"][name], key=lambda row: -row["messages"]) for name in names}
        for name, rows in groups.items():
            self._say(f"figures by {name}", min(len(rows), _GROUPS), len(rows), "the most messages")
        found["groups"] = {name: rows[:_GROUPS] for name, rows in groups.items()}
        found["columns"] = {name: columns for name, columns in found["columns"].items() if name in groups}
        shown = {row["topic"] for row in found["groups"]["topic"]}
        found["timeline"] = [row for row in found["timeline"] if row["topic"] in shown]
        return found


def _open_first(row: Row) -> bool:
    return (row.get("current_txn_first_offset") or -1) < 0


def _largest(row: Row) -> int:
    return -(row.get("bytes_used") or 0)


def _due(row: Row) -> int:
    return row.get("due_timestamp") or row.get("store_timestamp") or 0


def _first(step: Row) -> Row:
    return {name: step[name][:_CHANGES] for name in ("edits", "gives_up")}


_NAMES = frozenset({"topic", "born_ip", "store_ip", "zeros", "zero_tail", "gone", "padding"})
"""Fields with text that no user sent as a body, a key or a property."""
