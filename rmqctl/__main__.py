"""``python -m rmqctl`` and the console script: the one file of the library that imports the commands."""

from __future__ import annotations

import signal


def main() -> None:
    """Run the command line; Ctrl-C during the first imports ends the process as any other, without a traceback."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from commands import main as run

    run()


if __name__ == "__main__":
    main()
