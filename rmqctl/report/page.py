"""The document of a report as one page: no request leaves it, nothing in a store becomes markup or script."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from importlib.resources import files
from typing import Any

from rmqctl.answer import Row
from rmqctl.errors import MissingExtra, WrongUsage
from rmqctl.notices import queue_of
from rmqctl.pipeline.stats import Stats
from rmqctl.pipeline.stats_page import FIGURES_STYLE, figures, size_text
from rmqctl.report.picture import forecast, picture, shares, side_by_side, strips
from rmqctl.text import instant, json_bytes, number_of, typed

_POLICY = "base-uri 'none'; form-action 'none'"
_UNSAFE = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def page(document: Row) -> str:
    """Return the page of a document.

    Raises:
        MissingExtra: Jinja2 is not installed.
        WrongUsage: the document is not one that :func:`rmqctl.report.collect` makes.
    """
    try:
        from jinja2 import Environment, FunctionLoader, StrictUndefined, TemplateError
        from markupsafe import Markup
    except ImportError:
        raise MissingExtra("writing a page", "report") from None

    style, script = FIGURES_STYLE + _part("page.css"), _part("page.js")
    environment = Environment(
        loader=FunctionLoader(_part), autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters |= {
        "instant": _moment, "number": _number, "size": size_text, "count": number_of, "queue": queue_of, "cell": _cell,
        "hex": lambda digits: " ".join(digits[at : at + 2] for at in range(0, len(digits), 2)),
    }  # fmt: skip
    environment.globals |= {"typed": typed, "columns": _columns}
    try:
        shown = [
            {
                **store,
                "strips": strips(store),
                "picture": picture(store),
                "shares": shares(store),
                "forecast": forecast(store),
                "plots": Markup(_plots(store)),  # noqa: S704 - escaped there
            }
            if "doctor" in store
            else store
            for store in document["stores"]
        ]
        pictures = [store.get("picture") for store in shown]
        if document["replicas"]:
            pictures.append(side_by_side(document["stores"], document["differences"]))
        return environment.get_template("page.html").render(
            report=document,
            stores=shown,
            policy=f"default-src 'none'; style-src {_hash(style)}; script-src {_hash(script)}; {_POLICY}",
            style=Markup(style),  # noqa: S704 - ours
            script=Markup(script),  # noqa: S704 - ours
            data=Markup(_json({"document": document, "pictures": pictures})),  # noqa: S704 - escaped there
        )
    except (LookupError, TypeError, AttributeError, ValueError, TemplateError) as error:
        raise WrongUsage("PATH", f"is no whole report: {type(error).__name__} {error}.") from error


def _part(name: str) -> str:
    return files("rmqctl.report").joinpath("parts", name).read_text("utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def _json(value: Any) -> str:
    """Return JSON that may stand in a script element."""
    text = json_bytes(value).decode()
    for char, escape in _UNSAFE.items():
        text = text.replace(char, escape)
    return text


def _plots(store: Row) -> str:
    found = store.get("figures")
    if not found:
        return ""
    columns = {name: tuple(names) for name, names in found["columns"].items()}
    return "\n".join(figures(Stats(**{**found, "columns": columns})))


# --- cells ------------------------------------------------------------------------------------------


def _columns(rows: list[Row]) -> list[str]:
    """Return the columns of rows that say anything, in their order."""
    names = dict.fromkeys(name for row in rows for name in row)
    return [name for name in names if name != "kind" and any(row.get(name) not in (None, "", []) for row in rows)]


def _cell(value: Any, name: str) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return _moment(value) if name.endswith(("timestamp", "last_update")) else f"{value:,}"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value))
    return json_bytes(value).decode() if isinstance(value, Mapping) else str(value)


def _moment(milliseconds: int | None) -> str:
    return "" if milliseconds is None or milliseconds < 0 else instant(milliseconds)


def _number(value: int | None) -> str:
    return "" if value is None else f"{value:,}"
