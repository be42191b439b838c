"""The eight layouts of a record header, numbered: V2 (4), store host IPv6 (2), born host IPv6 (1). Spec 2.1 to 2.4."""

from __future__ import annotations

from functools import cache

from formats.layout import Plan
from formats.rocketmq.message import Magic, SysFlag, record_plan

VARIANTS = 8
HOST_SHIFT = int(SysFlag.BORN_HOST_V6).bit_length() - 1
_MAGICS = {int(Magic.MESSAGE_V1): 0, int(Magic.MESSAGE_V2): 4}


def plan_of_variant(variant: int) -> Plan:
    """The derived plan of a variant number."""
    return record_plan(bool(variant & 4), (variant & 3) << HOST_SHIFT)


def variant_of(magic: int, sys_flag: int) -> int | None:
    """The variant of a record with this MAGICCODE and SYSFLAG; None for a magic that is no message's."""
    kind = _MAGICS.get(magic)
    return None if kind is None else kind | sys_flag >> HOST_SHIFT & 3


@cache
def head_size(variant: int) -> int:
    """Bytes before the body, BODYLEN included."""
    return plan_of_variant(variant).runs[0].packer.size


@cache
def head_offset(name: str, variant: int) -> int:
    """Offset of a fixed header field."""
    return next(f.offset for f in plan_of_variant(variant).runs[0].fields if f.name == name)
