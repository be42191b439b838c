"""`python -m docs.picture` prints docs/record.svg: a damaged record as `rmqctl dump -o hex` shows it in a terminal."""

from __future__ import annotations

import re
import subprocess
import sys
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory

from rich.console import Console
from rich.terminal_theme import MONOKAI
from rich.text import Text

from fixtures import damage, golden

BODY_FLIP = [{"op": "write", "file": "commitlog/00000000000000393216", "offset": 8762, "hex": "39"}]
"""One byte of a body, as the READMEs say."""
TYPED = "rmqctl dump broken --from-offset 401884 -n 1 -o hex"
WIDTH = 92
LINES = 28
PAGE = """<svg viewBox="0 0 {terminal_width} {terminal_height}" xml:space="preserve" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: {char_height}px;
line-height: {line_height}px; }}
{styles}
</style>
<rect width="100%" height="100%" rx="8" fill="#272822"/>
<g transform="translate(9, 0)">{backgrounds}<g class="{unique_id}-matrix">{matrix}</g></g>
</svg>
"""


def picture() -> str:
    """What the terminal shows, as SVG that names no font of another host."""
    with TemporaryDirectory() as work:
        store = golden.unpack("5.3.3-crash", Path(work)).rename(Path(work) / "broken")
        damage.apply(BODY_FLIP, store)
        command = [sys.executable, "-m", "rmqctl", *TYPED.split()[1:], "--color", "always"]
        environment = {"COLUMNS": str(WIDTH), "PYTHONPATH": str(Path(__file__).parents[1])}
        # it exits with 1: damage
        done = subprocess.run(command, check=False, cwd=work, env=environment, capture_output=True, text=True)
    console = Console(record=True, width=WIDTH, file=StringIO(), color_system="truecolor", force_terminal=True)
    console.print(Text(f"$ {TYPED}", "bold"))
    for line in done.stdout.splitlines()[:LINES]:
        console.print(Text.from_ansi(line))
    drawn = console.export_svg(theme=MONOKAI, code_format=PAGE, unique_id="r")
    return re.sub(r' clip-path="[^"]*"', "", drawn).replace("&#160;", " ")


if __name__ == "__main__":
    print(picture(), end="")
