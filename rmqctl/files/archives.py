"""Archives and compressed files, which people point at in the place of the store that is inside."""

from __future__ import annotations

import shlex

from rmqctl.files.tree import Tree

_MAGICS = (
    (b"\x1f\x8b", "gzip"),
    (b"\xfd7zXZ\0", "xz"),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"BZh", "bzip2"),
    (b"PK\x03\x04", "zip"),
)
_TAR_AT = 257


def unpacking(tree: Tree, name: str, path: str) -> tuple[str, str] | None:
    """Return what a packed file is and what to do about it; None where it is none.

    Args:
        path: as the user names the file.
    """
    source = tree.open(name)
    try:
        head = source.read_at(0, _TAR_AT + 5)
    finally:
        source.close()
    kind = next((kind for magic, kind in _MAGICS if head.startswith(magic)), "")
    if not kind and head[_TAR_AT:] != b"ustar":
        return None
    how = "unzip -d DIR" if kind == "zip" else "mkdir DIR && tar -C DIR -xf"
    what = f"it is packed ({kind or 'tar'})"
    return what, f"unpack it into a directory and give that: {how} {shlex.quote(path)}"
