"""The figures of `stats` as one HTML page with plots that needs nothing from anywhere else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from html import escape
from typing import Any

from rmqctl import __version__
from rmqctl.pipeline.stats import Stats

Row = dict[str, Any]
_MOST = 50
_WIDTH, _HEIGHT, _MARGIN = 640, 180, 28
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_STYLE = """
body{font:14px/1.4 system-ui,sans-serif;margin:2rem auto;max-width:76rem;padding:0 1rem;color:#1c2733;background:#fff}
h1{font-size:1.4rem}h2{font-size:1.1rem;margin-top:2rem}table{border-collapse:collapse;width:100%}
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #e3e8ee;white-space:nowrap}
th:first-child,td:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere}
.figures{display:flex;flex-wrap:wrap;gap:1rem}.figures div{background:#f2f5f9;border-radius:6px;padding:.6rem 1rem}
.figures b{display:block;font-size:1.3rem}.plots{display:flex;flex-wrap:wrap;gap:1rem}svg{background:#fafbfd}
rect{fill:#2f6db5}text{fill:#51606f;font-size:10px}
@media(prefers-color-scheme:dark){body{background:#14191f;color:#d8e0e8}th,td{border-color:#2b3541}
.figures div,svg{background:#1d252e}text{fill:#9fb0c0}rect{fill:#5b9be0}}
"""


def page(source: str, stats: Stats) -> str:
    """The page.

    Args:
        source: the store, as the title shows it.
    """
    total = stats.groups["all"][0] if stats.groups["all"] else {}
    parts = [
        "<!doctype html>",
        '<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{escape(source)}</title><style>{_STYLE}</style>",
        f"<h1>{escape(source)}</h1>",
        *_summary(total),
        *_plots(total, stats.groups["hour"]),
        *_table("Topics", ("topic",), stats.groups["topic"]),
        *_table("Queues", ("topic", "queue_id"), stats.groups["queue"]),
        *_table("Tags", ("topic", "tags"), stats.groups["tag"]),
        *_table("Producers", ("born_host",), stats.groups["host"]),
        *_pairs("Messages with a UNIQ_KEY that comes more than once", ("topic", "keys", "messages"), stats.duplicates),
        *_pairs("Most frequent keys", ("key", "topic", "messages"), stats.top_keys),
        f"<p><small>rmqctl {escape(__version__)}. Percentiles are exact to 0.8 %; times are UTC.</small>",
    ]
    return "\n".join(parts) + "\n"


def _summary(total: Row) -> Iterable[str]:
    if not total:
        return ["<p>No message."]
    figures = [
        ("messages", f"{total['messages']:,}"),
        ("of log", _size(total["bytes"])),
        ("median size", _size(total["size_p50"])),
        ("size, 99 %", _size(total["size_p99"])),
        ("born to stored, median", _span(total["latency_p50_ms"])),
        ("born to stored, 99 %", _span(total["latency_p99_ms"])),
        ("compression", f"{total['compression_ratio'] or 1:g}"),
        ("bodies with a wrong CRC", f"{total['bad_crc']:,}"),
    ]
    return ['<div class="figures">', *(f"<div><b>{escape(v)}</b>{escape(k)}</div>" for k, v in figures), "</div>"]


def _plots(total: Row, hours: Sequence[Row]) -> Iterable[str]:
    if not total:
        return []
    sizes = [(_size(b["from"]), b["messages"]) for b in total["size_histogram"]]
    waits = [(_span(b["from"]), b["messages"]) for b in total["latency_histogram_ms"]]
    times = [(_hour(row["hour_timestamp"]), row["messages"]) for row in hours]
    return [
        '<div class="plots">',
        _bars("Messages by size", sizes),
        _bars("Messages by time from born to stored", waits),
        _bars("Messages by hour", times),
        "</div>",
    ]


def _bars(title: str, values: Sequence[tuple[str, int]]) -> str:
    """A bar chart as SVG; each bar tells its numbers when pointed at."""
    values = _thinned(values)
    highest, step = max((n for _, n in values), default=1) or 1, (_WIDTH - 2 * _MARGIN) / max(len(values), 1)
    room, every = _HEIGHT - 2 * _MARGIN, max(len(values) // 8, 1)
    shapes = []
    for i, (label, count) in enumerate(values):
        height, x = room * count / highest, _MARGIN + i * step
        shapes.append(
            f'<rect x="{x:.1f}" y="{_MARGIN + room - height:.1f}" width="{max(step - 1, 0.5):.1f}" '
            f'height="{height:.1f}"><title>{escape(label)}: {count:,}</title></rect>'
        )
        if i % every == 0:
            shapes.append(f'<text x="{x:.1f}" y="{_HEIGHT - 10}">{escape(label)}</text>')
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg width="{_WIDTH}" height="{_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}"><text x="2" y="{_MARGIN - 8}">{highest:,}</text>{"".join(shapes)}</svg></figure>'
    )


def _thinned(values: Sequence[tuple[str, int]], most: int = 240) -> Sequence[tuple[str, int]]:
    """Neighbours added up where there are more bars than can be told apart."""
    width = -(-len(values) // most)
    if width <= 1:
        return values
    return [(values[i][0], sum(n for _, n in values[i : i + width])) for i in range(0, len(values), width)]


def _table(title: str, names: Sequence[str], rows: Sequence[Row]) -> Iterable[str]:
    if not rows:
        return
    largest = sorted(rows, key=lambda row: -row["messages"])
    yield f"<h2>{escape(title)}</h2>"
    yield _head([" / ".join(names), "messages", "bytes", "size 50 %", "99 %", "born to stored 50 %", "99 %", "packed"])
    for row in largest[:_MOST]:
        name = " / ".join("none" if row[n] is None else str(row[n]) for n in names)
        ratio = row["compression_ratio"]
        yield _line(
            [name, f"{row['messages']:,}", _size(row["bytes"]), _size(row["size_p50"]), _size(row["size_p99"]),
             _span(row["latency_p50_ms"]), _span(row["latency_p99_ms"]), "" if ratio is None else f"{ratio:g}"]
        )  # fmt: skip
    yield "</table>"
    if len(largest) > _MOST:
        yield f"<p>The largest {_MOST} of {len(largest):,}."


def _pairs(title: str, names: Sequence[str], rows: Sequence[Row]) -> Iterable[str]:
    if not rows:
        return
    yield f"<h2>{escape(title)}</h2>"
    yield _head(names)
    for row in rows[:_MOST]:
        yield _line([f"{row[n]:,}" if isinstance(row[n], int) else str(row[n]) for n in names])
    yield "</table>"


def _head(names: Iterable[str]) -> str:
    return "<table><tr>" + "".join(f"<th>{escape(name)}</th>" for name in names) + "</tr>"


def _line(cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>"


def _size(count: int | None) -> str:
    if count is None:
        return ""
    amount, unit = float(count), 0
    while amount >= 1024 and unit < len(_UNITS) - 1:
        amount, unit = amount / 1024, unit + 1
    return f"{amount:.0f} {_UNITS[unit]}" if amount.is_integer() or amount >= 100 else f"{amount:.1f} {_UNITS[unit]}"


def _span(milliseconds: int | None) -> str:
    if milliseconds is None:
        return ""
    return f"{milliseconds} ms" if milliseconds < 1000 else f"{milliseconds / 1000:.1f} s"


def _hour(milliseconds: int | None) -> str:
    return "" if milliseconds is None else f"{datetime.fromtimestamp(milliseconds / 1000, UTC):%m-%d %H:00}"
