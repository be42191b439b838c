"""Before a store is taken over: what a broker of its release would recover at its start, by the same code (spec 6)."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from rmqctl.errors import TooDamaged
from rmqctl.open import open_store_at
from rmqctl.repair.may import refuse_pending
from rmqctl.repair.run import Applied, apply
from rmqctl.rocketmq.engine.config import StoreConfig
from rmqctl.rocketmq.engine.opening import OpenState, state_of
from rmqctl.rocketmq.engine.torn_record import torn_record_plan
from rmqctl.rocketmq.recovery.outcome import Recovery
from rmqctl.rocketmq.recovery.plan import recovery_plan
from rmqctl.rocketmq.recovery.replay import recover
from rmqctl.rocketmq.store import RocketMQStore
from rmqctl.text import number_of


@dataclass(frozen=True, slots=True)
class Opened:
    """A store that can be taken over.

    Attributes:
        store: as it is now.
        applied: what recovery changed after a crash, with the journal to take it back; None after a clean stop.
    """

    store: RocketMQStore
    state: OpenState
    applied: Applied | None = None


def recover_before_open(store: RocketMQStore, config: StoreConfig) -> Opened:
    """Bring a store into the state in which its broker would go on writing; the caller holds its lock.

    After a clean stop nothing is changed. After a crash a half written last record is taken away and the
    recovery of the release is carried out, each by plan and journal.

    Raises:
        TooDamaged: the broker would not start, or would give up messages.
        Refused: its files cannot be changed by a plan, or an earlier run on it was broken off.
        IOFailure: the system refuses.
        OSError: a file cannot be read.
    """
    refuse_pending(Path(store.root))
    found = recover(store, config.release, index=store.has_abort)
    _refuse_damaged(store, found)
    torn = torn_record_plan(store, found.end) if store.has_abort and found.end else None
    if torn is not None:
        apply(torn, lock_is_held=True, outside=store.logs_outside)
        found = recover(store, config.release, index=True)
    applied = None
    if store.has_abort:
        now = datetime.fromtimestamp(config.clock.now() / 1000).astimezone().replace(tzinfo=None)
        applied = apply(recovery_plan(store, found, now), lock_is_held=True, outside=store.logs_outside)
        settings = store.settings
        store = open_store_at(
            store.root, commit_log=[t.root for _, t in store.log_trees] if config.commit_log_paths else ()
        )
        store.settings = settings
    state = state_of(store, config)
    if found.end is not None and state.log_end.offset != found.end:
        raise TooDamaged(
            store.root,
            f"the log ends at {state.log_end.offset}, where a {found.release} broker would end it at {found.end}",
        )
    return Opened(store, state, applied)


def _refuse_damaged(store: RocketMQStore, found: Recovery) -> None:
    if found.error is not None:
        raise TooDamaged(store.root, f"a {found.release} broker does not start on it: {found.error}")
    if found.missing is not None:
        raise TooDamaged(store.root, found.missing.message, found.missing.kind.remedy)
    if found.lost:
        why = f": {found.stopped_by.message}" if found.stopped_by is not None else ""
        where = (
            f"{found.stopped_by.file}, byte {found.stopped_by.offset}" if found.stopped_by is not None else "the log"
        )
        raise TooDamaged(
            store.root,
            f"a {found.release} broker would stop at {where}{why}, and give up {number_of(len(found.lost), 'message')}",
            f"type: rmqctl repair {store.root}, or rmqctl salvage {store.root} INTO",
        )
