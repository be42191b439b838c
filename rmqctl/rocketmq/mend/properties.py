"""Properties put right by what was derived from them: the tags code of the queue unit, hashes of index entries.

No CRC covers the properties, but TAGS, KEYS and UNIQ_KEY live on as hashes. A record that contradicts them is
healed if exactly one flipped bit, or one destroyed byte, explains all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from formats.rocketmq.message import decode_record
from formats.rocketmq.tags_code import SCHEDULE_TOPIC
from rmqctl.rocketmq.dispatch.request import key_hashes, properties_of, unit_tags_code
from rmqctl.rocketmq.dispatch.rules import DispatchRules
from rmqctl.rocketmq.geometry import index_geometry
from rmqctl.rocketmq.index_files import index_files
from rmqctl.rocketmq.mend.claims import Claim
from rmqctl.rocketmq.mend.fields import Mended, resealed
from rmqctl.rocketmq.mend.heal import is_clean
from rmqctl.rocketmq.store import RocketMQStore

_MOST_ENTRIES = 256
_LEAST_TAGS_CODE = -(1 << 31)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What queues and index say of the properties of one record.

    Attributes:
        tags_code: of its unit; None where that is no hash of tags.
        hashes: of its index entries.
    """

    tags_code: int | None
    hashes: frozenset[int]

    def fits(self, topic: bytes, text: bytes, rules: DispatchRules) -> bool:
        """Whether a properties text has these tags and keys."""
        named = properties_of(text, rules)
        if self.tags_code is not None and unit_tags_code(topic, named, 0, rules) != self.tags_code:
            return False
        return self.hashes <= set(key_hashes(topic, named, rules))


def evidence_of(store: RocketMQStore, physical: int, topic: bytes, claim: Claim | None) -> Evidence:
    """The evidence about the record at an offset.

    Raises:
        OSError: an index file cannot be read.
    """
    code = claim.tags_code if claim is not None else None
    if topic == SCHEDULE_TOPIC.encode() or (code is not None and code < _LEAST_TAGS_CODE):
        code = None  # a time of delivery, or the address of an extension unit
    hashes: set[int] = set()
    for file in index_files(store, index_geometry(store)):
        first = file.first_at_or_after(physical)
        entries = file.entries(first, min(_MOST_ENTRIES, max(file.count + 1 - first, 0)))
        hashes.update(entries["key_hash"][entries["physical_offset"] == physical].tolist())
        file.close()
    return Evidence(code, frozenset(hashes))


def heal_properties(raw: bytes, evidence: Evidence, rules: DispatchRules) -> Mended | None:
    """The record with the one correction of its properties that the evidence proves; None without exactly one."""
    fields, _ = decode_record(raw)
    topic, text = fields["topic"], fields["properties"]
    if evidence.fits(topic, text, rules):
        return None
    found: dict[bytes, int] = {}
    tried = 0
    for at, changed in _corrections(text):
        tried += 1
        if is_clean(changed) and evidence.fits(topic, changed, rules):
            found[changed] = at
    if len(found) != 1:
        return None
    changed, at = next(iter(found.items()))
    names = [
        n
        for n, known in (
            ("the tags code of its queue unit", evidence.tags_code is not None),
            ("its index entries", evidence.hashes),
        )
        if known
    ]
    why = f"{' and '.join(names)} fit no other of {tried} corrections"
    record = resealed(raw[: len(raw) - len(text)] + changed)
    return Mended(record, f"heal byte {at} of the properties", why, is_exact=True)


def _corrections(text: bytes) -> Iterator[tuple[int, bytes]]:
    """The text with one bit flipped, or, at a byte that is zero, with any other value."""
    for at, byte in enumerate(text):
        values = range(1, 256) if byte == 0 else [byte ^ 1 << bit for bit in range(8)]
        for value in values:
            yield at, text[:at] + bytes((value,)) + text[at + 1 :]
