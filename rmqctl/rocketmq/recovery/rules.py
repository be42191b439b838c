"""What recovery does in each family of releases, as a table of policies (spec 6, 15).

The boundaries were found in the released sources; each field names the method that decides it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from rmqctl.release import Release


class Start(StrEnum):
    """How the file is chosen at which the scan of the log begins."""

    THIRD_LAST = "third-last file"
    QUEUES_END = "last file that begins at or before the end of the queues"
    VALIDATED = "last file whose first record is sound and begins at or before the end of the queues"
    STORE_TIME = "last file whose first record is not younger than the checkpoint"
    VALIDATED_TIME = "last file whose first record is sound and not younger than the checkpoint"
    LOGICS_OFFSET = "last file whose first record is sound and lies at or before the checkpoint's logics offset"


class WrongLength(StrEnum):
    """What a file of the wrong length does to the load (``MappedFileQueue.load``)."""

    IGNORE_REST = "the file and all later ones are ignored"
    FAIL = "the broker does not start"


@dataclass(frozen=True, slots=True)
class RecoveryRules:
    """One family of releases.

    Attributes:
        release: the release asked for.
        normal_start, abnormal_start: after a clean exit, after a crash.
        dispatches_behind_queues: ``recoverNormally`` dispatches records that lie behind the end of the queues.
        max_files: files that the search for the start looks at; 0: all.
        cuts_late: whether queues are cut is decided after dispatch (True) or before it.
        reput_from_queues: start() dispatches from the end of the queues and waits for the end of the log.
        precheck: lengths are compared with the file before a record is read (``checkMessageAndReturnSize``).
        wrong_length: see :class:`WrongLength`.
        skips_directories, drops_empty_last: ``MappedFileQueue.doLoad``.
        index_error_stops: an index file that cannot be read stops the broker.
        known_v2, known_v6: V2 records and IPv6 hosts are understood.
        minimum_5: ``ConsumeQueue.correctMinOffset`` of 5.x.
        batch_queues: batch consume queues are loaded.
        checkpoint_5: fields behind the third are read.
    """

    release: Release
    normal_start: Start
    abnormal_start: Start
    dispatches_behind_queues: bool
    max_files: int
    cuts_late: bool
    reput_from_queues: bool
    precheck: bool
    wrong_length: WrongLength
    skips_directories: bool
    drops_empty_last: bool
    index_error_stops: bool
    known_v2: bool
    known_v6: bool
    minimum_5: bool
    batch_queues: bool

    @classmethod
    def of(cls, release: Release) -> RecoveryRules:
        """The rules of a release."""
        return cls(
            release=release,
            normal_start=_by(release, (5, 3, 4), Start.VALIDATED, (5, 3, 2), Start.QUEUES_END, Start.THIRD_LAST),
            abnormal_start=_by(
                release, (5, 5, 0), Start.LOGICS_OFFSET, (5, 3, 4), Start.VALIDATED_TIME, Start.STORE_TIME
            ),
            dispatches_behind_queues=release >= (5, 3, 2),
            max_files=10 if release >= (5, 4, 0) else 0,
            cuts_late=release >= (5, 3, 4),
            reput_from_queues=(4, 5, 1) <= release < (5, 0, 0),
            precheck=release >= (5, 3, 2),
            wrong_length=WrongLength.FAIL if release >= (4, 5, 1) else WrongLength.IGNORE_REST,
            skips_directories=release >= (5, 1, 0),
            drops_empty_last=release >= (5, 1, 3),
            index_error_stops=release >= (5, 0, 0),
            known_v2=release >= (5, 1, 0),
            known_v6=release >= (4, 6, 0),
            minimum_5=release >= (5, 0, 0),
            batch_queues=release >= (5, 0, 0),
        )


FAMILIES: tuple[Release, ...] = (
    Release(4, 4, 0),
    Release(4, 9, 8),
    Release(5, 3, 1),
    Release(5, 3, 3),
    Release(5, 4, 0),
    Release(5, 5, 0),
)
"""One release of each family that recovers in its own way: 4.4, 4.5.1 to 4.9.8, 5.0.0 to 5.3.1, 5.3.2 to 5.3.3,
5.3.4 to 5.4.0, and 5.5.0."""


def _by(release: Release, *steps: object) -> Start:
    """The value of the first step that is not newer than the release; the last stands alone."""
    for since, value in zip(steps[0:-1:2], steps[1:-1:2], strict=True):
        assert isinstance(since, tuple)
        if release >= since:
            assert isinstance(value, Start)
            return value
    last = steps[-1]
    assert isinstance(last, Start)
    return last
