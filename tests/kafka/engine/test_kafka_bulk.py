"""The bulk path against records that are sent one by one: the same bytes in every log, whatever the template."""

from __future__ import annotations

import tempfile
from collections import deque
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqctl.kafka.engine.config import EngineConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.producer import bulk
from rmqctl.kafka.producer.bulk import can_bulk, produce_bulk
from rmqctl.kafka.producer.drafts import Template, counted
from rmqctl.kafka.producer.produce import STICKY, ProduceOptions, make_topics, produce
from rmqctl.kafka.query.key import partition_of_key, partitions_of_keys

START = 1_700_000_000_000

templates = st.builds(
    Template,
    key=st.sampled_from([None, "k", "k{n}", "order-{n}-{n}", "ä{n}", ""]),
    value=st.sampled_from([None, "text {n}", "x" * 90]),
    sizes=st.sampled_from([None, (0, 0), (30, 30)]),
    headers=st.sampled_from([(), (("h", "v{n}"), ("h{n}", ""))]),
    tombstone=st.booleans(),
    start=st.sampled_from([None, START]),
    step=st.sampled_from([0, 3]),
)
asked = st.builds(
    ProduceOptions,
    topics=st.just(("T",)),
    partitions=st.integers(1, 4),
    partition=st.sampled_from([None, None, 0]),
    partitioner=st.sampled_from(["murmur2", "murmur2", STICKY]),
    batch=st.sampled_from([None, None, 1, 7]),
    batch_size=st.sampled_from([1, 300, 1000, 16 << 10]),
)


@settings(max_examples=60, deadline=None)
@given(templates, asked, st.sampled_from([0, 1, 10, 99, 1203]), st.sampled_from([17, 1 << 16]))
def test_the_bytes_of_records_sent_one_by_one(
    template: Template, options: ProduceOptions, count: int, dealt: int
) -> None:
    logs = []
    with tempfile.TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(bulk, "_DEALT", dealt)
        for name in ("bulk", "single"):
            root = Path(directory) / name
            with KafkaEngine.open(root, EngineConfig(clock=lambda: START, seed=1)) as engine:
                make_topics(engine, options)
                for _ in range(2):  # the second run goes on in logs that are there
                    if name == "bulk" and can_bulk(engine, template, options):
                        assert sum(run.records for run in produce_bulk(engine, template, count, options)) == count
                    else:
                        deque(produce(engine, counted(template, count), options), 0)
            logs.append({p.relative_to(root): p.read_bytes() for p in sorted(root.glob("T-*/*.log"))})
    assert logs[0] == logs[1]


def test_keys_go_to_many_partitions_in_bulk(tmp_path: Path) -> None:
    template, options = Template(key="k{n}", sizes=(20, 20)), ProduceOptions(("T",), partitions=5)
    with KafkaEngine.open(tmp_path, EngineConfig(clock=lambda: START)) as engine:
        make_topics(engine, options)
        assert can_bulk(engine, template, options)
        runs = list(produce_bulk(engine, template, 30_000, options))
        assert len(runs) < 200, "one by one"
        assert sum(engine.log("T", part).end for part in range(5)) == 30_000
        assert not can_bulk(engine, Template(key="k{n}", sizes=(20, 20), start=START), options)


@pytest.mark.parametrize("size", range(14))
def test_partitions_of_keys(size: int) -> None:
    draw = Random(size)
    keys = [draw.randbytes(size) for _ in range(300)]
    matrix = np.frombuffer(b"".join(keys), np.uint8).reshape(300, size)
    for partitions in (1, 7, 65_535):
        assert partitions_of_keys(matrix, partitions).tolist() == [partition_of_key(k, partitions) for k in keys]
