"""What the answers of a RocketMQ store share: its remarks, its messages as rows, how tables show them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from rmqctl.answer import Answer, Row, Section, TableLayout
from rmqctl.errors import Refused
from rmqctl.explain import step_lines
from rmqctl.filters import Glob, Rendering, did_you_mean
from rmqctl.release import Release
from rmqctl.rocketmq.store.files import StoreFiles

if TYPE_CHECKING:
    from rmqctl.explain import TraceStep
    from rmqctl.rocketmq.dump.record import RowOptions
    from rmqctl.rocketmq.query.records import Record

_LOG = ("physical_offset", "topic", "queue_id", "queue_offset", "store_timestamp", "tags", "keys", "remark")
_QUEUE = ("kind", "topic", "queue_id", "queue_offset", "physical_offset", "size", "tags_code", "remark")
_INDEX = ("kind", "number", "slot", "key_hash", "physical_offset", "store_timestamp", "previous", "remark")


MESSAGE_KEYS = """
    kind file position physical_offset size magic body_crc body_crc_ok queue_id flag queue_offset sys_flag
    born_timestamp born_host store_timestamp store_host reconsume_times prepared_transaction_offset topic tags
    keys unique_key message_id properties transaction compression body_size inner
"""
"""Keys of the row of a message, of padding at the end of a file, and of a message in an inner batch."""
STEP_KEYS = "kind file what result id"
"""Keys of the row of a step of an explanation."""


def begin(store: StoreFiles, answer: Answer | None = None) -> Answer:
    """Return an answer with the remark on a store whose broker runs."""
    made = Answer() if answer is None else answer
    if store.is_running:
        made.remark("a broker holds the lock of this store: what is read may be changing")
    return made


def pending_remark(store: StoreFiles, answer: Answer) -> None:
    """Remark on a store that an earlier run left half changed; reading goes on."""
    from pathlib import Path

    from rmqctl.repair import refuse_pending

    try:
        refuse_pending(Path(store.root))
    except Refused as reason:
        answer.remark(str(reason))


def name_unreadable(store: StoreFiles, answer: Answer) -> None:
    """Name each file of a forgiving store that could not be read; the answer is a "no" if there is one."""
    from rmqctl.findings import Severity
    from rmqctl.rocketmq.store.files import unreadable_files

    for finding in unreadable_files(store):
        if finding.level is not Severity.NOTE:
            sentence = f"{finding.file} {finding.message}; it is taken for empty, so what is shown may be too little"
            answer.remark(sentence)
            answer.is_no = True


def no_start(release: Release, error: str) -> str:
    """Return what is said where no broker starts, and so nobody answers where queues end."""
    return f"no broker of {release} starts on this store ({error}): the files are shown as they lie"


def row_options(rendering: Rendering, release: Release | None = None) -> RowOptions:
    """How messages are shown."""
    from rmqctl.rocketmq.dump.record import RowOptions

    wanted = rendering
    return RowOptions(wanted.body, wanted.raw_body, wanted.body_limit, wanted.redact, release, wanted.max_body)


def message_rows(records: Iterable[Record], show: RowOptions) -> Iterator[Row]:
    """Return records as the objects that `dump` shows."""
    from rmqctl.rocketmq.dump.record import RecordRows

    rows = RecordRows(show)
    return (rows.row(record.fields, record.file, record.position) for record in records)


def answer_messages(
    answer: Answer,
    look_up: Callable[[], tuple[Iterable[Row], Sequence[TraceStep]]],
    last: Callable[[int], None],
) -> Answer:
    """Make messages in the broker's order, then steps, the rows of an answer.

    Args:
        look_up: finds them when the rows are read.
        last: is called with the number of messages after the last row.
    """
    steps: list[Row] = []
    count = 0

    def messages() -> Iterator[Row]:
        nonlocal count
        found, looked_at = look_up()
        steps.extend(step.row() for step in looked_at)
        for row in found:
            count += 1
            yield row

    def rows() -> Iterator[Row]:
        yield from messages()
        yield from steps
        last(count)

    def sections() -> Iterator[Section]:
        yield Section(rows=messages(), layout=LAYOUT, is_optional=True)
        yield Section(lines=step_lines(steps, apart=count > 0))
        last(count)

    answer.rows, answer.sections = rows(), sections
    return answer


# --- tables -------------------------------------------------------------------------------------------


def _remark(row: Row) -> str | None:
    """Return what is unusual about a row, None when nothing is."""
    remark = _REMARKS.get(row["kind"])
    return (remark(row) if remark else None) or None


def _of_message(row: Row) -> str:
    return ", ".join(_facts(row))


def _facts(row: Row) -> Iterator[str]:
    if not row["body_crc_ok"]:
        yield "body CRC is wrong"
    if row["magic"] != "V1":
        yield str(row["magic"])
    for key in ("transaction", "compression"):
        if row[key] != "none":
            yield str(row[key])
    if "inner" in row:
        yield f"batch of {len(row['inner'])}"


def _of_unit(row: Row) -> str:
    return f"tags code {row['ext']['tags_code']} in the extension" if row.get("ext") else ""


def _of_header(row: Row) -> str:
    return f"{max(row['index_count'] - 1, 0)} entries, room for {row['entries']} in {row['slots']} slots"


_REMARKS: dict[str, Callable[[Row], str]] = {
    "finding": lambda row: f"{row['severity']} {row['id']}: {row['message']}",
    "message": _of_message,
    "blank": lambda row: f"blank, {row['size']} bytes to the end of the file",
    "dledger_entry": lambda row: f"entry {row['index']} of term {row['term']}",
    "queue_unit": _of_unit,
    "index_header": _of_header,
    "index_slot": lambda row: f"entries {', '.join(map(str, row['chain']))}",
}

LAYOUT = TableLayout(
    {
        "finding": _LOG,
        "message": _LOG,
        "blank": _LOG,
        "dledger_entry": _LOG,
        "queue_unit": _QUEUE,
        "pre_blank": _QUEUE,
        "index_header": _INDEX,
        "index_slot": _INDEX,
        "index_entry": _INDEX,
    },
    _remark,
    frozenset({"config", "dledger_checkpoint", "dledger_term"}),
)
"""Of each kind of row the columns that say most, with a remark on what is unusual."""


def no_queue(store: StoreFiles, topic: str | None) -> str:
    """Return why nothing is shown of a topic, or of all."""
    from rmqctl.rocketmq.state.config import known_topics as topic_names

    names = topic_names(store)
    if topic is None:
        return "no queue is there, and the log holds no message"
    if isinstance(topic, Glob):
        return f"no topic with a queue matches {topic}"
    if topic in names:
        return f"topic {topic} has no queue and no message"
    return f"the store knows no topic {topic}{did_you_mean(topic, names)}"
