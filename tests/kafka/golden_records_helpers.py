"""What tests share with test_golden_records: truth_by_file."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from fixtures import golden

Truth = dict[str, list[tuple[dict[str, Any], list[dict[str, Any]]]]]


def truth_by_file(name: str) -> Truth:
    found: Truth = defaultdict(list)
    for line in golden.truth(name):
        if line["t"] == "batch":
            found[line["file"]].append((line, []))
            current = found[line["file"]][-1][1]
        else:
            assert line["t"] == "record"
            current.append(line)
    return found
