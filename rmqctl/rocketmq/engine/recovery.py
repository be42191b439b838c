"""Before a store is taken over: what a broker would recover at its start (spec 6)."""

from __future__ import annotations

from rmqctl.errors import Refused
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.opening import OpenState, state_of
from rmqctl.rocketmq.store import RocketMQStore


def recover_before_open(store: RocketMQStore, config: StoreConfig) -> OpenState:
    """The state of a store that is to be written.

    Raises:
        Refused: its last writer was killed, so it must be recovered first.
        TooDamaged: it needs more than a recovery.
        OSError: a file cannot be read.
    """
    if store.has_abort:
        raise Refused(
            f"{store.root} was not stopped cleanly (abort is there); "
            "start its broker once, or recover it, before writing to it"
        )
    return state_of(store, config)
