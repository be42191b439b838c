"""``python -m rmqctl``: the one file of the library that imports the commands."""

from __future__ import annotations

from commands import main

if __name__ == "__main__":
    main()
