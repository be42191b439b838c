"""What client and broker add to a message on its way into the store (spec 2.6).

Sources: DefaultMQProducerImpl.sendKernelImpl (UNIQ_KEY, WAIT), MessageClientIDSetter,
SendMessageProcessor.sendMessage (MSG_REGION, TRACE_ON, CLUSTER, the WAIT of 4.9.1 to 4.9.8).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from formats.rocketmq.message_id import UniqueKeyV4, UniqueKeyV6
from rmqctl.release import Release
from rmqctl.rocketmq.engine.config import Host, StoreConfig
from rmqctl.rocketmq.engine.drafts import seeded
from rmqctl.rocketmq.engine.property_text import batch_item_text, java_map_order

Ints = npt.NDArray[np.int64]
_CLUSTER, _UNWAITED, _FIVE = Release(4, 6, 0), Release(4, 9, 1), Release(5, 0, 0)
_MONTH_MS = 31 * 86_400_000
_COUNTER_BITS = 16
_CHANGING = 10
"""Bytes at the end of a key: loader hash, time, counter."""


@dataclass
class Client:
    """A producer process: its address and what makes its unique keys its own.

    Attributes:
        seed: the same seed gives the same keys.
    """

    host: Host
    seed: int

    @cached_property
    def _identity(self) -> tuple[int, int]:
        random = seeded(self.seed)
        return random.getrandbits(_COUNTER_BITS), random.getrandbits(31)

    @cached_property
    def key_prefix(self) -> str:
        """What all its keys begin with: address and process id."""
        layout = UniqueKeyV6 if self.host.is_v6 else UniqueKeyV4
        fields = {"ip": self.host.ip, "pid": self._identity[0], "class_loader_hash": 0, "time": 0, "counter": 0}
        raw: bytes = layout.build(fields)
        return raw[:-_CHANGING].hex().upper()

    def key_parts(self, number: int, born_timestamp: int) -> tuple[int, int, int]:
        """The rest of the key of message ``number``: loader hash, time and counter.

        The counter has 16 bits; what is above goes into the loader hash, so that keys stay unique under a
        clock that stands still.
        """
        loader = self._identity[1] ^ number >> _COUNTER_BITS
        return loader, born_timestamp % _MONTH_MS, number & (1 << _COUNTER_BITS) - 1

    def key_columns(self, numbers: Ints, born_timestamps: Ints) -> tuple[Ints, Ints, Ints]:
        """The same for many messages, shape (n,) each."""
        loader = self._identity[1] ^ numbers >> _COUNTER_BITS
        return loader, born_timestamps % _MONTH_MS, numbers & (1 << _COUNTER_BITS) - 1

    def unique_key(self, number: int, born_timestamp: int) -> str:
        """UNIQ_KEY of message ``number``, in the shape of the Java client (spec 2.15)."""
        loader, time, counter = self.key_parts(number, born_timestamp)
        return f"{self.key_prefix}{loader:08X}{time:08X}{counter:04X}"


def client_properties(properties: dict[str, str], unique_key: str) -> dict[str, str]:
    """What a client sends: its own properties, UNIQ_KEY and WAIT."""
    return {**properties, "UNIQ_KEY": properties.get("UNIQ_KEY", unique_key), "WAIT": properties.get("WAIT", "true")}


def batch_item(properties: dict[str, str], batch_key: str, config: StoreConfig) -> bytes:
    """The stored text of one message of a client batch, whose batch has the unique key ``batch_key``.

    Raises:
        MessageRefused: a name or value contains a separator.
    """
    batch = {"WAIT": "true"} if config.release < _FIVE else {"UNIQ_KEY": batch_key, "WAIT": "true"}
    if config.release >= _FIVE:
        batch |= {"MSG_REGION": config.region, "TRACE_ON": "true"}
    if config.release >= _CLUSTER:
        batch["CLUSTER"] = config.cluster
    return batch_item_text(properties, batch if config.release >= _CLUSTER else {}, config.release)


def broker_properties(properties: dict[str, str], config: StoreConfig) -> dict[str, str]:
    """What the broker of the release stores of that."""
    stored = {name: properties[name] for name in java_map_order(properties)}  # as the client's text has them
    if config.release >= _FIVE:
        stored |= {"MSG_REGION": config.region, "TRACE_ON": "true", "CLUSTER": config.cluster}
    elif config.release >= _CLUSTER:
        stored["CLUSTER"] = config.cluster
    if _UNWAITED <= config.release < _FIVE:
        stored.pop("WAIT", None)
    return stored
