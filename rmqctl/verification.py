"""Verifications and comparisons as answers, whatever the family: findings as they come, one summary."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Protocol

from rmqctl.answer import Answer, Row, Section
from rmqctl.errors import RmqctlError
from rmqctl.findings import HEADER, Finding, FindingKind, Severity
from rmqctl.notices import CUT, Alike, about_one, destroyed_by_kind, finding_notices
from rmqctl.text import listed, number_of, typed

FINDING_COLUMNS = ("severity", "id", "file", "offset", "size", "message")
"""What of a finding fits a terminal."""
_AT_ONCE = 100
"""So many of the first findings are counted one by one, later ones in these steps."""


@dataclass(frozen=True, slots=True)
class ForeseenStart:
    """What a broker's start would do to what was checked.

    Attributes:
        row: what it would cut, delete or hide, as `recover` says it; None where it was not replayed.
        harm: what it would change for the worse, one phrase; "" for nothing.
        untried: why it was not replayed, one phrase; "" where it was.
    """

    row: Row | None = None
    harm: str = ""
    untried: str = ""

    def document(self) -> Row | None:
        """Return the object ``start`` of JSON."""
        return None if self.row is None else {**self.row, "harm": self.harm}


@dataclass(frozen=True, slots=True)
class LogPart:
    """A part of what a store holds that can be checked alone, at a moment of its own.

    Attributes:
        name: the same as long as the part exists.
        size: bytes of log.
        begin, end: RocketMQ: physical offsets; files of the log that begin there.
        directories: Kafka: names of the directories of partitions.
    """

    name: str
    size: int
    begin: int = 0
    end: int = 0
    directories: frozenset[str] = frozenset()

    @property
    def is_rest(self) -> bool:
        """Whether it is what belongs to no log: names and lengths of files, configuration, checkpoints."""
        return self.begin == self.end and not self.directories


class Verification(Protocol):
    """One run of the checks of a family.

    Attributes:
        counts: findings by severity; complete once :meth:`findings` has been read.
        counted: what the summary counts as ``messages``: message or record.
    """

    counts: Counter[str]
    counted: str

    def findings(self) -> Iterator[Finding]:
        """All findings, in the order of the checks."""
        ...

    def summary(self) -> dict[str, Any]:
        """Return the summary object of the contract; complete after the last finding.

        It has ``destroyed`` where queues show what lay in damage of the log, and ``placeholders``, how many of the
        messages stand for destroyed ones, where repairs leave such.
        """
        ...

    def start(self) -> ForeseenStart:
        """Return what a start would do; asked once, after the last finding."""
        ...

    @property
    def incomplete(self) -> RmqctlError | None:
        """Why not everything was checked; None where it was."""
        ...


def _telling(answer: Answer, findings: Iterator[Finding]) -> Iterator[Finding]:
    """Yield findings, and say beside the bar what is known so far: how many there are, and the first of the worst."""
    counts, first = Counter[str](), dict[str, str]()
    for finding in findings:
        if finding.level is not Severity.NOTE:
            counts[finding.level] += 1
            if finding.level not in first:
                first[finding.level] = f"{finding.kind.id}, {about_one(finding.row())}"
            if counts.total() <= _AT_ONCE or counts.total() % _AT_ONCE == 0:
                said = ", ".join(number_of(n, word) for word, n in counts.items())
                answer.stage(f"so far {said}; first {first.get(Severity.ERROR) or first[finding.level]}")
        yield finding


def show(answer: Answer, checked: Verification, root: str, *, notes: bool) -> Answer:
    """Make the findings the rows of an answer; errors, warnings and a start that does harm make it a "no".

    Args:
        root: of the store, as it is typed; "" where it is none that `repair` takes.
        notes: also what is normal but worth knowing.
    """
    start, lost = ForeseenStart(), dict[str, list[Row]]()
    wrong: dict[str, FindingKind] = {}

    def rows() -> Iterator[Row]:
        nonlocal start, lost
        for finding in _telling(answer, checked.findings()):
            if finding.level is not Severity.NOTE:
                wrong[finding.kind.id] = finding.kind
            if notes or finding.level is not Severity.NOTE:
                yield finding.row()
        start, lost = checked.start(), destroyed_by_kind(checked.summary())
        answer.is_no = bool(checked.counts["error"] or checked.counts["warning"] or start.harm)
        answer.error = checked.incomplete

    def summary() -> Row:
        return {**checked.summary(), "counted": f"{checked.counted}s"}

    def document() -> Row:
        findings = list(answer.rows)
        return {"summary": summary(), "findings": findings, "start": start.document()}

    def judge(alike: Alike) -> tuple[Sequence[Row], str]:
        return lost.get(alike.first[0]["id"], ()), _of_start(start, alike)

    def sections() -> Iterator[Section]:
        repair = typed("repair", root) if root else ""
        yield Section(notices=finding_notices(answer.rows, repair, every=answer.every, judge=judge))
        yield Section(lines=[f"start: {start.harm}"] if start.harm else [], folds=True)
        yield Section(lines=[_sentence(checked.summary(), start, checked.counted)], folds=True)
        if answer.is_no and repair:
            by_hand = bool(wrong) and all(kind.by_hand for kind in wrong.values())
            then = typed("explain", next(iter(wrong))) if by_hand else f"{repair}   (shows the plan, writes nothing)"
            yield Section(lines=[f"Next: {then}"])

    answer.rows, answer.document, answer.sections = rows(), document, sections
    answer.columns, answer.header = FINDING_COLUMNS, HEADER
    answer.summary = lambda: {"kind": "summary", **summary(), "start": start.document()}
    return answer


def _of_start(start: ForeseenStart, alike: Alike) -> str:
    """What a start makes of findings: where it cuts because of them, or that it makes nothing worse; else ""."""
    row = start.row
    if row is None or not row["starts"]:
        return ""
    if not start.harm:
        said = f"A start of a {row['release']} broker makes it no worse."
        lost = (row.get("after_a_kill") or {}).get("lost", {})
        if not lost.get("messages") or not alike.first[0]["id"].startswith("log."):
            return said
        what = f"{number_of(lost['messages'], 'message')}: {listed(lost['by_topic'])}"
        return f"{said} After a kill it cuts the log and loses {what}"
    stopped, lost = row.get("stopped_by"), row["lost"]
    if stopped and stopped["id"] == alike.first[0]["id"] and stopped["file"] in alike.files and lost["messages"]:
        what = f"{number_of(lost['messages'], 'message')}: {listed(lost['by_topic'])}"
        return f"{CUT}a start of a {row['release']} broker ends the log, and loses {what}"
    cut = {key: count for key, count in lost.get("by_partition", {}).items() if key in alike.queues}
    if cut and alike.first[0]["severity"] == Severity.ERROR:
        return f"{CUT}a start of a {row['release']} broker cuts {number_of(sum(cut.values()), 'record')}: {listed(cut)}"
    return ""


def _sentence(s: dict[str, Any], start: ForeseenStart, counted: str) -> str:
    nothing = "no finding" if start.harm else "nothing wrong"
    counts = ", ".join(number_of(n, word) for word, n in s["findings"].items() if n) or nothing
    counts += f"; a start was not replayed: {start.untried}" if start.untried else ""
    what = f"{number_of(s['files'], 'file')}, {count_of(s, counted)}, {s['bytes']:,} bytes of log"
    return f"{what}, level {s['level']}: {counts} ({s['seconds']:.1f} s)"


def count_of(summary: Row, counted: str) -> str:
    """Return how many messages or records were checked, and how many of them stand for destroyed ones."""
    standing = summary.get("placeholders", 0)
    said = f" ({number_of(standing, 'placeholder')} for what was destroyed among them)" if standing else ""
    return f"{number_of(summary['messages'] or 0, counted)}{said}"


def show_unread(answer: Answer) -> Section:
    """Show the rows of a salvage, findings with their ``source``, as notices; each place is named in its source."""
    rows = ({**row, "file": f"{row['source'].rstrip('/')}/{row['file']}"} for row in answer.rows if row is not None)
    return Section(notices=finding_notices(rows, "", every=answer.every))


# --- comparisons --------------------------------------------------------------------------------------


class Comparison(Protocol):
    """One comparison of two stores of a family."""

    @property
    def is_different(self) -> bool:
        """Whether anything differs; known once :meth:`findings` has been read."""
        ...

    def findings(self) -> Iterator[Finding]:
        """Yield all differences in order."""
        ...

    def summary(self) -> dict[str, Any]:
        """Return what was counted, once :meth:`findings` has been read."""
        ...


def show_comparison(
    answer: Answer, found: Comparison, sentences: Callable[[dict[str, Any]], Iterator[str]], limit: int | None
) -> Answer:
    """Fill the answer of `diff`: its rows are differences; one of them, or damage in A or B, makes it a "no".

    Args:
        sentences: of a summary, below the table.
        limit: rows to show at most; the others are counted.
    """

    def rows() -> Iterator[Row]:
        findings = found.findings()
        yield from (finding.row() for finding in islice(findings, limit))
        for _ in findings:  # counted, not shown
            pass
        answer.is_no = found.is_different or _is_partial(found.summary())

    def document() -> Row:
        findings = list(rows())
        return {"summary": found.summary(), "findings": findings}

    def sections() -> Iterator[Section]:
        yield Section(notices=finding_notices(answer.rows, "", every=answer.every))
        yield Section(lines=sentences(found.summary()), folds=True)

    answer.rows, answer.document, answer.sections, answer.header = rows(), document, sections, HEADER
    answer.summary = lambda: {"kind": "summary", **found.summary()}
    return answer


def verdict(summary: dict[str, Any]) -> str:
    """Return the last sentence of a comparison: whether A and B are equal, and as far as what."""
    if summary["different"]:
        return "A and B differ"
    return "A and B are equal" + (" where both could be compared" if _is_partial(summary) else "")


def _is_partial(summary: dict[str, Any]) -> bool:
    return bool(summary["a"]["damaged_places"] or summary["b"]["damaged_places"])
