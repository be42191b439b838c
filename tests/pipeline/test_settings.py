"""What Spark is told, by where it runs and how much there is to read."""

from __future__ import annotations

import tempfile

import pytest

from rmqctl.pipeline import Cluster
from rmqctl.pipeline.settings import settings

SOCKETS, CODE = "spark.python.unix.domain.socket.enabled", "spark.sql.codegen.factoryMode"


def test_a_short_local_job_starts_quickly() -> None:
    short, long, unknown = (settings(Cluster(log_bytes=size)) for size in (1 << 30, 1 << 31, None))
    assert short[CODE] == "NO_CODEGEN"
    assert short["spark.sql.shuffle.partitions"] == "1"
    for found in (long, unknown):
        assert CODE not in found
        assert found["spark.sql.shuffle.partitions"] == "200"


def test_shuffles_of_large_logs_have_partitions_of_a_gib() -> None:
    assert settings(Cluster(log_bytes=1000 << 30))["spark.sql.shuffle.partitions"] == "1000"


def test_sockets_only_where_their_names_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/tmp")
    assert settings(Cluster())[SOCKETS] == "true"
    assert SOCKETS not in settings(Cluster("spark://host:7077"))
    monkeypatch.setattr(tempfile, "gettempdir", lambda: "/" + "x" * 80)
    assert SOCKETS not in settings(Cluster())


def test_what_the_user_sets_wins() -> None:
    given = {SOCKETS: "false", CODE: "FALLBACK", "spark.driver.host": "10.0.0.1"}
    found = settings(Cluster(conf=given, log_bytes=0))
    assert {name: found[name] for name in given} == given
