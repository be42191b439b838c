"""Several stores, opened and asked as one: those of a pattern or an inventory, directories of one broker, pairs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

from rmqctl import questions
from rmqctl.answer import Answer
from rmqctl.errors import RmqctlError, WrongUsage
from rmqctl.filters import Filters
from rmqctl.fleet_answers import COMPARED, EXAMINED, SHAPES, Ask, Asked, Opened, ask_one
from rmqctl.inventory import Member, is_several, members_of, opened_together
from rmqctl.questions import EVERYTHING, Question
from rmqctl.results import is_results, recorded
from rmqctl.store import Store

if TYPE_CHECKING:
    from rmqctl.fleet_tables import FleetTables
    from rmqctl.tables import Tables


def open_all(
    paths: Sequence[str],
    *,
    format: str | None = None,
    commit_log: Sequence[str] = (),
    broker_conf: str | None = None,
) -> Fleet:
    """Open what paths, patterns and inventories name; directories of one broker count as one store.

    ``@results/*.json`` are documents of `verify -o json`, made on other hosts.

    Args:
        format, commit_log, broker_conf: as of :func:`rmqctl.open`, of all stores that no inventory says more of.

    Raises:
        NotAStore: a pattern matches nothing.
        WrongUsage: an inventory is none.
    """
    results = [one for path in paths if is_results(path) for one in recorded(path)]
    paths = [path for path in paths if not is_results(path)]
    members = members_of(paths, format=format, commit_log=commit_log, broker_conf=broker_conf)
    opened, remarks = opened_together(members, is_plain=not any(map(is_several, paths)))
    return Fleet([*opened, *results], remarks)


class Fleet:
    """Several stores, opened for reading.

    Attributes:
        stores: each with its store, with what `verify` said of it elsewhere, or with why it cannot be opened.
        remarks: what every answer says before its rows.
    """

    def __init__(self, stores: Sequence[tuple[Member, Opened]], remarks: Sequence[str] = ()) -> None:
        self.stores, self.remarks = list(stores), list(remarks)

    def __len__(self) -> int:
        return len(self.stores)

    @property
    def only(self) -> Store | None:
        """The store, where there is one and it can be read."""
        store = self.stores[0][1] if len(self.stores) == 1 else None
        return store if isinstance(store, Store) else None

    def ask(self, question: Question[Any]) -> Answer:
        """Ask every store the same, one after the other.

        Raises:
            WrongUsage: the question cannot be put to several stores, or an option does not go with one of them.
        """
        shape = SHAPES.get(type(question))
        if shape is None:
            raise WrongUsage("PATH", f"`{question.verb}` works on one store at a time; give one path.")

        def one(member: Member, store: Asked) -> Answer:
            return ask_one(member, store, question) if isinstance(store, Store) else store.answer(question)

        if isinstance(question, questions.Topics):
            question = replace(question, apart=question.by_topic)
        fleet = self._each_once(question.verb)
        return shape(fleet.by_clusters() if isinstance(question, questions.Lag) else fleet, one)

    def _each_once(self, verb: str) -> Fleet:
        """Return the stores, one for all of its parts that were named where a verb looks at the whole store."""
        kept: list[tuple[Member, Opened]] = []
        parts: dict[str, int] = {}
        for member, store in self.stores:
            if isinstance(store, Store) and store.selection and verb not in store.keep_to_selection:
                parts[store.root] = parts.get(store.root, 0) + 1
                if parts[store.root] > 1:
                    continue
                member = replace(member, name=store.root)
            kept.append((member, store))
        return Fleet(kept, self.remarks) if len(kept) < len(self.stores) else self

    def by_clusters(self) -> Fleet:
        """Return the stores, with those of a Kafka cluster as one: each has replicas of what others have, and a group's
        offsets lie with its coordinator, whoever leads what it reads.
        """
        found: dict[tuple[str | None, str], list[tuple[int, int]]] = {}
        for number, (member, store) in enumerate(self.stores):
            own = store.membership if isinstance(store, Store) else None
            if own is not None:
                found.setdefault((member.cluster, own[0]), []).append((own[1], number))
        kept = dict(enumerate(self.stores))
        remarks = list(self.remarks)
        for (_, cluster), brokers in found.items():
            places = dict(brokers)
            if len(places) < len(brokers):
                twice = Counter(node for node, _ in brokers).most_common(1)[0][0]
                names = " and ".join(self.stores[number][0].name for node, number in brokers if node == twice)
                remarks.append(
                    f"{names} are of node {twice} of cluster {cluster}, so each store answers for itself; give one of "
                    "each broker, or an inventory in which copies have a cluster of their own"
                )
            elif len(brokers) > 1:
                numbers = sorted(number for _, number in brokers)
                asked = [kept.pop(number) for number in numbers]
                first = asked[0][0]
                name = first.cluster or f"cluster {cluster}"
                kept[numbers[0]] = Member(name, first.path, first.cluster, release=first.release), _Brokers(asked)
        return Fleet([kept[number] for number in sorted(kept)], remarks)

    def as_tables(
        self, filters: Filters = EVERYTHING, *, split_size: int | None = None, body: str = "decompressed"
    ) -> FleetTables:
        """Return the tables of all stores as one, with ``cluster`` and ``store`` before their columns.

        Args:
            filters, split_size, body: as of :meth:`rmqctl.store.Store.as_tables`.

        Raises:
            WrongUsage: the stores are of more than one family, or a filter means nothing for them.
        """
        from rmqctl.fleet_tables import Listed, joined

        listed = [
            Listed(member, one_of_several(store, filters, split_size, body))
            if isinstance(store, Store)
            else Listed(member, None, str(store))
            for member, store in self.stores
        ]
        return joined(listed, {store.family for _, store in self.stores if isinstance(store, Store)})

    @property
    def size(self) -> int:
        """Bytes of the logs of all stores."""
        return sum(store.size for _, store in self.stores if isinstance(store, Store))

    @property
    def is_running(self) -> bool:
        """Whether a broker holds one of the stores."""
        return any(store.is_running for _, store in self.stores if isinstance(store, Store))

    def examine(self) -> Answer:
        """Look at every store as :func:`rmqctl.doctor.examine` does; a row a store."""
        from rmqctl.doctor import examine

        def one(member: Member, store: Asked) -> Answer:
            if not isinstance(store, Store):
                raise RmqctlError(f"{member.path} is a result of verify, and no store")
            return examine(store, member.path)

        return EXAMINED(self, one)

    def against(self, other: Fleet, *, by: str = "physical", queues: bool = True, limit: int | None = None) -> Answer:
        """Compare two sets of stores, those that are called alike with each other; a row a pair.

        They are called by their names in an inventory, or by what the wildcards of a pattern stand for.

        Args:
            by, queues, limit: as of :meth:`rmqctl.store.Store.diff`.
        """
        opened, opposite = ({member.name: store for member, store in fleet.stores} for fleet in (self, other))
        pairs: list[tuple[Member, Opened]] = []
        beside: dict[str, Store] = {}
        for pair in paired([member for member, _ in self.stores], [member for member, _ in other.stores]):
            there = opposite[pair.b.name] if pair.b is not None else None
            found = opened[pair.a.name] if pair.a is not None else pair.error
            if pair.b is None and not isinstance(found, Exception):
                found = pair.error
            if isinstance(found, Store) and isinstance(there, Store):
                beside[pair.member.name] = there
            elif isinstance(found, Store):
                found = RmqctlError(f"B: {there}") if isinstance(there, Exception) else _no_store(pair.b)
            pairs.append((pair.member, found))

        def one(member: Member, store: Asked) -> Answer:
            if not isinstance(store, Store):
                raise _no_store(member)
            return store.diff(beside[member.name], by=by, queues=queues, limit=limit)

        return Fleet(pairs, [*self.remarks, *other.remarks]).compared(one)

    def compared(self, ask: Ask) -> Answer:
        """Return what is said of pairs of stores; a row a pair."""
        return COMPARED(self, ask)


@dataclass(frozen=True, slots=True)
class _Brokers:
    """The brokers of a cluster that answer together; an :class:`Elsewhere`."""

    stores: Sequence[tuple[Member, Opened]]

    def answer(self, question: Question[Any] | None, /) -> Answer:
        """Have one of them asked for all."""
        named = [(member.name, store) for member, store in self.stores if isinstance(store, Store)]
        assert isinstance(question, questions.Lag)
        return ask_one(*cast(tuple[Member, Store], self.stores[0]), replace(question, brokers=named))


def one_of_several(store: Store, filters: Filters, split_size: int | None, body: str) -> Tables:
    """Return the tables of a store that is one of several.

    Raises:
        WrongUsage: a filter means nothing for it, or for several stores.
    """
    if filters.limit is not None:
        raise WrongUsage("--limit", "counts the messages of one store; give one PATH.")
    return store.as_tables(filters, split_size=split_size, body=body)


@dataclass(frozen=True, slots=True)
class Pair:
    """Two stores that are called alike in two sets.

    Attributes:
        member: what the pair is called; its facts are the paths of both, "" where there is none.
        a, b: None: that set has none.
    """

    member: Member
    a: Member | None
    b: Member | None

    @property
    def error(self) -> RmqctlError:
        """Why they cannot be compared where one is missing."""
        letter = "B" if self.b is None else "A"
        return RmqctlError(f"{self.member.path} has no store that is called alike in {letter}")


def paired(a: Sequence[Member], b: Sequence[Member]) -> list[Pair]:
    """Return the stores of two sets by their names, those of A first, then what only B has."""
    there, here = {member.key: member for member in b}, {member.key for member in a}

    def pair(member: Member, one: Member | None, other: Member | None) -> Pair:
        facts = {"a": one.path if one is not None else "", "b": other.path if other is not None else ""}
        return Pair(replace(member, name=member.key or member.name, facts=facts), one, other)

    pairs = [pair(member, member, there.get(member.key)) for member in a]
    return [*pairs, *(pair(member, None, member) for member in b if member.key not in here)]


def _no_store(member: Member | None) -> RmqctlError:
    path = member.path if member is not None else ""
    return RmqctlError(f"{path} is a result of verify, and no store")
