"""What a Java consumer gets of transactions that an index lists as aborted and no marker in the log ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.judge import has_java
from tests.interop.kafka_node import Brokers
from tests.interop.kafka_produced_helpers import SETTINGS
from tests.interop.test_kafka_repaired import ISOLATIONS, rows_of
from tests.kafka.state.listed_aborts_helpers import CASES, PARTITION, listed

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(not has_java(), reason="mvn, java or javac is not on the PATH"),
]


def test_a_consumer_passes_over_what_an_index_lists(tmp_path: Path, compiled: Path) -> None:
    topic, _, number = PARTITION.rpartition("-")
    with Brokers("4.3.1", compiled, **SETTINGS) as brokers:
        for case, hidden in CASES.items():
            root = listed(case, tmp_path / case.replace(" ", "-"))
            expected = {committed: rows_of(root, committed=committed) for committed in ISOLATIONS}
            assert brokers.start(root) == "started"
            try:
                for committed, isolation in ISOLATIONS.items():
                    got = {(row[0], row[1], row[2]): repr(row) for row in brokers.ask("everything", isolation)}
                    assert got == expected[committed], (case, isolation)
                    here = {offset for name, at, offset in got if (name, at) == (topic, int(number))}
                    assert hidden & here == (set() if committed else hidden)
            finally:
                brokers.stop()
