"""Everything that can be wrong with a Kafka log directory: importing this puts all of it in the table."""

from __future__ import annotations

from rmqctl.kafka.findings import derived as derived
from rmqctl.kafka.findings import directory as directory
from rmqctl.kafka.findings import log as log
