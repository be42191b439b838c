"""A log that grows byte by byte, as a reader may meet it while a broker writes."""

from __future__ import annotations

from pathlib import Path

from fixtures import golden


class Growing:
    """A copy of a golden store's log, at first without a byte of data in it."""

    def __init__(self, name: str, into: Path) -> None:
        self.root = into / "growing"
        directory = self.root / "commitlog"
        directory.mkdir(parents=True)
        files = sorted((golden.pristine(name) / "commitlog").iterdir())
        self._files = [(directory / path.name, path.read_bytes()) for path in files]
        self.total = sum(len(data) for _, data in self._files)
        self.written = 0
        for path, data in self._files[:1]:
            path.write_bytes(bytes(len(data)))

    def grow(self, count: int) -> None:
        """Write so many bytes more, wherever that ends; the next file is made when it is needed."""
        end = min(self.written + count, self.total)
        begin = 0
        for path, data in self._files:
            low, high = max(self.written - begin, 0), min(end - begin, len(data))
            if low < high:
                if not path.exists():
                    path.write_bytes(bytes(len(data)))
                with path.open("r+b") as file:
                    file.seek(low)
                    file.write(data[low:high])
            begin += len(data)
        self.written = end
