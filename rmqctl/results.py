"""What `verify -o json` said of single hosts, read back: summed up as if the stores were here.

For hosts whose stores nobody else can reach: each checks its own, and the documents are brought together.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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

    def answer(self, question: Question[Any]) -> Answer:
        """Return the answer of `verify` again.

        Raises:
            RmqctlError: the store could not be read; the question is another one.
        """
        if not isinstance(question, Verify):
            raise RmqctlError(f"a result of verify does not answer `{question.verb}`")
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
