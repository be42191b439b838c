"""The families of stores: one record each. It names modules, which are imported when something of their kind is met."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType

DEFAULT = "rocketmq"
"""The family of a store that is made where nothing lies."""


@dataclass(frozen=True, slots=True)
class Family:
    """What is known of a family before one of its stores is opened.

    Attributes:
        name: what ``--format`` takes.
        door: the name of its module with ``open_at(place)``, which gives a :class:`~rmqctl.store.Store`, a
            :class:`~rmqctl.store.LoneFile`, or None where nothing at the path is of its kind; and with what is known of
            the family without a store: ``releases``, ``damages``, ``produce``.
        marks: names that only directories of this family hold: it is asked first, and the others need not be imported.
        table_format: what ``spark.read.format`` takes.
        tables: the name of the module with ``tables_of(given)``.
        unasked: options of its tables where neither they nor columns are given; bodies that nobody asked for are not
            read.
    """

    name: str
    door: str
    marks: frozenset[str]
    table_format: str
    tables: str
    unasked: Mapping[str, str] = field(default_factory=dict)

    @property
    def module(self) -> ModuleType:
        """The door; imported when it is first asked for."""
        return import_module(self.door)


FAMILIES: dict[str, Family] = {
    one.name: one
    for one in (
        Family(
            "kafka",
            "rmqctl.kafka.family",
            frozenset({"meta.properties", "recovery-point-offset-checkpoint", "log-start-offset-checkpoint"}),
            "kafkalog",
            "rmqctl.kafka.tables.tables",
        ),
        Family(
            "rocketmq",
            "rmqctl.rocketmq.family",
            frozenset({"commitlog", "consumequeue"}),
            "rocketmq",
            "rmqctl.rocketmq.tables.tables",
            {"body": "none"},
        ),
    )
}
"""By name, in the order in which they are asked."""
FORMATS: dict[str, Family] = {one.table_format: one for one in FAMILIES.values()}
"""By the name of their format for Spark."""
