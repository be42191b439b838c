"""The page of `stats`: what it was made of, and bars that hold every message once."""

from __future__ import annotations

import re
from collections import Counter
from datetime import UTC, datetime
from html.parser import HTMLParser
from typing import Any

import pytest

from fixtures import golden
from rmqctl.pipeline import stats, stats_page
from rmqctl.pipeline.stats import STEPS_MS, Stats, StatsTable
from rmqctl.tables import tables_of
from tests.pipeline import truths

STORE = "5.5.0-clean"
ABOUT = stats_page.About(
    "/data/<store> on host", 5 << 20, "--topic A&B", "Spark, yarn", datetime(2026, 11, 22, tzinfo=UTC)
)
_PIECE = re.compile(r"<title>(.*?), ([^,]*?): ([\d,]+)</title>")


@pytest.fixture(scope="module")
def figures() -> Stats:
    return stats.collect_here(tables_of("rocketmq", {"path": str(golden.pristine(STORE))}), keys=False)


def charts(page: str) -> list[str]:
    return re.findall(r"<figure>.*?</figure>", page, re.DOTALL)


def test_each_chart_holds_every_message_by_topic(figures: Stats) -> None:
    truth = truths.expected(STORE)
    records = Counter(row["topic"] for row in truth)
    messages = Counter(row["topic"] for row in truth for _ in range(truths.messages_of(row)))
    assert messages.total() > records.total()
    largest = [row["topic"] for row in sorted(figures.groups["topic"], key=lambda row: -row["messages"])][:8]
    found = charts(stats_page.page(ABOUT, figures))
    assert len(found) == 3
    for chart, by_topic, of in zip(
        found, (messages, records, records), ("messages", "records", "records"), strict=True
    ):
        expected = Counter({topic: by_topic[topic] for topic in largest})
        expected["other topics"] = by_topic.total() - expected.total()
        counts: Counter[str] = Counter()
        for _, topic, count in _PIECE.findall(chart):
            counts[topic] += int(count.replace(",", ""))
        assert counts == expected
        assert 'viewBox="0 0 1200 260"' in chart
        assert f">{of}</text>" in chart


def test_a_short_store_has_fine_bars(figures: Stats) -> None:
    times: Counter[int] = Counter()
    for row in truths.expected(STORE):
        times[round(row["store_timestamp"].timestamp() * 1000) // 1000 * 1000] += truths.messages_of(row)
    assert figures.step_ms == 1000
    assert Counter(row["time"] for row in figures.timeline for _ in range(row["messages"])) == times
    assert "1 second a bar" in stats_page.page(ABOUT, figures)


def test_the_step_follows_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    store = tables_of("rocketmq", {"path": str(golden.pristine(STORE))})
    first = round(truths.expected(STORE)[0]["store_timestamp"].timestamp() * 1000)
    for span, step in ((0, 1000), (199_999, 1000), (200_000, 10_000), (86_400_000, 600_000), (10**13, STEPS_MS[-1])):
        end = type("End", (), {"store_timestamp": first + span})()
        monkeypatch.setattr("rmqctl.rocketmq.tables.tables.log_end", lambda _, end=end: end)
        assert StatsTable(store.figures()).step_ms == step


def test_what_it_says_of_itself(figures: Stats) -> None:
    page = stats_page.page(ABOUT, figures)
    assert "Made 2026-11-22 00:00:00 UTC by rmqctl" in page
    assert "(Spark, yarn) of 5 MiB of log, --topic A&amp;B." in page
    assert "/data/&lt;store&gt; on host" in page

    class Strict(HTMLParser):
        def handle_starttag(self, tag: str, attrs: Any) -> None:
            assert tag != "script"
            assert not {"src", "href"} & {name for name, _ in attrs}

    Strict().feed(page)


def test_of_many_topics_the_smaller_are_one(figures: Stats) -> None:
    rows = [{**figures.groups["topic"][0], "topic": f"t{n}", "messages": 100 - n} for n in range(30)]
    moments = [{"time": 1000 * n, "topic": f"t{n}", "messages": 100 - n} for n in range(30)]
    many = Stats({**figures.groups, "topic": rows}, [], [], moments, 1000, figures.columns)
    chart = charts(stats_page.page(ABOUT, many))[0]
    counts = Counter[str]()
    for _, topic, count in _PIECE.findall(chart):
        counts[topic] += int(count)
    assert len(counts) == 9
    assert counts["other topics"] == sum(100 - n for n in range(8, 30))


def test_a_clock_that_went_wrong_makes_no_endless_page(figures: Stats) -> None:
    moments = [{"time": at, "topic": "a", "messages": 1} for at in (0, 10**12, 253_402_300_799_000)]
    page = stats_page.page(ABOUT, Stats(figures.groups, [], [], moments, 1000, figures.columns))
    assert len(page) < 200_000


@pytest.mark.parametrize(
    ("highest", "expected"),
    [
        (1, [0, 1]),
        (4, [0, 1, 2, 3, 4]),
        (7, [0, 2, 4, 6, 8]),
        (23, [0, 5, 10, 15, 20, 25]),
        (934, [0, 200, 400, 600, 800, 1000]),
    ],
)
def test_ticks(highest: int, expected: list[int]) -> None:
    assert stats_page._ticks(highest) == expected


def test_a_page_of_kafka() -> None:
    found = stats.collect_here(tables_of("kafkalog", {"path": str(golden.pristine("4.3.1-clean"))}), keys=False)
    page = stats_page.page(ABOUT, found)
    assert "<h2>Compression</h2>" in page
    assert "topic / partition" in page
    assert "born to stored, median" not in page
