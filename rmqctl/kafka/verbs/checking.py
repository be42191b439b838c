"""`verify` of log directories."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any
from zlib import crc32

from rmqctl import questions
from rmqctl.answer import Answer
from rmqctl.findings import Finding, Severity
from rmqctl.kafka.directory.directory import LogDirectories, LogDirectory
from rmqctl.kafka.directory.file_names import DirectoryState, FileKind
from rmqctl.kafka.findings.directory import DIRECTORY_DOUBLE, DIRECTORY_IDENTITY
from rmqctl.kafka.loading.known import KnownLogs
from rmqctl.kafka.recovery.replay import recover
from rmqctl.kafka.state.replicas import Replicas, conflicts, release_shown
from rmqctl.kafka.verbs.looking import begin
from rmqctl.kafka.verbs.recovering import summary
from rmqctl.kafka.verify.driver import Verification, VerifyOptions, share_together
from rmqctl.parallel import Share
from rmqctl.release import Release
from rmqctl.text import number_of
from rmqctl.verification import ForeseenStart, LogPart, show


class Verifications:
    """The checks of several log directories of one broker, one after the other (`rmqctl.verification.Verification`)."""

    incomplete = None
    counted = "record"

    def __init__(
        self,
        logs: LogDirectories,
        options: VerifyOptions,
        answer: Answer,
        share: Share | None = None,
        known: Mapping[str, KnownLogs] | None = None,
        replicas: Replicas | None = None,
        part: frozenset[str] | None = None,
    ) -> None:
        self.part = part
        self.logs, self.options, self.answer, self.share = logs, options, answer, share
        self.replicas = replicas or Replicas(logs)
        self.known = known or {}
        self.counts: Counter[str] = Counter()

    @cached_property
    def each(self) -> list[Verification]:
        """A verification for each directory; file names are relative to it."""
        image, directories = self.replicas.image, self.logs.directories
        here = frozenset((p.topic, p.partition) for directory in directories for p in directory.partitions)
        each = [
            Verification(
                directory, self.options, self.answer.advance, self.logs.selection, image, self.share, here,
                watch=self.known[directory.root].watch if directory.root in self.known else None, part=self.part,
            )
            for directory in directories
        ]  # fmt: skip
        if self.share is not None and len(each) > 1:
            share_together(each, self.share)
        return each

    def findings(self) -> Iterator[Finding]:
        """All findings; with several directories file names begin with that of theirs."""
        several = len(self.each) > 1
        if not self.logs.selection and not self.part:
            for finding in _together(self.logs.directories):
                self.counts[str(finding.level)] += 1
                yield finding
        for checked in self.each:
            for finding in checked.findings():
                self.counts[str(finding.level)] += 1
                yield replace(finding, file=f"{checked.directory.root}/{finding.file}") if several else finding

    def start(self) -> ForeseenStart:
        """A part of a directory is never started."""
        return ForeseenStart(untried="only a part was looked at")

    def summary(self) -> dict[str, Any]:
        """Return the sums over all directories."""
        parts = [checked.summary() for checked in self.each]
        return {
            **{name: sum(part[name] for part in parts) for name in ("files", "messages", "bytes")},
            "findings": {str(s): self.counts[str(s)] for s in Severity},
            "level": self.options.level,
            "seconds": round(sum(part["seconds"] for part in parts), 3),
        }


def _together(directories: Sequence[LogDirectory]) -> Iterator[Finding]:
    """Yield what log directories may not have together: other ids of cluster and node, equal ids, equal partitions."""
    for directory, why in conflicts(directories):
        held = [f"{one.root} has {_held(one)}" for one in directories]
        message = f"{why}; {', '.join(held)}"
        yield Finding(DIRECTORY_IDENTITY, f"{directory.root}/{FileKind.META_PROPERTIES}", 0, 0, message)
    seen = dict[tuple[str, int | None, DirectoryState], str]()
    for directory in directories:
        for partition in directory.partitions:
            key = partition.topic, partition.partition, partition.state
            if partition.state not in {DirectoryState.PLAIN, DirectoryState.FUTURE}:
                continue
            root = seen.setdefault(key, directory.root)
            if root != directory.root:
                text = f"{partition.directory} is in {root}, too"
                yield Finding(DIRECTORY_DOUBLE, f"{directory.root}/{partition.directory}/", 0, 0, text)


def _held(directory: LogDirectory) -> str:
    """Return how many partitions a directory has; the name, where it is one."""
    names = [partition.directory for partition in directory.partitions if partition.is_plain]
    return number_of(len(names), "partition") + (f" ({names[0]})" if len(names) == 1 else "")


def verify(
    replicas: Replicas,
    logs: LogDirectories,
    asked: questions.Verify,
    settings: Mapping[str, str],
    processes: int,
) -> Answer:
    """Check names and small files, every batch and record, then derived files against the log; then try a start."""
    answer = begin(replicas, Answer(work="verify", total=logs.size))
    if asked.share is not None:
        answer.total = None  # who shares the work shows how far it is
    options = VerifyOptions(asked.level, asked.cross, processes)
    checked: Verifications
    if asked.part is not None:
        checked = Verifications(logs, options, answer, replicas=replicas, part=asked.part.directories)
    else:
        checked = StartingVerifications(replicas, logs, options, answer, asked.as_release, settings, asked.share)
    return show(answer, checked, logs.root if len(logs.directories) == 1 else "", notes=asked.notes)


class StartingVerifications(Verifications):
    """The same with the replay of a start after them, on what they have read."""

    def __init__(
        self,
        replicas: Replicas,
        logs: LogDirectories,
        options: VerifyOptions,
        answer: Answer,
        release: Release | None = None,
        settings: Mapping[str, str] | None = None,
        share: Share | None = None,
    ) -> None:
        self.release, self.settings = release, settings or {}
        self.untried = _untried(logs, options)
        known = {} if self.untried else {d.root: KnownLogs(d) for d in logs.directories}
        super().__init__(logs, options, answer, share, known, replicas)

    def start(self) -> ForeseenStart:
        """Return what a broker's start would do."""
        if self.untried:
            return ForeseenStart(untried=self.untried)
        release = self.release or release_shown(self.replicas)
        try:
            found = recover(self.replicas, release, self.settings, self.known)
        except OSError as error:
            return ForeseenStart(untried=str(error))
        row = {**summary(found), "stray": [one.key for one in found.hidden]}
        return ForeseenStart(row, found.harm("this directory"))


def _untried(logs: LogDirectories, options: VerifyOptions) -> str:
    """Why a start is not replayed; "" where it is."""
    if options.level == "quick":
        return "level quick reads no batch"
    if logs.selection:
        return f"only {logs.selection} was looked at"
    return "a broker holds the lock, so it has started already" if logs.is_running else ""


def findings_of(logs: LogDirectories, level: str, share: Share | None = None) -> Iterator[Finding]:
    """All findings of log directories, with their logs read elsewhere where somebody shares the work."""
    return Verifications(logs, VerifyOptions(level), Answer(), share).findings()


# --- parts that are checked one after the other -----------------------------------------------------

_OWN, _BUCKETS = 64 << 20, 16
"""Bytes from which a partition is a part of its own; others are divided among so many parts, by their names."""


def parts_of(logs: LogDirectories) -> list[LogPart]:
    """Return the parts of log directories: what belongs to no partition, then partitions by name."""
    sizes = Counter[str]()
    for partition in logs.partitions:
        sizes[partition.directory] += sum(max(log.size, 0) for log in partition.logs)
    small: dict[str, dict[str, int]] = {}
    found = []
    for name, size in sizes.items():
        if size >= _OWN:
            found.append(LogPart(name, size, directories=frozenset({name})))
        else:
            small.setdefault(f"small/{crc32(name.encode()) % _BUCKETS:02d}", {})[name] = size
    found += [LogPart(name, sum(own.values()), directories=frozenset(own)) for name, own in small.items()]
    return [LogPart("names", 0), *sorted(found, key=lambda part: part.name)]
