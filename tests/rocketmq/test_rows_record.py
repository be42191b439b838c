"""The row of one record, made without NumPy, against the rows that a dump makes of whole blocks."""

from __future__ import annotations

import subprocess
import sys

import pytest

from fixtures import golden
from rmqctl.rocketmq.dump.dump import Dump
from rmqctl.rocketmq.dump.log import Request
from rmqctl.rocketmq.dump.record import RecordRows, RowOptions
from rmqctl.rocketmq.log.record import LogReader
from rmqctl.rocketmq.store.locate import open_store_at


@pytest.mark.parametrize("name", ["4.9.8-clean", "5.5.0-clean"])
@pytest.mark.parametrize(
    "show", [RowOptions(), RowOptions(body=True, body_limit=40), RowOptions(raw_body=True, redact=True)]
)
def test_every_record_has_the_row_of_the_dump(name: str, show: RowOptions) -> None:
    store = open_store_at(str(golden.pristine(name)))
    bases = {file.name: file.base for file in store.log_files}
    with LogReader(store.log_files) as log:
        for row in Dump.of_store(store, Request(show=show)).rows():
            if row["kind"] == "message":
                fields = log.fields(bases[row["file"]] + row["position"])
                assert fields is not None
                assert RecordRows(show).row(fields, row["file"], row["position"]) == row


def test_numpy_stays_out() -> None:
    code = (
        "import sys, rmqctl.rocketmq.store.locate, rmqctl.rocketmq.log.record, rmqctl.rocketmq.dump.record;"
        "sys.exit('numpy' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
