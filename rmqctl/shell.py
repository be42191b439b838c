"""Commands to type, as a shell takes them."""

from __future__ import annotations

import os
import shlex


def typed(*words: str | os.PathLike[str]) -> str:
    """Return a command of ours as it is typed into a shell."""
    return shell_line("rmqctl", *words)


def shell_line(*words: str | os.PathLike[str]) -> str:
    """Return words as a shell takes them for what they are: on one line, without control characters."""
    return " ".join(_quoted(os.fspath(word)) for word in words)


def _quoted(word: str) -> str:
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + "".join(_in_quotes(char) for char in word) + "'"


def _in_quotes(char: str) -> str:
    """One character in the quotes of a shell that know escapes."""
    if char in "\\'":
        return f"\\{char}"
    if char.isprintable():
        return char
    is_byte = "\udc80" <= char <= "\udcff"  # of a name that is no UTF-8
    return "".join(f"\\x{byte:02x}" for byte in char.encode(errors="surrogateescape" if is_byte else "surrogatepass"))
