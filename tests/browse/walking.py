"""A walk that is driven without a terminal: keys in, the text of the screen out."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

from textual.pilot import Pilot

from commands._browse.app import Browser
from commands._browse.site import Site
from commands._options import StoreOptions

KEYS = {
    "/": "slash", "@": "at", "-": "minus", ":": "colon", " ": "space", ".": "full_stop", "_": "underscore",
    "%": "percent_sign", "=": "equals_sign",
}  # fmt: skip


class Walk:
    """One walk, and what is on its screen."""

    def __init__(self, app: Browser, pilot: Pilot[int]) -> None:
        self.app, self.pilot = app, pilot

    @property
    def lines(self) -> list[str]:
        strips = self.app.screen._compositor.render_strips()
        return ["".join(segment.text for segment in strip).rstrip() for strip in strips]

    @property
    def screen(self) -> str:
        return "\n".join(self.lines) + "\n"

    @property
    def state(self) -> str:
        return self.lines[-2]

    @property
    def command(self) -> str:
        return self.lines[-3]

    async def settle(self, seconds: float = 60) -> None:
        """Wait until nothing is being read."""
        end = time.monotonic() + seconds
        while any(thread.name == "browse" for thread in threading.enumerate()):
            assert time.monotonic() < end, self.screen
            await self.pilot.pause(0.02)
        await self.pilot.pause()
        await self.pilot.pause()

    async def press(self, *keys: str) -> Walk:
        """Press keys, one after the other, each when what the last one asked for is there."""
        for key in keys:
            await self.pilot.press(key)
            await self.settle()
        return self

    async def type(self, text: str) -> Walk:
        """Type a text into what asks for it, and Enter."""
        for letter in text:
            await self.pilot.press(KEYS.get(letter, letter))
        return await self.press("enter")

    async def find(self, text: str) -> Walk:
        await self.press("slash")
        return await self.type(text)

    async def choose(self, *names: str) -> Walk:
        """Open lines of the tree by their names, from the top."""
        while not self.app._tree.has_focus:
            await self.press("tab" if self.app._tree.display else "escape")
        outline = self.app._outline
        assert outline is not None
        for name in names:
            start = outline.cursor if name != names[0] else -1
            labels = [node.label for _, node in outline._lines]
            outline.cursor = labels.index(name, start + 1)
            self.app._tree.changed()
            node = outline.node
            if name != names[-1] and node is not None and node.is_open:
                continue
            await self.press("enter")
            if not self.app._tree.has_focus and name != names[-1]:
                await self.press("tab")
        return self


def walk(
    paths: Path | str | Sequence[str], steps: Callable[[Walk], Awaitable[None]], size: tuple[int, int] = (80, 24)
) -> Browser:
    """Walk through stores; raises what ended it."""

    async def run() -> Browser:
        app = Browser()
        each = [str(paths)] if isinstance(paths, (str, Path)) else paths
        options = [StoreOptions(path, paths=(path,)) for path in each]
        sites = [Site(one, one.open_any(), app.call_later) for one in options]
        app.walk(sites)
        try:
            async with app.run_test(size=size) as pilot:
                taken = Walk(app, pilot)
                await taken.settle()
                await steps(taken)
                for view in app._all:
                    view.close()
                await taken.settle()
        finally:
            for site in sites:
                site.close()
        if app.bug is not None:
            raise app.bug
        return app

    return asyncio.run(run())
