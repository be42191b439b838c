"""Record what released classes answer, for tests that run without Java: ``python -m tests.interop.record``.

Writes ``fixtures/interop/<release>.recovery.json.xz``: for each seed the golden store, the recipe, and what the start came to; and
``<release>.answers.json.xz``: random questions to the golden stores, each with the answer.
"""

from __future__ import annotations

import json
import lzma
import random
import tempfile
from pathlib import Path
from typing import Any

from fixtures import golden
from fixtures.random_damage import Damager
from tests.interop.brokers_helpers import known_of, started
from tests.interop.judge import RELEASES, Judge, class_path, settings_of
from tests.interop.questions import questions
from tests.interop.recovered import base_of

DIRECTORY = Path(__file__).parents[2] / "fixtures" / "interop"
SEEDS = {release: range(96) for release in RELEASES} | {release: range(48) for release in ("4.5.2", "5.1.4", "5.3.3")}
FOUND = {"5.5.0": (185, 221)}
"""Seeds that once showed a mistake of the replay."""
AT_ONCE, QUESTIONS = 24, 150


def main() -> None:
    """Ask the classes of each release."""
    for release in SEEDS:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
            cases = recovery(release, Path(work))
        write(f"{release}.recovery.json.xz", cases)
    for release in RELEASES:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as work:
            write(f"{release}.answers.json.xz", answers(release, Path(work)))


def write(name: str, document: object) -> None:
    """One file of the recorded answers."""
    with lzma.open(DIRECTORY / name, "wt", encoding="utf-8", preset=9) as file:
        json.dump(document, file)


def answers(release: str, work: Path) -> list[dict[str, Any]]:
    """Random questions to the golden stores of a release; by key only to the one that was stopped."""
    found: list[dict[str, Any]] = []
    with Judge(class_path(release, work), work / "home") as judge:
        for state in ("clean", "crash"):
            base = f"{release}-{state}"
            judge.ask(base, "open", golden.unpack(base, work), *settings_of(golden.broker_conf(base)))
            for command, words in questions(
                random.Random(f"recorded {base}"), known_of(base), QUESTIONS, boundaries=release >= "5"
            ):
                if command != "key" or state == "clean":
                    answer = judge.ask(base, command, *words)
                    found.append({"base": base, "command": command, "words": words, "answer": answer})
    return found


def recovery(release: str, work: Path) -> list[dict[str, Any]]:
    """Starts after random damage."""
    found: list[dict[str, Any]] = []
    seeds = (*SEEDS[release], *FOUND.get(release, ()))
    with Judge(class_path(release, work), work / "home", workers=8, patience=15_000) as judge:
        for first in range(0, len(seeds), AT_ONCE):
            for seed, (_, result) in started(judge, release, seeds[first : first + AT_ONCE], work).items():
                base = base_of(release, seed)
                found.append({"seed": seed, "base": base, "recipe": Damager(base).recipe(seed), "result": result})
    return sorted(found, key=lambda case: case["seed"])


if __name__ == "__main__":
    main()
