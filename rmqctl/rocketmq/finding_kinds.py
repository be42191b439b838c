"""Everything that can be wrong with a RocketMQ store: the door to the tables of the four areas.

Ids never change. ``see`` names sections of the format reference (spec) and issues of apache/rocketmq.
"""

from __future__ import annotations

from rmqctl.rocketmq.kinds_derived import (
    INDEX_BEYOND as INDEX_BEYOND,
)
from rmqctl.rocketmq.kinds_derived import (
    INDEX_CHAIN as INDEX_CHAIN,
)
from rmqctl.rocketmq.kinds_derived import (
    INDEX_COUNT as INDEX_COUNT,
)
from rmqctl.rocketmq.kinds_derived import (
    INDEX_COVERAGE as INDEX_COVERAGE,
)
from rmqctl.rocketmq.kinds_derived import (
    INDEX_ENTRY as INDEX_ENTRY,
)
from rmqctl.rocketmq.kinds_derived import (
    INDEX_FILE_LENGTH as INDEX_FILE_LENGTH,
)
from rmqctl.rocketmq.kinds_derived import (
    INDEX_FILE_NAME as INDEX_FILE_NAME,
)
from rmqctl.rocketmq.kinds_derived import (
    INDEX_HEADER as INDEX_HEADER,
)
from rmqctl.rocketmq.kinds_derived import (
    INDEX_MISSING as INDEX_MISSING,
)
from rmqctl.rocketmq.kinds_derived import (
    INDEX_NEWER as INDEX_NEWER,
)
from rmqctl.rocketmq.kinds_derived import (
    INDEX_TIME as INDEX_TIME,
)
from rmqctl.rocketmq.kinds_derived import (
    QUEUE_AHEAD as QUEUE_AHEAD,
)
from rmqctl.rocketmq.kinds_derived import (
    QUEUE_DATABASE as QUEUE_DATABASE,
)
from rmqctl.rocketmq.kinds_derived import (
    QUEUE_EXT as QUEUE_EXT,
)
from rmqctl.rocketmq.kinds_derived import (
    QUEUE_FILE_GAP as QUEUE_FILE_GAP,
)
from rmqctl.rocketmq.kinds_derived import (
    QUEUE_FILE_LENGTH as QUEUE_FILE_LENGTH,
)
from rmqctl.rocketmq.kinds_derived import (
    QUEUE_FILE_NAME as QUEUE_FILE_NAME,
)
from rmqctl.rocketmq.kinds_derived import (
    QUEUE_HOLE as QUEUE_HOLE,
)
from rmqctl.rocketmq.kinds_derived import (
    QUEUE_MIN_OFFSET as QUEUE_MIN_OFFSET,
)
from rmqctl.rocketmq.kinds_derived import (
    QUEUE_MISSING as QUEUE_MISSING,
)
from rmqctl.rocketmq.kinds_derived import (
    QUEUE_MISSING_UNITS as QUEUE_MISSING_UNITS,
)
from rmqctl.rocketmq.kinds_derived import (
    QUEUE_ORPHAN as QUEUE_ORPHAN,
)
from rmqctl.rocketmq.kinds_derived import (
    QUEUE_REPEAT as QUEUE_REPEAT,
)
from rmqctl.rocketmq.kinds_derived import (
    QUEUE_STALE_TAIL as QUEUE_STALE_TAIL,
)
from rmqctl.rocketmq.kinds_derived import (
    QUEUE_TORN_UNIT as QUEUE_TORN_UNIT,
)
from rmqctl.rocketmq.kinds_derived import (
    QUEUE_UNDISPATCHED as QUEUE_UNDISPATCHED,
)
from rmqctl.rocketmq.kinds_derived import (
    QUEUE_UNIT_MISMATCH as QUEUE_UNIT_MISMATCH,
)
from rmqctl.rocketmq.kinds_diff import (
    DIFF_BODY as DIFF_BODY,
)
from rmqctl.rocketmq.kinds_diff import (
    DIFF_MOVED as DIFF_MOVED,
)
from rmqctl.rocketmq.kinds_diff import (
    DIFF_ONLY_A as DIFF_ONLY_A,
)
from rmqctl.rocketmq.kinds_diff import (
    DIFF_ONLY_B as DIFF_ONLY_B,
)
from rmqctl.rocketmq.kinds_diff import (
    DIFF_PROPERTIES as DIFF_PROPERTIES,
)
from rmqctl.rocketmq.kinds_diff import (
    DIFF_QUEUE_ONLY_A as DIFF_QUEUE_ONLY_A,
)
from rmqctl.rocketmq.kinds_diff import (
    DIFF_QUEUE_ONLY_B as DIFF_QUEUE_ONLY_B,
)
from rmqctl.rocketmq.kinds_diff import (
    DIFF_QUEUE_UNIT as DIFF_QUEUE_UNIT,
)
from rmqctl.rocketmq.kinds_diff import (
    DIFF_RECORD as DIFF_RECORD,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_BAD_RECORD as LOG_BAD_RECORD,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_BLANK as LOG_BLANK,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_BODY_CRC as LOG_BODY_CRC,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_COMPRESSION as LOG_COMPRESSION,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_CRC_ZERO as LOG_CRC_ZERO,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_DLEDGER_ENTRY as LOG_DLEDGER_ENTRY,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_EMPTY_BODY as LOG_EMPTY_BODY,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_FILE_LENGTH as LOG_FILE_LENGTH,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_FILE_NAME as LOG_FILE_NAME,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_GAP as LOG_GAP,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_MISSING as LOG_MISSING,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_PHYSICAL_OFFSET as LOG_PHYSICAL_OFFSET,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_PROPERTIES_LOST as LOG_PROPERTIES_LOST,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_PROPERTY_CRC as LOG_PROPERTY_CRC,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_QUEUE_OFFSET as LOG_QUEUE_OFFSET,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_SIZE as LOG_SIZE,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_STALE_TAIL as LOG_STALE_TAIL,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_STORE_TIME as LOG_STORE_TIME,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_TOPIC as LOG_TOPIC,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_TORN_TAIL as LOG_TORN_TAIL,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_V2 as LOG_V2,
)
from rmqctl.rocketmq.kinds_log import (
    LOG_ZERO_FILE as LOG_ZERO_FILE,
)
from rmqctl.rocketmq.kinds_state import (
    CHECKPOINT_AHEAD as CHECKPOINT_AHEAD,
)
from rmqctl.rocketmq.kinds_state import (
    CHECKPOINT_BEHIND as CHECKPOINT_BEHIND,
)
from rmqctl.rocketmq.kinds_state import (
    CHECKPOINT_LENGTH as CHECKPOINT_LENGTH,
)
from rmqctl.rocketmq.kinds_state import (
    CHECKPOINT_MISSING as CHECKPOINT_MISSING,
)
from rmqctl.rocketmq.kinds_state import (
    CHECKPOINT_OFFSET as CHECKPOINT_OFFSET,
)
from rmqctl.rocketmq.kinds_state import (
    CHECKPOINT_ZERO as CHECKPOINT_ZERO,
)
from rmqctl.rocketmq.kinds_state import (
    CONFIG_BACKUP as CONFIG_BACKUP,
)
from rmqctl.rocketmq.kinds_state import (
    CONFIG_CONSUMER_OFFSET as CONFIG_CONSUMER_OFFSET,
)
from rmqctl.rocketmq.kinds_state import (
    CONFIG_DELAY_OFFSET as CONFIG_DELAY_OFFSET,
)
from rmqctl.rocketmq.kinds_state import (
    CONFIG_FALLBACK as CONFIG_FALLBACK,
)
from rmqctl.rocketmq.kinds_state import (
    CONFIG_UNKNOWN_TOPIC as CONFIG_UNKNOWN_TOPIC,
)
from rmqctl.rocketmq.kinds_state import (
    CONFIG_UNREADABLE as CONFIG_UNREADABLE,
)
from rmqctl.rocketmq.kinds_state import (
    FILE_EMPTY as FILE_EMPTY,
)
from rmqctl.rocketmq.kinds_state import (
    FILE_STRAY as FILE_STRAY,
)
from rmqctl.rocketmq.kinds_state import (
    FILE_UNREADABLE as FILE_UNREADABLE,
)
from rmqctl.rocketmq.kinds_state import (
    STORE_ABORT as STORE_ABORT,
)
from rmqctl.rocketmq.kinds_state import (
    STORE_RUNNING as STORE_RUNNING,
)
from rmqctl.rocketmq.kinds_state import (
    TIMER_CHECK as TIMER_CHECK,
)
from rmqctl.rocketmq.kinds_state import (
    TIMER_LOG as TIMER_LOG,
)
