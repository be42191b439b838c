"""Every kind of finding in a Kafka log directory, by the area that it is about."""

from __future__ import annotations

from rmqctl.kafka.kinds_derived import *  # noqa: F403
from rmqctl.kafka.kinds_directory import *  # noqa: F403
from rmqctl.kafka.kinds_log import *  # noqa: F403
