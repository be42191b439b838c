"""The table of docs/internals/losses.md: what brokers lose on each damaged variant by their own recovery, and what a repair loses.

Brokers: messages that the recovery oracle could read after the start, against the store without damage. Repair:
messages that the plan gives up, or that were gone before it. Type: ``python -m tests.rocketmq.repair.losses_table``.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from fixtures import damage, golden
from rmqctl.rocketmq.repair.plan import RepairOptions, overlaid, plan_repair
from rmqctl.rocketmq.store.locate import open_store_at
from tests.rocketmq.repair.mend_variants_helpers import lost_records


def broker_lost(release: str, name: str) -> str:
    """Messages that the real broker could no longer serve after it started, or why it did not."""
    variants = golden.recovery_oracle(release)["variants"]
    found: dict[str, Any] = variants[name]["result"]
    if found["outcome"] != "started":
        return "does not start"
    sound = variants[f"{name.partition('/')[0]}/none"]["result"]["readAll"]["total"]
    return str(max(sound - found["readAll"]["total"], 0))


def repair_lost(base: str, recipe: Sequence[dict[str, Any]], root: Path) -> int:
    """Records that are not there byte for byte after the repair."""
    damage.apply(recipe, root)
    try:
        store = open_store_at(str(root), broker_conf=str(golden.write_broker_conf(base, root.parent / "broker.conf")))
        with tempfile.TemporaryDirectory() as directory:
            plan = plan_repair(store, RepairOptions(), Path(directory)).plan
            return len(lost_records(base, overlaid(store, plan.edits)))
    finally:
        damage.undo(recipe, golden.pristine(base), root)


def rows(release: str, part: str = "") -> Iterator[str]:
    """Lines of the table for one release; only variants with ``part`` in their name."""
    with tempfile.TemporaryDirectory() as directory:
        roots = {state: golden.unpack(f"{release}-{state}", Path(directory)) for state in ("clean", "crash")}
        for name, variant in golden.recovery_oracle(release)["variants"].items():
            if part not in name:
                continue
            state = name.partition("/")[0]
            lost = repair_lost(f"{release}-{state}", variant["recipe"], roots[state])
            yield f"| {name} | {broker_lost(release, name)} | {lost} |"


def main() -> None:
    """Print the table of one release, 5.5.0 unless another is named; a second word picks variants."""
    words = sys.argv[1:]
    release, part = words[0] if words else "5.5.0", words[1] if len(words) > 1 else ""
    print(f"| Variant of {release} | lost by the broker's recovery | lost after `repair --apply` |\n|---|---|---|")
    for line in rows(release, part):
        print(line, flush=True)


if __name__ == "__main__":
    main()
