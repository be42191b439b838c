"""How the answers of several stores become one: rows with the store's name and their sums, or a row a store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from rmqctl import questions
from rmqctl.answer import Answer, Proposal, Row, Section
from rmqctl.errors import RmqctlError, WrongUsage
from rmqctl.inventory import Member
from rmqctl.questions import Question
from rmqctl.results import Reply
from rmqctl.store import Store
from rmqctl.text import number_of, typed

if TYPE_CHECKING:
    from rmqctl.fleet import Fleet

_NEXT = 5
"""Commands that are proposed for single stores."""


class Elsewhere(Protocol):
    """One store that was asked on another machine."""

    def answer(self, question: Question[Any] | None, /) -> Answer:
        """Return what it said.

        Args:
            question: None: how it differs from another.

        Raises:
            RmqctlError, OSError: it could not be read there; it was not asked that.
        """
        ...


Opened = Store | Elsewhere | RmqctlError | OSError
"""What became of one of several stores."""
Asked = Store | Elsewhere


Ask = Callable[[Member, Asked], Answer]
T = TypeVar("T")


def _each(
    fleet: Fleet, ask: Ask, answer: Answer, use: Callable[[Member, Answer], Iterator[T]], failed: Callable[[Row], T]
) -> Iterator[T]:
    """Yield what is made of each answer; where there is none, or it breaks off, of the row that says why."""
    answer.is_no = False
    for member, store in fleet.stores:
        own: Answer | None = None
        try:
            if isinstance(store, Exception):
                raise store
            own = ask(member, store)
            own.on_advance, own.every = answer.advance, answer.every
            own.remarks += [store.missing] if isinstance(store, Store) and store.missing else []
            own.prepare()
            yield from use(member, own)
            answer.is_no = answer.is_no or not _is_well(own)
        except (RmqctlError, OSError) as error:
            if isinstance(error, WrongUsage) and error.option != "PATH":
                raise
            answer.is_no = True
            yield failed({**member.head, "error": str(error)})
        finally:
            if own is not None:
                said = [*own.remarks, *([str(own.error)] if own.error is not None else [])]
                answer.remarks += (f"{member.name}: {remark}" for remark in said)
                if isinstance(own, Proposal):
                    own.close()


def _is_well(own: Answer) -> bool:
    return not own.is_no and own.error is None


def ask_one(member: Member, store: Store, question: Question[Any]) -> Answer:
    """Ask one store of several, by the release that the inventory says where the question says none."""
    own = {"as_release": member.release} if member.release is not None else {}
    is_free = own and getattr(question, "as_release", 0) is None
    answer: Answer = store.ask(replace(question, **own) if is_free else question)
    if store.selection and question.verb not in store.keep_to_selection:
        answer.remark(f"{store.selection} is a part of the store: this looks at the whole store")
    return answer


def reply_of(member: Member, store: Store, question: Question[Any], *, shown: bool, every: bool) -> Reply:
    """Ask one store of several and read its answer to the end, so that it can be summed up on another machine.

    Args:
        shown: for a terminal; else as JSON has it.
        every: as of :class:`rmqctl.answer.Answer`.
    """
    own, reply = ask_one(member, store, question), Reply()
    try:
        own.every = every
        own.remarks += [store.missing] if store.missing else []
        own.prepare()
        if type(question) in _BY_ROWS:
            reply.rows = list(own)
            reply.columns = None if own.columns is None else list(own.columns)
        elif shown:
            sections = [] if own.sections is None else list(map(read_section, own.sections()))
            made = own.summary or own.document
            reply.summary = {} if made is None else dict(made())
            reply.sections = [] if _is_well(own) else sections
        else:
            reply.document = dict(own.document()) if own.document is not None else {"rows": list(own)}
        reply.remarks, reply.is_no, reply.error = own.remarks, own.is_no, own.error
    finally:
        if isinstance(own, Proposal):
            own.close()
    return reply


# --- rows of all stores -------------------------------------------------------------------------------


_HEADS = ("store", "cluster", "error")
"""What a CSV of several stores begins with."""
_Rows = list[tuple[Member, Row]]
"""Rows, each with its store."""


def _rows(
    fleet: Fleet,
    ask: Ask,
    *,
    sums: Callable[[Iterable[Row]], Section] | None,
    lacking: Callable[[Fleet, _Rows], Iterable[str]] = lambda *_: (),
    shown: Sequence[str] = (),
    is_counted: bool = False,
) -> Answer:
    """Give the rows of every store with its name before them.

    Args:
        sums: makes the table of sums over all stores.
        lacking: says what some stores have no rows of, though others do.
        shown: columns on a terminal of what is looked for: one store that has it is enough for a "yes", and that others
            found nothing is left out.
        is_counted: rows say how many queues of them are in the sums.
    """
    kept: _Rows = []
    columns: list[str] = []
    header = dict.fromkeys(_HEADS)
    last = ("counted",) if is_counted else ()  # but where no store could be read, so that no family is known
    answer = Answer(
        remarks=list(fleet.remarks), late_header=lambda: [*header, *last[: len(header) - len(_HEADS)]]
    )  # fmt: skip

    def named(member: Member, own: Answer) -> Iterator[Row]:
        header.update(dict.fromkeys(own.header or ()))
        columns.extend(name for name in own.columns or () if name not in columns)
        before, remarks = len(kept), len(own.remarks)
        for row in own:
            kept.append((member, row))
            columns.extend(name for name in shown if name in row and name not in columns)
            yield {**member.head, **{name: value for name, value in row.items() if name != "parts"}}
        if shown and len(kept) == before and len(own.remarks) > remarks:
            own.remarks.pop()  # that nothing was found, the last one; what was damaged on the way stays

    def rows() -> Iterator[Row]:
        unread = 0
        for row in _each(fleet, ask, answer, named, lambda row: row):
            unread += "error" in row
            yield row
        if shown:
            _judge(answer, len(kept), len(fleet) - unread, unread)
        answer.remarks += lacking(fleet, kept)

    def counted() -> Iterator[Row]:
        found = list(rows())
        numbers = iter([sum(map(_queues, parts)) for parts in _adding_up(fleet, kept)])
        yield from (row if "error" in row else {**row, "counted": next(numbers)} for row in found)

    def sections() -> Iterator[Section]:
        found = list(rows())
        shown = [row for row in found if "error" not in row]
        heads = [name for name in ("store", "cluster") if any(name in row for row in shown)]
        yield Section(rows=shown, columns=[*heads, *columns] if columns else None, is_optional=True)
        if sums is not None:
            yield Section(lines=[""])
            yield sums(_summed(fleet, kept, answer))
        yield Section(lines=_failures(found), folds=True)

    answer.rows, answer.sections = counted() if is_counted else rows(), sections
    return answer


def _judge(answer: Answer, found: int, read: int, unread: int) -> None:
    """Judge what was looked for in stores."""
    answer.is_no = not found or bool(unread)
    if not found and read:
        answer.remark(f"nothing found in {number_of(read, 'store')}; one alone says why")


def _summed(fleet: Fleet, kept: _Rows, answer: Answer) -> Iterator[Row]:
    """Yield the rows that add up, with their cluster."""
    beside = _beside(fleet, kept)
    if beside:
        answer.remark(f"not in the sums, being replicas of others here: {', '.join(sorted(beside))}")
    unread = [member.name for member, store in fleet.stores if isinstance(store, Exception)]
    if unread:
        answer.remark(f"the sums lack what cannot be read: {', '.join(unread)}")
    adding_up = _adding_up(fleet, kept)
    all_of = sum(len(_parts(row)) for member, row in kept if member.name not in beside)
    if copies := all_of - sum(map(len, adding_up)):
        are = "copy of a partition is" if copies == 1 else "copies of partitions are"
        answer.remark(f"{copies:,} {are} not in the sums: of each partition the copy counts that ends last")
    for (member, _), parts in zip(kept, adding_up, strict=True):
        for row in parts:
            yield row if member.cluster is None else {"cluster": member.cluster, **row}


def _beside(fleet: Fleet, kept: _Rows) -> set[str]:
    """Return the stores that are replicas of one that counts: of their master, or where that cannot be read, of the
    first of its replicas.
    """
    masters = {member.name: member.facts.get("replica_of") for member, _ in fleet.stores}
    counted = {member.name for member, _ in kept}
    found = set[str]()
    for member, _ in fleet.stores:
        master = masters[member.name]
        if member.name in counted and master is not None:
            if master in counted:
                found.add(member.name)
            else:
                counted.add(master)
    return found


def _parts(row: Row) -> list[Row]:
    """Return the rows of partitions that a row of a topic is the sum of, else the row."""
    found: list[Row] = row.get("parts", [row])
    return found


def _queues(row: Row) -> int:
    return int(row.get("queues", row.get("partitions", 1)) or 0)


def _adding_up(fleet: Fleet, kept: _Rows) -> list[list[Row]]:
    """Return what of each row adds up: nothing of replicas, and of copies of one Kafka partition the one that ends
    last, of those that end alike the one with the most records.
    """
    beside, clusters = _beside(fleet, kept), {m.name: s.membership for m, s in fleet.stores if isinstance(s, Store)}
    best: dict[tuple[Any, ...], tuple[tuple[int, int], int, Row]] = {}
    found = list[list[Row]]()
    for number, (member, row) in enumerate(kept):
        found.append([])
        for part in () if member.name in beside else _parts(row):
            if "partition" not in part or "records" not in part:
                found[-1].append(part)
                continue
            own = clusters.get(member.name)
            whose = member.name if own is None else own[0]
            key = member.cluster, part["topic_id"] or whose, part["topic"], part["partition"]
            rank = (part["log_end_offset"] or 0, part["records"] or 0)
            if key not in best or best[key][0] < rank:
                best[key] = rank, number, part
    for _, number, part in best.values():
        found[number].append(part)
    return found


def _topic_sums(rows: Iterable[Row]) -> Section:
    """A topic's queues lie on many brokers: what a user wants is their sum."""
    sums: dict[tuple[str | None, str], dict[str, Any]] = {}
    for row in rows:
        count = "messages" if "messages" in row else "records"
        one = sums.setdefault(
            (row.get("cluster"), row["topic"]), {**_head(row, "topic"), "queues": 0, count: 0, "bytes": 0}
        )
        one["queues"] += _queues(row)
        _add(one, row, count, "bytes")
    return Section(rows=list(sums.values()), title="Sum by topic", is_optional=True, is_fixed=True)


def _head(row: Row, *names: str) -> Row:
    return {name: row[name] for name in ("cluster", *names) if name in row}


def _add(total: dict[str, Any], row: Row, *names: str) -> None:
    """Add values of a row to sums; a sum with an unknown part is unknown."""
    for name in names:
        is_known = name not in row.get("unknown", ()) and total.get(name, 0) is not None
        total[name] = total.get(name, 0) + (row.get(name) or 0) if is_known else None


def _lag_sums(rows: Iterable[Row]) -> Section:
    sums: dict[tuple[str | None, str, str], dict[str, Any]] = {}
    for row in rows:
        key = row.get("cluster"), row["group"], row["topic"]
        one = sums.setdefault(key, {**_head(row, "group", "topic"), "queues": 0, "lag": 0, "anomalies": 0})
        one["queues"] += 1
        _add(one, row, "lag")
        is_known = "anomaly" not in row.get("unknown", ()) and one["anomalies"] is not None
        one["anomalies"] = one["anomalies"] + (row.get("anomaly") is not None) if is_known else None
    return Section(rows=list(sums.values()), title="Sum by group and topic", is_optional=True, is_fixed=True)


def _lacking_offsets(fleet: Fleet, kept: _Rows) -> Iterator[str]:
    """Say on which brokers of RocketMQ a topic has messages of which a group has stored no offset, where it has some on
    others: what it has not consumed there is in no row.
    """
    brokers = [(m, store) for m, store in fleet.stores if isinstance(store, Store) and store.family == "rocketmq"]
    found: dict[tuple[str | None, str, str], set[str]] = {}
    for member, row in kept:
        found.setdefault((member.cluster, row["group"], row["topic"]), set()).add(member.name)
    for member, store in brokers:
        absent = [key for key, names in found.items() if key[0] == member.cluster and member.name not in names]
        if not absent:
            continue
        try:
            asked = questions.Topics(tuple({topic for _, _, topic in absent}), by_topic=True)
            counts = {row["topic"]: row["messages"] for row in ask_one(member, store, asked)}
        except (RmqctlError, OSError):
            continue  # its own row says why
        for _, group, topic in absent:
            if counts.get(topic):
                held = number_of(counts[topic], "message")
                yield f"{member.name}: group {group} has stored no offset of {topic}, of which {held} lie there"


# --- a row a store ------------------------------------------------------------------------------------


def _failures(rows: Iterable[Row]) -> list[str]:
    return [f"{row['store']}: {row['error']}" for row in rows if "error" in row]


_IN_ROWS = frozenset({"findings", "summary"})
"""Of a document with a list of findings: what its rows hold."""


class _Whole:
    """One row a store: what each says as a whole.

    Attributes:
        brief: what of a store's document fits a line of a table.
        well: what a store is called whose answer is no "no"; "" where the answer says nothing of that.
        is_opened: a table is preceded by what each store that is not well says itself.
        then: what to type next for a store that is not well.
        briefs: those of the stores that were asked.
    """

    def __init__(
        self,
        fleet: Fleet,
        ask: Ask,
        brief: Callable[[Row], Row],
        well: str,
        then: Callable[[Member], str],
        *,
        is_opened: bool,
    ) -> None:
        self.fleet, self.ask, self.brief, self.well, self.is_opened = fleet, ask, brief, well, is_opened
        self.then = then
        sizes = [store.size for _, store in fleet.stores if isinstance(store, Store)]
        self.answer = Answer(remarks=list(fleet.remarks), work="looking", total=sum(sizes) or None)
        self.briefs: list[Row] = []
        self.header = dict.fromkeys(["kind", *_HEADS, *([well] if well else [])])
        self.answer.late_header = lambda: list(self.header)
        self.answer.rows, self.answer.sections = self.rows(), self.sections
        self.answer.document = lambda: {"stores": list(self.documents()), "summary": self.summary()}
        self.answer.summary = lambda: {"kind": "summary", **self.summary()}

    def documents(self) -> Iterator[Row]:
        """Yield what each store says, in full."""
        return _each(self.fleet, self.ask, self.answer, self._in_full, self._unreadable)

    def _in_full(self, member: Member, own: Answer) -> Iterator[Row]:
        document: Row = own.document() if own.document is not None else {"rows": list(own)}
        self._note(member, own, document)
        names = own.document_header or list(document)
        if isinstance(document.get("findings"), list):
            names = [*(name for name in names if name not in _IN_ROWS), *document["summary"], *(own.header or ())]
        self.header.update(dict.fromkeys(names))
        yield {**member.head, **member.facts, **self._mark(own), **document}

    def _unreadable(self, row: Row) -> Row:
        self.briefs.append(row)
        return row

    def rows(self) -> Iterator[Row]:
        """Yield findings with the name of their store, and a row a store after its own."""
        for document in self.documents():
            findings = document.get("findings")
            if not isinstance(findings, list):
                yield {"kind": "store", **document}
                continue
            head = {key: document[key] for key in ("store", "cluster") if key in document}
            yield from ({**head, **finding} for finding in findings)
            rest = {key: value for key, value in document.items() if key not in _IN_ROWS}
            yield {"kind": "store", **rest, **document["summary"]}

    def sections(self) -> Iterator[Section]:
        """Yield what each store that is not sound says, a table of all, a sentence, and what to type next."""

        def failed(row: Row) -> Section:
            self._unreadable(row)
            return Section()

        yield from _each(self.fleet, self.ask, self.answer, self._opened, failed)
        yield Section(rows=[row for row in self.briefs if "error" not in row], is_optional=True)
        yield Section(lines=_failures(self.briefs), folds=True)
        total = self.summary()
        counts = [f"{total[self.well]:,} {self.well}"] if self.well else []
        counts += [f"{total['unreadable']:,} cannot be read"] if total["unreadable"] else []
        yield Section(lines=["", ": ".join(filter(None, [number_of(total["stores"], "store"), ", ".join(counts)]))])
        pairs = zip(self.fleet.stores, self.briefs, strict=True)
        wrong = [member for (member, _), row in pairs if not row.get(self.well, True)]
        commands = list(filter(None, map(self.then, wrong)))[:_NEXT]
        yield Section(lines=[f"{'     ' if n else 'Next:'} {command}" for n, command in enumerate(commands)])

    def _opened(self, member: Member, own: Answer) -> Iterator[Section]:
        parts = list(map(read_section, own.sections())) if self.is_opened and own.sections is not None else []
        made = own.summary or own.document
        self._note(member, own, {} if made is None else made())
        if not _is_well(own) and parts:
            yield Section(lines=[f"{member.name}:"])
            yield from parts
            yield Section(lines=[""])

    def summary(self) -> Row:
        """Return how many stores there are, and the sums of what is counted in each."""
        sums = dict[str, int]()
        for row in self.briefs:
            for key, value in row.items():
                if type(value) is int:
                    sums[key] = sums.get(key, 0) + value
        unreadable = sum("error" in row for row in self.briefs)
        well = {self.well: sum(row.get(self.well, False) for row in self.briefs)} if self.well else {}
        return {"stores": len(self.fleet), **well, "unreadable": unreadable, **sums}

    def _mark(self, own: Answer) -> Row:
        return {self.well: _is_well(own)} if self.well else {}

    def _note(self, member: Member, own: Answer, document: Row) -> None:
        self.briefs.append({**member.head, **member.facts, **self._mark(own), **self.brief(document)})


def _doctor_command(member: Member) -> str:
    return "" if member.path.endswith(".json") else typed("doctor", member.path)


def _diff_command(member: Member) -> str:
    return typed("diff", member.facts["a"], member.facts["b"]) if member.facts["a"] and member.facts["b"] else ""


def _wholly(
    brief: Callable[[Row], Row],
    well: str = "",
    *,
    is_opened: bool = False,
    then: Callable[[Member], str] = _doctor_command,
) -> Callable[[Fleet, Ask], Answer]:
    return lambda fleet, ask: _Whole(fleet, ask, brief, well, then, is_opened=is_opened).answer


def read_section(section: Section) -> Section:
    """Return a section with what it shows already made, since what an answer says last is complete only then."""
    rows = None if section.rows is None else list(section.rows)
    return replace(section, notices=list(section.notices), lines=list(section.lines), rows=rows)


def _informed(document: Row) -> Row:
    releases = document.get("releases") or []
    return {
        "kind": document.get("kind"),
        "state": document.get("state"),
        "releases": " to ".join(dict.fromkeys((releases[0], releases[-1]))) if releases else None,
        "topics": document.get("topics"),
        "queues": document.get("queues", document.get("partitions")),
    }


def _verified(document: Row) -> Row:
    summary = document.get("summary", document)
    start = summary.get("start", document.get("start"))
    return {
        **{name: summary[name] for name in ("files", "messages", "bytes")},
        "errors": summary["findings"]["error"],
        "warnings": summary["findings"]["warning"],
        "starts": None if start is None else start["starts"],
        "loses": None if start is None else _lost(start),
    }


def _recovered(document: Row) -> Row:
    return {
        "release": document["release"],
        "starts": document["starts"],
        "loses": _lost(document),
        "why": document["error"],
    }


def _lost(start: Row) -> int:
    lost: Row = start.get("lost") or {}
    return int(lost.get("messages", lost.get("records", 0)))


def _differed(document: Row) -> Row:
    records = document.get("summary", document)["records"]
    return {
        "records_equal": records["equal"],
        "changed": records["changed"],
        "only_a": records["only_a"]["records"],
        "only_b": records["only_b"]["records"],
    }


def _rebuilt(document: Row) -> Row:
    files = document.get("summary", document)["files"]
    return {"files": sum(files.values()), **{change: files[change] for change in ("create", "replace", "remove")}}


def _doctored(document: Row) -> Row:
    start, worst = document["start"], document["worst"]
    return {
        "state": document["state"],
        "errors": document["findings"]["error"],
        "warnings": document["findings"]["warning"],
        "starts": start["starts"],
        "loses": _lost(start),
        "first": worst["id"] if worst is not None else next((one["id"] for one in document["troubles"]), None),
    }


_FOUND = (
    "topic",
    "queue_id",
    "partition",
    "queue_offset",
    "offset",
    "store_timestamp",
    "timestamp",
    "size",
    "keys",
    "key",
)
"""Columns of messages and records on a terminal."""
SHAPES: dict[type[Question[Any]], Callable[[Fleet, Ask], Answer]] = {
    questions.Info: _wholly(_informed),
    questions.Verify: _wholly(_verified, "sound", is_opened=True),
    questions.Recover: _wholly(_recovered, "harmless", is_opened=True),
    questions.Rebuild: _wholly(_rebuilt, "current", then=lambda member: typed("rebuild", member.path)),
    questions.Topics: partial(_rows, sums=_topic_sums, is_counted=True),
    questions.Lag: partial(_rows, sums=_lag_sums, lacking=_lacking_offsets),
    questions.Producers: partial(_rows, sums=None),
    questions.Transactions: partial(_rows, sums=None),
    questions.QueryKey: partial(_rows, sums=None, shown=_FOUND),
}
"""How the answers of several stores become one, for the questions that can be put to several."""
EXAMINED = _wholly(_doctored, "well")
COMPARED = _wholly(_differed, "equal", is_opened=True, then=_diff_command)
"""The same for looks at every store, and for pairs of stores."""
_BY_ROWS = frozenset({questions.Topics, questions.Lag, questions.Producers, questions.Transactions, questions.QueryKey})
"""Questions whose answers are rows of every store."""
