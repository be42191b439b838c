"""`dump` of a RocketMQ store, a part of it or a lone file: rows, JSON lines, annotated bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rmqctl import questions
from rmqctl.answer import AnnotatedStretch, Answer, HexAnswer, Row, Section, within_one_file
from rmqctl.errors import WrongUsage
from rmqctl.filters import Filters, Glob, Names, Rendering
from rmqctl.findings import header_of
from rmqctl.release import Release
from rmqctl.rocketmq.dump.dump import Dump
from rmqctl.rocketmq.dump.files import configured_index
from rmqctl.rocketmq.dump.log import Request
from rmqctl.rocketmq.dump.sources import identify, selected_files
from rmqctl.rocketmq.log.filters import Filter
from rmqctl.rocketmq.store.files import StoreFile, StoreFiles
from rmqctl.rocketmq.verbs.common import LAYOUT, MESSAGE_KEYS, begin, row_options
from rmqctl.store import LoneFile

if TYPE_CHECKING:
    from rmqctl.hexview.annotation import Annotation
    from rmqctl.rocketmq.store.file_kinds import FileKind

Found = StoreFiles | LoneFile


def dump(found: Found, asked: questions.Dump) -> Answer:
    """Show the log, or whatever was pointed at, damage in its place."""
    if asked.rendering.records:
        raise WrongUsage("--records", "is for Kafka: a commit log is records, and is shown as such.")
    answer = _begun(found, Answer())
    dump = _dump(found, _request(found, asked.filters, asked.rendering, asked.as_release))
    if asked.follow and dump.log is None:
        raise WrongUsage(
            "--follow", "needs a log, which is all that grows; give the store, or its commitlog directory."
        )

    def rows() -> Iterator[Row | None]:
        dump.report(answer.advance)
        yield from dump.follow() if asked.follow else dump.rows()
        _finish(found, dump, asked.filters, answer, follow=asked.follow)

    def lines() -> Iterator[bytes | memoryview]:
        dump.report(answer.advance)
        yield from dump.lines()
        _finish(found, dump, asked.filters, answer, follow=asked.follow)

    if dump.log is not None:
        shown = asked.rendering
        bodies = "body_size_decompressed body" * shown.body + " raw_body" * shown.raw_body
        answer.header = header_of(MESSAGE_KEYS, bodies, damage=True)
    answer.rows, answer.formatter = rows(), _compile
    answer.sections = lambda: [Section(rows=answer.rows, layout=LAYOUT)]
    if not asked.follow:
        answer.lines, answer.work, answer.total = lines, "dump", dump.total
    return answer


def pending(store: StoreFiles, filters: Filters, what: str, *, as_release: Release | None) -> Answer:
    """Show what a broker still has to deliver: timers, delays, open transactions or pop messages in flight."""
    from rmqctl.rocketmq.query.pending import pending_rows
    from rmqctl.rocketmq.recovery.queue_ends import RecoveredStore
    from rmqctl.rocketmq.state.releases import release_range

    answer = begin(store, Answer())
    wanted = Filter.of(filters)

    def rows() -> Iterator[Row]:
        release = as_release or release_range(store, quick=True).highest
        found = missing = 0
        with RecoveredStore(store, release) as started:
            for row in pending_rows(started, what):
                if found == filters.limit or not wanted.includes_row(row):
                    continue
                found, missing = found + 1, missing + (row["missing"] is not None)
                yield row
        if not found:
            answer.remark(f"nothing is pending: {what}")
        if missing:
            answer.remark(f"of {missing} the message cannot be read: see the column missing")
        answer.is_no = bool(missing)

    answer.rows = rows()
    answer.sections = lambda: [Section(rows=answer.rows)]
    return answer


def hexadecimal(found: Found, asked: questions.Hex) -> HexAnswer:
    """Show the bytes of what a dump shows, every byte with its meaning."""
    answer, filters = HexAnswer(), asked.filters
    _begun(found, answer)
    request = _request(found, filters, Rendering(), None)
    view = _Hex(found, request, answer)
    wanted = request.wanted
    if asked.within is not None:
        answer.stretches = view.of_bytes(within_one_file(view.files.values()), asked.within)
    elif wanted.looks_at_content or wanted.damaged or request.limit is not None:
        answer.stretches = view.of_rows(_dump(found, request), filters)
    else:
        answer.stretches = view.of_files()
    return answer


def _begun(found: Found, answer: Answer) -> Answer:
    return answer if isinstance(found, LoneFile) else begin(found, answer)


def _request(found: Found, filters: Filters, rendering: Rendering, release: Release | None) -> Request:
    show = row_options(rendering, release)
    settings = {} if isinstance(found, LoneFile) else found.settings
    return Request(Filter.of(filters, strict=show.strict, max_body=show.max_body), show, filters.limit, settings)


def _dump(found: Found, request: Request) -> Dump:
    if isinstance(found, LoneFile):
        return Dump.of_file(found.tree, found.name, request)
    return Dump.of_store(found, request)


def _compile(form: str) -> Callable[[Row], bytes]:
    from rmqctl.rocketmq.dump.record import compile_format

    return compile_format(form)


def _finish(found: Found, dump: Dump, filters: Filters, answer: Answer, *, follow: bool) -> None:
    """Say "no" for damage shown, or when filters left nothing; say what they hid."""
    outcome = dump.outcome
    if outcome.hidden:
        places = "1 place" if outcome.hidden == 1 else f"{outcome.hidden} places"
        answer.remark(f"damage in {places} is not shown because of the filters; see it with --damaged")
    nothing = not outcome.rows and not filters.is_empty and not filters.damaged and not follow
    if nothing:
        answer.remark(f"nothing matched the filters{_unknown_topic(found, filters.topics)}")
    answer.is_no = answer.is_no or bool(outcome.damage) or nothing


def _unknown_topic(found: Found, wanted: Names) -> str:
    """Return the end of the sentence where it is the name of the topic that is wrong."""
    from rmqctl.rocketmq.state.config import did_you_mean
    from rmqctl.rocketmq.state.config import known_topics as topic_names

    if isinstance(found, LoneFile) or not wanted:
        return ""
    names = topic_names(found)
    unmet = wanted.unmet(names) if names else []
    if not unmet:
        return ""
    if isinstance(unmet[0], Glob):
        return f"; no topic matches {unmet[0]}"
    return f"; the store knows no topic {unmet[0]}{did_you_mean(unmet[0], names, found.root)}"


# --- annotated bytes ----------------------------------------------------------------------------------


@dataclass
class _Hex:
    """Makes stretches of annotated bytes; what is wrong in them makes the answer a "no"."""

    found: Found
    request: Request
    answer: Answer
    files: dict[str, StoreFile] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.files = {file.name: file for file in _files(self.found)}

    def of_files(self) -> Iterator[AnnotatedStretch]:
        """All files, as far as the wanted offsets reach."""
        low, high = self.request.wanted.from_offset, self.request.wanted.to_offset
        for file in self.files.values():
            start = 0 if low is None else max(low - file.base, 0)
            stop = None if high is None else high - file.base
            if start < file.size and (stop is None or stop > 0):
                yield AnnotatedStretch(file.name, file.size, self._notes(file, start, stop))

    def of_bytes(self, file: StoreFile, within: tuple[int, int]) -> Iterator[AnnotatedStretch]:
        """Yield what has one of these bytes of a file."""
        yield AnnotatedStretch(file.name, file.size, self._notes(file, *within))

    def of_rows(self, dump: Dump, filters: Filters) -> Iterator[AnnotatedStretch]:
        """Yield the bytes of each row of a dump: records, units, damage."""
        for row in dump.rows():
            start = row.get("position", row.get("offset"))
            file = self.files.get(row.get("file", ""))
            if file is not None and start is not None:
                stop = start + max(row.get("size") or 0, 1)
                yield AnnotatedStretch(file.name, file.size, self._notes(file, start, stop))
        _finish(self.found, dump, filters, self.answer, follow=False)

    def _notes(self, file: StoreFile, start: int, stop: int | None) -> Iterator[Annotation]:
        from rmqctl.rocketmq.hexview.annotate import annotate

        source = file.open()
        try:
            for note in annotate(
                source,
                _kind(file),
                base=file.base,
                start=start,
                stop=stop,
                name=file.name,
                index=configured_index(self.request.settings),
            ):
                self.answer.is_no = self.answer.is_no or note.wrong
                yield note
        finally:
            source.close()


def _files(found: Found) -> Iterable[StoreFile]:
    if isinstance(found, LoneFile):
        return [identify(found.tree, found.name, found.name)[0]]
    return selected_files(found)


def _kind(file: StoreFile) -> FileKind:
    from rmqctl.rocketmq.dump.kinds import kind_of
    from rmqctl.rocketmq.store.file_kinds import FileKind

    source: Any = file.open()
    try:
        return kind_of(file.name, source) or FileKind.OTHER
    finally:
        source.close()
