"""Answers that were made elsewhere, summed up as if the stores were here.

What `verify -o json` said of single hosts is read back, for hosts whose stores nobody else can reach: each checks its
own, and the documents are brought together. What executors say of stores comes as :class:`Reply`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import orjson

from rmqctl.answer import Answer, Row, Section
from rmqctl.errors import NotAStore, RmqctlError
from rmqctl.inventory import Member
from rmqctl.notices import finding_notices
from rmqctl.questions import Question, Verify

_FACTS = ("role", "host", "replica_of")


@dataclass(frozen=True, slots=True)
class Recorded:
    """One store as `verify` saw it elsewhere.

    Attributes:
        document: as JSON has it: ``summary``, ``findings`` and ``start``; or ``error``.
    """

    document: Row

    def answer(self, question: Question[Any] | None, /) -> Answer:
        """Return the answer of `verify` again.

        Raises:
            RmqctlError: the store could not be read; the question is another one.
        """
        if not isinstance(question, Verify):
            raise RmqctlError(f"a result of verify does not answer `{'diff' if question is None else question.verb}`")
        document = self.document
        if "error" in document:
            raise RmqctlError(document["error"])
        counts, start = document["summary"]["findings"], document.get("start")
        harm = "" if start is None else start["harm"]
        answer = Answer(rows=document["findings"], is_no=bool(counts["error"] or counts["warning"] or harm))

        def sections() -> Iterator[Section]:
            yield Section(notices=finding_notices(document["findings"], "", every=answer.every))
            yield Section(lines=[f"start: {harm}"] if harm else [], folds=True)

        answer.document, answer.sections = (lambda: document), sections
        answer.summary = lambda: {"kind": "summary", **document["summary"], "start": start}
        return answer


@dataclass(slots=True)
class Reply:
    """One store's whole answer, made on another machine; can be pickled.

    Attributes:
        rows, columns, document, sections, summary, remarks, is_no, error: as of :class:`rmqctl.answer.Answer`, read to
            the end: rows where that is what is asked for, else either the document or, for a terminal, the sections
            and the summary.
    """

    rows: list[Row] | None = None
    columns: list[str] | None = None
    document: Row | None = None
    sections: list[Section] | None = None
    summary: Row | None = None
    remarks: list[str] = field(default_factory=list)
    is_no: bool = False
    error: RmqctlError | None = None

    def answer(self, question: Question[Any] | None, /) -> Answer:
        """Return the answer again."""
        del question
        answer = Answer(self.rows or (), self.columns, remarks=list(self.remarks), is_no=self.is_no, error=self.error)
        document, summary, sections = self.document, self.summary, self.sections
        answer.document = None if document is None else lambda: document
        answer.summary = None if summary is None else lambda: summary
        answer.sections = None if sections is None else lambda: sections
        return answer


def is_results(path: str) -> bool:
    """Whether a path stands for documents of `verify`: ``@results/*.json``."""
    return path.startswith("@") and path.endswith(".json")


def recorded(path: str) -> list[tuple[Member, Recorded | RmqctlError]]:
    """Return the stores in documents of `verify -o json`, by the names of the files and, where one is of several
    stores, of these.

    Raises:
        NotAStore: there is no such file.
    """
    pattern = Path(path[1:])
    base = pattern.parent
    files = [pattern] if pattern.is_file() else sorted(base.glob(pattern.name))
    if not files:
        raise NotAStore(path, "nothing has such a name", "look at the pattern, or put it in quotes")
    return [one for file in files for one in _of_file(file)]


def _of_file(file: Path) -> Iterator[tuple[Member, Recorded | RmqctlError]]:
    try:
        document = orjson.loads(file.read_bytes())
        whole = {file.stem: document} if "stores" not in document else {d["store"]: d for d in document["stores"]}
        for name, own in whole.items():
            if "error" not in own:
                _check(own)
            facts = {key: own[key] for key in _FACTS if key in own}
            yield Member(name, str(file), own.get("cluster"), facts=facts), Recorded(own)
    except (ValueError, KeyError, TypeError) as error:
        why = f"{file} is no document of `rmqctl verify -o json`: {type(error).__name__} {error}"
        yield Member(file.stem, str(file)), RmqctlError(why)


def _check(document: Row) -> None:
    """Hold a document to what is read of it.

    Raises:
        KeyError, TypeError: it is none of `verify`.
    """
    summary, start = document["summary"], document.get("start")
    for name in ("files", "messages", "bytes"):
        int(summary[name])
    for level in ("error", "warning", "note"):
        int(summary["findings"][level])
    for finding in document["findings"]:
        finding["id"], finding["severity"]
    if start is not None:
        start["starts"], start["harm"]
