"""`verify` of a RocketMQ store: its checks, and beside them a broker's start on what they read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from rmqctl import questions
from rmqctl.answer import Answer, Row
from rmqctl.errors import MissingExtra, RmqctlError
from rmqctl.findings import Finding
from rmqctl.parallel import processes_for
from rmqctl.rocketmq.log.columns import TextIds
from rmqctl.rocketmq.log.commitlog import LogBlock
from rmqctl.rocketmq.recovery import outcome
from rmqctl.rocketmq.recovery.proof import FileRange, Job, Proof, Prover
from rmqctl.rocketmq.recovery.replay import Replay
from rmqctl.rocketmq.recovery.rules import has_dledger_log
from rmqctl.rocketmq.store.files import StoreFiles, bytes_held
from rmqctl.rocketmq.verbs.common import begin, pending_remark
from rmqctl.rocketmq.verify.driver import Level, Share, Verification, VerifyOptions
from rmqctl.rocketmq.verify.parts import PartVerification
from rmqctl.rocketmq.verify.splits import Split
from rmqctl.verification import ForeseenStart, show

_LEFT_OUT = "queues", "databases", "waits"
"""What `recover` says of every queue, which `verify` does not repeat."""


def verify(store: StoreFiles, asked: questions.Verify) -> Answer:
    """Check every file alone, then the files against each other, and say what a start would do."""
    answer = Answer(work="verify", total=sum(f.size for f in store.log_files))
    pending_remark(store, answer)
    begin(store, answer)
    processes = asked.processes or processes_for(bytes_held(store.log_files))
    options, elsewhere = VerifyOptions(Level(asked.level), asked.cross, processes, asked.as_release), None
    if asked.share is not None:
        from rmqctl.rocketmq.tables.splits import SPLIT_SIZE
        from rmqctl.rocketmq.tables.tables import splits_shared

        answer.total = None  # who shares the work shows how far it is
        options = replace(options, split_size=SPLIT_SIZE)
        elsewhere = splits_shared(asked.share)
    if asked.part is not None:
        return show(answer, CheckedPart(store, options, asked.part, progress=answer.advance), "", notes=asked.notes)
    return show(answer, StartingVerification(store, options, answer, elsewhere), store.root, notes=asked.notes)


@dataclass(frozen=True, slots=True)
class _Watching:
    """Makes what proves the splits of a verification for the replay of a start; can be pickled."""

    job: Job

    def __call__(self, split: Split, ids: TextIds) -> _SplitProver | None:
        file = split.context.file
        for number, own in enumerate(self.job.files):
            if (own.name, own.base, own.size) == (file.name, file.base, file.size) and number >= self.job.first:
                stop = file.size if split.stop is None else split.stop
                return _SplitProver(self.job, FileRange(number, split.start, stop))
        return None


class _SplitProver:
    """Goes along when a split is checked, and proves it."""

    def __init__(self, job: Job, part: FileRange) -> None:
        self._prover = Prover(job, part)

    def block(self, found: LogBlock, findings: list[Finding]) -> None:
        """Take a block of the split."""
        del findings  # a broker judges by its own rules
        if not self._prover.is_over:
            self._prover.block(found.block)

    def sight(self) -> Proof:
        """Return what was proven."""
        return self._prover.proof()


class CheckedPart(PartVerification):
    """The checks of a part of the log, which nobody starts."""

    counted = "message"

    def start(self) -> ForeseenStart:
        """Return that it was not tried."""
        return ForeseenStart(untried="only a part was looked at")


class StartingVerification:
    """The checks of a store with the replay of a start beside them (`rmqctl.verification.Verification`)."""

    counted = "message"

    def __init__(self, store: StoreFiles, options: VerifyOptions, answer: Answer, share: Share | None = None) -> None:
        self.store, self.options = store, options
        self.untried = self._untried()
        self.replay: Replay | None = None
        witness = self._begun()
        self.checked = Verification(store, options, answer.advance, share, witness, self._take)
        self.counts = self.checked.counts
        if share is not None:
            self.checked.progress = None

    def _untried(self) -> str:
        """Why a start is not replayed; "" where it is."""
        if self.options.level is Level.QUICK:
            return "level quick reads no record"
        if has_dledger_log(self.store):
            return "the group of a DLedger log decides where it ends"
        return "a broker holds the lock, so it has started already" if self.store.is_running else ""

    def _begun(self) -> _Watching | None:
        """Begin the replay; return what proves for it what the checks read."""
        if self.untried:
            return None
        try:
            self.replay = Replay(self.store, self.options.as_release, databases=True)
            job = self.replay.begin()
        except (OSError, MissingExtra) as error:
            self._fail(error)
            return None
        return None if job is None else _Watching(job)

    def _take(self, sight: Proof | None) -> None:
        if self.replay is None or sight is None:
            return
        try:
            self.replay.take(sight)
        except (OSError, RmqctlError) as error:
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        self.replay, self.untried = None, str(error)

    def findings(self) -> Iterator[Finding]:
        """All findings of the checks."""
        return self.checked.findings()

    def summary(self) -> dict[str, Any]:
        """Return that of the checks."""
        return self.checked.summary()

    @property
    def incomplete(self) -> RmqctlError | None:
        """Why not everything was checked."""
        return self.checked.incomplete

    def start(self) -> ForeseenStart:
        """Return what a broker's start would do."""
        if self.replay is not None:
            try:
                found = self.replay.finish()
            except (OSError, RmqctlError) as error:
                self._fail(error)
            else:
                row = {key: value for key, value in outcome.document(found).items() if key not in _LEFT_OUT}
                harm = found.harm("this store")
                if found.normal and not harm and self.checked.log.damaged:
                    row["after_a_kill"] = self._after_a_kill()
                return ForeseenStart(row, harm)
        return ForeseenStart(untried=self.untried)

    def _after_a_kill(self) -> Row | None:
        """Return what a start would lose that reads all of a damaged log, as it does when the broker was killed."""
        replay = Replay(self.store, self.options.as_release, killed=True)
        with suppress(OSError, RmqctlError):
            replay.begin()
            return {"lost": outcome.lost(replay.finish())}
        return None
