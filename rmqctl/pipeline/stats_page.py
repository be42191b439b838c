"""The figures of `stats` as one HTML page with plots that needs nothing from anywhere else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

from rmqctl import __version__
from rmqctl.pipeline.stats import Stats

Row = dict[str, Any]
_MOST, _TOPICS, _BARS = 50, 8, 240
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 1200, 260, 70, 10, 12, 46
_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_OTHERS = "other topics"
_COLOURS = ["#2f6db5", "#d9822b", "#3f9b5f", "#b5413f", "#7d5fb2", "#8a6d4b", "#c766a6", "#3aa6b0", "#8b96a1"]
_STYLE = """
body{font:14px/1.4 system-ui,sans-serif;margin:1.5rem;color:#1c2733;background:#fff}
h1{font-size:1.4rem;margin-bottom:.2rem}h2{font-size:1.1rem;margin-top:2rem}
@media(prefers-color-scheme:dark){body{background:#14191f;color:#d8e0e8}}
"""
FIGURES_STYLE = """
table{border-collapse:collapse;width:100%}
th,td{padding:.2rem .6rem;text-align:right;border-bottom:1px solid #e3e8ee;white-space:nowrap}
th:first-child,td:first-child{text-align:left;white-space:normal;overflow-wrap:anywhere}
.figures{display:flex;flex-wrap:wrap;gap:1rem}
.figures div{background:#f2f5f9;border-radius:6px;padding:.6rem 1rem;flex:1}
.figures b{display:block;font-size:1.3rem}figure{margin:1.2rem 0}figcaption{font-weight:600}
svg{width:100%;height:auto;background:#fafbfd}line{stroke:#d4dbe3}
text{fill:#51606f;font-size:12px}.y{text-anchor:end}.x{text-anchor:middle}
.legend span{margin-right:1.2rem;white-space:nowrap}
.legend svg{width:.8rem;height:.8rem;margin-right:.3rem}
@media(prefers-color-scheme:dark){th,td{border-color:#2b3541}
.figures div,svg{background:#1d252e}text{fill:#9fb0c0}line{stroke:#33404d}}
"""


@dataclass(frozen=True, slots=True)
class About:
    """What a page was made of.

    Attributes:
        source: the store.
        size: bytes of its log.
        filters: that chose the messages, in words; "" for all.
        engine: what made the figures.
        made: when.
    """

    source: str
    size: int
    filters: str
    engine: str
    made: datetime


def page(about: About, stats: Stats) -> str:
    """Return the page."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">',
        f"<title>{escape(about.source)}</title><style>{_STYLE}{FIGURES_STYLE}</style>",
        f"<h1>{escape(about.source)}</h1>",
        f"<p>{escape(_origin(about))}",
        *figures(stats),
    ]
    return "\n".join(parts) + "\n"


def figures(stats: Stats) -> Iterable[str]:
    """Return the figures as parts of a page: numbers, plots, tables; :data:`FIGURES_STYLE` is their style."""
    total = stats.groups["all"][0] if stats.groups["all"] else {}
    return [
        *_summary(total),
        *_plots(total, stats),
        *(
            line
            for by, title in _TITLES.items()
            if by in stats.columns and by in stats.groups
            for line in _table(title, stats.columns[by], stats.groups[by])
        ),
        *_pairs("Records with a UNIQ_KEY that comes more than once", ("topic", "keys", "records"), stats.duplicates),
        *_pairs("Most frequent keys", ("key", "topic", "records"), stats.top_keys),
        "<p><small>Percentiles are exact to 0.8 %; times are UTC.</small>",
    ]


_TITLES = {
    "topic": "Topics", "queue": "Queues", "tag": "Tags", "host": "Producers", "compression": "Compression",
    "producer": "Producers",
}  # fmt: skip
"""Groups that have a table, in their order; a family has some of them."""


def _origin(about: About) -> str:
    made = f"{about.made.astimezone(UTC):%Y-%m-%d %H:%M:%S}"
    of = f"{size_text(about.size)} of log, {about.filters or 'all messages'}"
    return f"Made {made} UTC by rmqctl {__version__} ({about.engine}) of {of}."


def _summary(total: Row) -> Iterable[str]:
    if not total:
        return ["<p>No message."]
    figures = [
        ("messages", f"{total['messages']:,}"),
        *([("records", f"{total['records']:,}")] if total["records"] != total["messages"] else []),
        ("of log", size_text(total["bytes"])),
        ("median size", size_text(total["size_p50"])),
        ("size, 99 %", size_text(total["size_p99"])),
        *([] if total["latency_p50_ms"] is None else _waited(total)),
        ("compression", f"{total['compression_ratio'] or 1:g}"),
        ("bodies with a wrong CRC", f"{total['bad_crc']:,}"),
    ]
    return ['<div class="figures">', *(f"<div><b>{escape(v)}</b>{escape(k)}</div>" for k, v in figures), "</div>"]


def _waited(total: Row) -> list[tuple[str, str]]:
    return [
        ("born to stored, median", _span(total["latency_p50_ms"])),
        ("born to stored, 99 %", _span(total["latency_p99_ms"])),
    ]


Series = dict[str, dict[int, int]]
"""Messages by topic and place on the axis."""


def _plots(total: Row, stats: Stats) -> Iterable[str]:
    if not total:
        return []
    largest = [row["topic"] for row in sorted(stats.groups["topic"], key=lambda row: -row["messages"])]
    shown = largest if len(largest) <= _TOPICS + 1 else largest[:_TOPICS]
    legend = shown if shown == largest else [*shown, _OTHERS]
    times: Series = {}
    for row in stats.timeline:
        _add(times, row["topic"] if row["topic"] in shown else _OTHERS, row["time"], row["messages"])
    step, times = _widened(times, stats.step_ms)
    moments = sorted({at for counts in times.values() for at in counts})
    axis = range(moments[0], moments[-1] + 1, step) if moments else ()
    day = f"UTC, from {datetime.fromtimestamp(moments[0] / 1000, UTC):%Y-%m-%d}" if moments else "UTC"
    return [
        '<p class="legend">',
        *(
            f'<span><svg viewBox="0 0 1 1"><rect width="1" height="1" fill="{_COLOURS[i]}"/></svg>{escape(name)}</span>'
            for i, name in enumerate(legend)
        ),
        _bars(
            f"Messages by store time, {_step(step)} a bar",
            day,
            [(at, _moment(at, step)) for at in axis],
            times,
            legend,
            "messages",
        ),
        *(
            _bars(title, label, *_powers(stats.groups["topic"], key, shape, shown), legend, "records")
            for title, label, key, shape in (
                ("Records by size", "size from", "size_histogram", size_text),
                ("Records by time from born to stored", "time from", "latency_histogram_ms", _span),
            )
            if total.get(key)
        ),
    ]


def _add(series: Series, name: str, at: int, messages: int) -> None:
    counts = series.setdefault(name, {})
    counts[at] = counts.get(at, 0) + messages


def _widened(times: Series, step: int) -> tuple[int, Series]:
    """Return steps added up where there are more than a chart can show: a clock that went wrong makes a long time."""
    places = [at for counts in times.values() for at in counts]
    bars = (max(places) - min(places)) // step + 1 if places else 0
    wide = step * -(-bars // _BARS) if bars > _BARS else step
    made: Series = {}
    for name, counts in times.items():
        for at, messages in counts.items():
            _add(made, name, at // wide * wide, messages)
    return wide, made


def _powers(rows: Sequence[Row], key: str, shape: Any, shown: Sequence[str]) -> tuple[list[tuple[int, str]], Series]:
    """Bars of powers of two, each as wide as the others."""
    found: Series = {}
    for row in rows:
        for bar in row[key]:
            _add(
                found,
                row["topic"] if row["topic"] in shown else _OTHERS,
                int(bar["from"]).bit_length(),
                bar["records"],
            )
    places = [at for counts in found.values() for at in counts]
    axis = range(min(places), max(places) + 1) if places else ()
    return [(at, shape(1 << at >> 1)) for at in axis], found


def _bars(
    title: str, label: str, axis: Sequence[tuple[int, str]], series: Series, legend: Sequence[str], of: str
) -> str:
    """Return a bar chart as SVG, topics on top of each other; each piece shows its numbers when pointed at."""
    highest = max((sum(counts.get(at, 0) for counts in series.values()) for at, _ in axis), default=1)
    ticks = _ticks(highest)
    width, room = (_WIDTH - _LEFT - _RIGHT) / max(len(axis), 1), _HEIGHT - _TOP - _BOTTOM
    base, every = _TOP + room, max(-(-len(axis) * 90 // _WIDTH), 1)
    shapes = []
    for tick in ticks:
        y = base - room * tick / ticks[-1]
        shapes.append(f'<line x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        shapes.append(f'<text class="y" x="{_LEFT - 6}" y="{y + 4:.1f}">{tick:,}</text>')
    for number, (at, name) in enumerate(axis):
        x, y = _LEFT + number * width, float(base)
        for colour, topic in zip(_COLOURS, legend, strict=False):
            count = series.get(topic, {}).get(at, 0)
            if count:
                height = room * count / ticks[-1]
                y -= height
                shapes.append(
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width - 1, 0.5):.1f}" height="{max(height, 0.5):.1f}" '
                    f'fill="{colour}"><title>{escape(name)}, {escape(topic)}: {count:,}</title></rect>'
                )
        if number % every == 0:
            shapes.append(f'<text class="x" x="{x + width / 2:.1f}" y="{base + 16}">{escape(name)}</text>')
    shapes.append(f'<text class="x" x="{(_LEFT + _WIDTH) / 2:.0f}" y="{_HEIGHT - 8}">{escape(label)}</text>')
    shapes.append(f'<text class="x" transform="translate(14 {_TOP + room / 2:.0f}) rotate(-90)">{of}</text>')
    return (
        f'<figure><figcaption>{escape(title)}</figcaption><svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{escape(title)}">{"".join(shapes)}</svg></figure>'
    )


def _ticks(highest: int) -> list[int]:
    """Round numbers from zero to the first that is not below the highest, four to six of them where there can be."""
    power = 10 ** max(len(str(highest)) - 2, 0)
    step = next(unit * power for unit in (1, 2, 5, 10, 20, 50) if unit * power * 5 >= highest)
    return list(range(0, highest + step, step))


def _step(milliseconds: int) -> str:
    for size, name in ((86_400_000, "day"), (3_600_000, "hour"), (60_000, "minute"), (1000, "second")):
        if milliseconds % size == 0:
            count = milliseconds // size
            return f"{count} {name}{'s' if count != 1 else ''}"
    return f"{milliseconds} ms"


def _moment(milliseconds: int, step: int) -> str:
    moment = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return (
        f"{moment:%H:%M:%S}"
        if step < 60_000
        else f"{moment:%m-%d %H:%M}"
        if step < 86_400_000
        else f"{moment:%Y-%m-%d}"
    )


def _table(title: str, names: Sequence[str], rows: Sequence[Row]) -> Iterable[str]:
    if not rows:
        return
    largest = sorted(rows, key=lambda row: -row["messages"])
    yield f"<h2>{escape(title)}</h2>"
    yield _head([" / ".join(names), "messages", "bytes", "size 50 %", "99 %", "born to stored 50 %", "99 %", "packed"])
    for row in largest[:_MOST]:
        name = " / ".join("none" if row[n] is None else str(row[n]) for n in names)
        ratio = row["compression_ratio"]
        sizes = (size_text(row[n]) for n in ("bytes", "size_p50", "size_p99"))
        packed = "" if ratio is None else f"{ratio:g}"
        waited = (_span(row[n]) for n in ("latency_p50_ms", "latency_p99_ms"))
        yield _line([name, f"{row['messages']:,}", *sizes, *waited, packed])
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


def size_text(count: int | None) -> str:
    """Return a number of bytes in binary units."""
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
