"""What a store can be asked: one value a verb, as :class:`rmqctl.store.Store` makes it and a family answers it.

What the fields mean stands at the methods of :class:`rmqctl.store.Store`. A field that only one family has says so,
and why: from it comes the refusal by the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from rmqctl.answer import DRY_RUN, Answer, HexAnswer, Intent, Proposal
from rmqctl.errors import WrongUsage
from rmqctl.filters import Filters, Named, Rendering, asked_time, bound

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from rmqctl.positions import Choice
    from rmqctl.release import Release
    from rmqctl.repair.edits import StepName
    from rmqctl.store import LoneFile, Store
    from rmqctl.verification import LogPart

    Moment = datetime | str | int

A_co = TypeVar("A_co", covariant=True)
EVERYTHING, PLAIN = Filters(), Rendering()
ROCKETMQ, KAFKA = "rocketmq", "kafka"
SHOWN = 5
"""Lives of messages that are shown where nobody says how many."""


def rocketmq(why: str = "", *, option: str = "") -> dict[str, str]:
    """Return the metadata of a field that only RocketMQ has.

    Args:
        why: the rest of the sentence after the option; "" where there is only to say that it means nothing.
        option: how a user gives it; "": by the name of the field.
    """
    return {"family": ROCKETMQ, "why": why, "option": option}


def kafka(why: str = "", *, option: str = "") -> dict[str, str]:
    """Return the metadata of a field that only Kafka has; see :func:`rocketmq`."""
    return {"family": KAFKA, "why": why, "option": option}


@dataclass(frozen=True, slots=True)
class Question(Generic[A_co]):
    """What is asked of a store; the type is that of the answer.

    Attributes:
        verb: the command that asks it.
    """

    verb: ClassVar[str]

    def checked(self, family: str, kind: str, known: Callable[[Release | None], Release | None]) -> Self:
        """Return the question as a family takes it: with a release whose rules it knows.

        Args:
            kind: what the store is called in refusals.
            known: gives the release of the family, or refuses it.

        Raises:
            WrongUsage: it asks for what only another family has, or as a release that the family does not have.
        """
        for part in fields(self):
            if part.metadata.get("family", family) != family and getattr(self, part.name) != part.default:
                why = part.metadata["why"] or f"means nothing when {self.verb} works on a {kind}."
                raise WrongUsage(part.metadata["option"] or f"--{part.name.replace('_', '-')}", why)
        release: Release | None = getattr(self, "as_release", None)
        if release is None:
            return self
        changes: dict[str, Any] = {"as_release": known(release)}
        return replace(self, **changes)

    def hold_to_bundle(self, *, redacted: bool) -> None:
        """Refuse what a bundle cannot answer.

        Args:
            redacted: no body, key and value is in it.

        Raises:
            WrongUsage: it asks for them, or would copy or change what is in the bundle.
        """
        intent, filters = getattr(self, "intent", DRY_RUN), getattr(self, "filters", EVERYTHING)
        if intent.is_real:
            raise WrongUsage("--apply", "changes a store, and this is a bundle: unpack it, and change that.")
        if not redacted:
            return
        if self.verb in _OF_CONTENT:
            raise WrongUsage("PATH", f"is a bundle, and what `{self.verb}` reads is not in this bundle: {_LEFT_OUT}.")
        rendering = getattr(self, "rendering", PLAIN)
        for option, asked in (
            ("--body", rendering.body or rendering.raw_body),
            ("--key", filters.key is not None or getattr(self, "key", None) is not None),
            ("--tag", filters.tag is not None or getattr(self, "tag", None) is not None),
            ("--property", filters.properties),
            ("--grep", filters.grep is not None),
        ):
            if asked:
                raise WrongUsage(option, f"asks for what is not in this bundle: {_LEFT_OUT}.")


_OF_CONTENT = frozenset({"salvage", "query-key"})
_LEFT_OUT = "bodies, keys and values were left out when it was made; --bodies keeps them"
OFFSETS_BELOW = 1_000_000_000
"""A plain number below it, where a time or an offset may stand, is an offset: as milliseconds it lies in 1970."""
_OFFSET = "offset:"


@dataclass(frozen=True, slots=True)
class Dated(Question[A_co]):
    """A question whose answer may be that of a time.

    Attributes:
        at: a ``datetime``, text or epoch ms; None: now.
    """

    at: Moment | None = field(default=None, kw_only=True)

    @property
    def time(self) -> int | None:
        """The time in epoch ms.

        Raises:
            WrongUsage: it is none.
        """
        return bound("--at", self.at)


_AS_FOUND = "is for RocketMQ: the offsets of a log directory are those of its files."
_ONE_KEY = "is for RocketMQ: a record of Kafka has one key and no index of keys."


@dataclass(frozen=True, slots=True)
class Info(Dated[Answer]):
    """See :meth:`rmqctl.store.Store.info`."""

    verb: ClassVar[str] = "info"
    explain: bool = False
    segments: bool = False


@dataclass(frozen=True, slots=True)
class Dump(Question[Answer]):
    """See :meth:`rmqctl.store.Store.dump`."""

    verb: ClassVar[str] = "dump"
    filters: Filters = EVERYTHING
    rendering: Rendering = PLAIN
    as_release: Release | None = None
    follow: bool = False
    pending: str | None = field(default=None, metadata=rocketmq())
    read_committed: bool = field(default=False, metadata=kafka("is for Kafka: a commit log shows every message."))
    processes: int | None = field(default=None, metadata=kafka())
    official: Mapping[str, Any] | None = field(
        default=None,
        metadata=kafka(
            "is for Kafka: the official tools print no files of a RocketMQ store.", option="-o kafka-dump-log"
        ),
    )


@dataclass(frozen=True, slots=True)
class Hex(Question[HexAnswer]):
    """See :meth:`rmqctl.store.Store.hex`."""

    verb: ClassVar[str] = "dump -o hex"
    filters: Filters = EVERYTHING
    within: tuple[int, int] | None = None


@dataclass(frozen=True, slots=True)
class Verify(Question[Answer]):
    """See :meth:`rmqctl.store.Store.verify`."""

    verb: ClassVar[str] = "verify"
    level: str = "full"
    cross: bool = True
    processes: int | None = None
    as_release: Release | None = None
    notes: bool = True
    share: Callable[..., Any] | None = None
    part: LogPart | None = None


@dataclass(frozen=True, slots=True)
class Topics(Dated[Answer]):
    """See :meth:`rmqctl.store.Store.topics`.

    Attributes:
        apart: rows by topic have those of their partitions in `parts`, as :class:`rmqctl.fleet.Fleet` asks for sums.
    """

    verb: ClassVar[str] = "topics"
    topic: Named = None
    by_topic: bool = False
    as_found: bool = field(default=False, metadata=rocketmq(_AS_FOUND))
    disk: bool = False
    apart: bool = False


@dataclass(frozen=True, slots=True)
class Lag(Dated[Answer]):
    """See :meth:`rmqctl.store.Store.lag`.

    Attributes:
        brokers: all of a cluster with their names, as :class:`rmqctl.fleet.Fleet` asks one of them for all.
    """

    verb: ClassVar[str] = "lag"
    group: Named = None
    topic: Named = None
    as_release: Release | None = None
    as_found: bool = field(default=False, metadata=rocketmq(_AS_FOUND))
    brokers: Sequence[tuple[str, Store]] = field(default=(), metadata=kafka())


@dataclass(frozen=True, slots=True)
class Producers(Dated[Answer]):
    """See :meth:`rmqctl.store.Store.producers`."""

    verb: ClassVar[str] = "producers"
    topic: str | None = None
    queue: int | None = None


@dataclass(frozen=True, slots=True)
class Transactions(Dated[Answer]):
    """See :meth:`rmqctl.store.Store.transactions`."""

    verb: ClassVar[str] = "transactions"


@dataclass(frozen=True, slots=True)
class Metadata(Dated[Answer]):
    """See :meth:`rmqctl.store.Store.metadata`."""

    verb: ClassVar[str] = "metadata"

    @property
    def offset(self) -> int | None:
        """The offset that is asked for instead of a time: a number below :data:`OFFSETS_BELOW`, or ``offset:N``."""
        text = str(self.at).strip()
        number = text.removeprefix(_OFFSET)
        if self.at is None or not (number.isascii() and number.isdigit()):
            return None
        return int(number) if number != text or int(number) < OFFSETS_BELOW else None

    @property
    def time(self) -> int | None:
        return None if self.offset is not None else bound("--at", self.at)


@dataclass(frozen=True, slots=True)
class QueryKey(Question[Answer]):
    """See :meth:`rmqctl.store.Store.query_key`."""

    verb: ClassVar[str] = "query-key"
    topic: str | None
    key: str | None
    filters: Filters = EVERYTHING
    rendering: Rendering = PLAIN
    unique: bool = field(default=False, metadata=rocketmq(_ONE_KEY))
    begin: Moment = 0
    end: Moment = (1 << 63) - 1
    most: int | None = None
    raw: bool = field(default=False, metadata=rocketmq(_ONE_KEY))
    scan: bool = False
    latest: bool = field(
        default=False, metadata=kafka("is for Kafka: the messages of a RocketMQ key do not replace each other.")
    )
    processes: int | None = None
    explain: bool = False
    as_release: Release | None = None

    @property
    def times(self) -> tuple[int, int]:
        """The bounds in epoch ms.

        Raises:
            WrongUsage: one is no time.
        """
        return asked_time("--begin", self.begin), asked_time("--end", self.end)


@dataclass(frozen=True, slots=True)
class QueryTime(Question[Answer]):
    """See :meth:`rmqctl.store.Store.query_time`."""

    verb: ClassVar[str] = "query-time"
    topic: str
    queue: int | None
    time: Moment
    rendering: Rendering = PLAIN
    boundary: str = field(
        default="lower", metadata=rocketmq("is for RocketMQ: a Kafka broker gives the first record of a time or later.")
    )
    explain: bool = False
    as_release: Release | None = None
    as_found: bool = field(default=False, metadata=rocketmq(_AS_FOUND))


@dataclass(frozen=True, slots=True)
class QueryOffset(Question[Answer]):
    """See :meth:`rmqctl.store.Store.query_offset`."""

    verb: ClassVar[str] = "query-offset"
    topic: str
    queue: int
    offset: int
    filters: Filters = EVERYTHING
    rendering: Rendering = PLAIN
    read_committed: bool = field(
        default=False, metadata=kafka("is for Kafka: RocketMQ keeps uncommitted messages out of queues.")
    )
    explain: bool = False
    as_release: Release | None = None
    as_found: bool = field(default=False, metadata=rocketmq(_AS_FOUND))


@dataclass(frozen=True, slots=True)
class QueryId(Question[Answer]):
    """See :meth:`rmqctl.store.Store.query_id`."""

    verb: ClassVar[str] = "query-id"
    message_id: str
    rendering: Rendering = PLAIN
    topic: str | None = None
    every: bool = False
    scan: bool = False
    explain: bool = False
    as_release: Release | None = None


@dataclass(frozen=True, slots=True)
class Trace(Question[Answer]):
    """See :meth:`rmqctl.store.Store.trace`."""

    verb: ClassVar[str] = "trace"
    message: str
    topic: str | None = None
    most: int = SHOWN
    as_release: Release | None = None

    def hold_to_bundle(self, *, redacted: bool) -> None:
        """Refuse also keys and ids that others than brokers made."""
        from rmqctl.life import place_in

        Question.hold_to_bundle(self, redacted=redacted)
        if redacted and place_in(self.message) is None:
            raise WrongUsage(
                "MESSAGE", f"is no place, and keys are not in this bundle: {_LEFT_OUT}; give TOPIC/QUEUE@OFFSET."
            )


@dataclass(frozen=True, slots=True)
class Recover(Question[Proposal]):
    """See :meth:`rmqctl.store.Store.recover`."""

    verb: ClassVar[str] = "recover"
    as_release: Release | None = None
    plan: bool = False
    list_lost: bool = False
    compare: bool = False
    processes: int | None = None
    leader: Store | None = field(default=None, metadata=kafka())
    intent: Intent = DRY_RUN

    @property
    def wants_plan(self) -> bool:
        """Whether the plan that carries it out is to be made."""
        return self.plan or self.intent.is_real


@dataclass(frozen=True, slots=True)
class Preflight(Question[Answer]):
    """See :meth:`rmqctl.store.Store.preflight`."""

    verb: ClassVar[str] = "preflight"
    to: Release
    conf: Path | None = None

    def checked(self, family: str, kind: str, known: Callable[[Release | None], Release | None]) -> Self:
        """Return the question with a release whose rules are known.

        Raises:
            WrongUsage: it is none of the family's.
        """
        try:
            return replace(self, to=known(self.to) or self.to)
        except WrongUsage as error:
            raise WrongUsage("--to", error.reason) from None


@dataclass(frozen=True, slots=True)
class Repair(Question[Proposal]):
    """See :meth:`rmqctl.store.Store.repair`."""

    verb: ClassVar[str] = "repair"
    only: tuple[str, ...] = ()
    skip: tuple[str, ...] = ()
    replicas: Sequence[Store] = ()
    body_damage: str = field(default="placeholder", metadata=rocketmq(option="--body-damage accept"))
    neutralize: tuple[int, ...] = field(default=(), metadata=rocketmq())
    abort_transaction: tuple[str, ...] = field(default=(), metadata=kafka())
    processes: int | None = None
    intent: Intent = DRY_RUN
    without: frozenset[StepName] = frozenset()
    accept: frozenset[StepName] = frozenset()


@dataclass(frozen=True, slots=True)
class Rebuild(Question[Proposal]):
    """See :meth:`rmqctl.store.Store.rebuild`."""

    verb: ClassVar[str] = "rebuild"
    parts: frozenset[str] = frozenset()
    topics: tuple[str, ...] = ()
    into: Path | None = None
    owner: str | None = None
    processes: int | None = None
    as_release: Release | None = None
    share: Callable[..., Any] | None = field(
        default=None,
        metadata=rocketmq("spark is for RocketMQ: files of a log directory are made here.", option="--engine"),
    )
    intent: Intent = DRY_RUN


@dataclass(frozen=True, slots=True)
class Offsets(Question[Proposal]):
    """See :meth:`rmqctl.store.Store.offsets`."""

    verb: ClassVar[str] = "offsets"
    choice: Choice
    only_replica: bool = field(default=False, metadata=kafka("is for Kafka: positions of RocketMQ lie in one place."))
    intent: Intent = DRY_RUN


@dataclass(frozen=True, slots=True)
class Salvage(Question[Answer]):
    """See :meth:`rmqctl.store.Store.salvage`."""

    verb: ClassVar[str] = "salvage"
    into: Path
    replicas: Sequence[Store] = ()
    stale: bool = field(default=False, metadata=rocketmq())
    renumber: bool = field(default=False, metadata=rocketmq())
    deleted: bool = field(default=False, metadata=kafka())
    stray: bool = field(default=False, metadata=kafka())
    partition: tuple[str, int | None] | None = field(default=None, metadata=kafka())
    as_topic_files: bool = field(default=False, metadata=kafka())
    as_release: Release | None = field(default=None, metadata=kafka())
    owner: str | None = None


@dataclass(frozen=True, slots=True)
class Diff(Question[Answer]):
    """See :meth:`rmqctl.store.Store.diff`."""

    verb: ClassVar[str] = "diff"
    other: Store | LoneFile
    by: str = "physical"
    queues: bool = True
    limit: int | None = None
    share: Any = None


@dataclass(frozen=True, slots=True)
class Elect(Question[Answer]):
    """See :meth:`rmqctl.store.Store.elect`."""

    verb: ClassVar[str] = "elect"
    others: Sequence[Store] = ()


@dataclass(frozen=True, slots=True)
class AsTables(Question[Any]):
    """See :meth:`rmqctl.store.Store.as_tables`."""

    verb: ClassVar[str] = "tables"
    filters: Filters = EVERYTHING
    split_size: int | None = None
    body: str = "decompressed"


@dataclass(frozen=True, slots=True)
class Table(Question[Any]):
    """See :meth:`rmqctl.store.Store.table`.

    Attributes:
        topics: none: all.
        after, before: epoch ms.
    """

    verb: ClassVar[str] = "table"
    name: str
    topics: tuple[str, ...] = ()
    queue: int | None = None
    key: str | None = None
    tag: str | None = None
    after: int | None = None
    before: int | None = None
    columns: Sequence[str] | None = None
