"""One batch consume queue in the memory of a recovering broker (spec 3.6, 6.6; BatchConsumeQueue)."""

from __future__ import annotations

import numpy as np

from rmqctl.rocketmq.dispatch.batch_units import BatchQueueState
from rmqctl.rocketmq.dispatch.request import DispatchRequest
from rmqctl.rocketmq.queue_files import BATCH_UNIT, is_valid_batch
from rmqctl.rocketmq.recovery.queue_image import FileImage, QueueImage


class BatchQueueImage(QueueImage):
    """A batch consume queue; ``max_physical`` is the start of the last unit's record, not its end."""

    dtype = BATCH_UNIT
    valid = staticmethod(is_valid_batch)
    _minimum = -1
    _maximum = 0

    @property
    def min_offset(self) -> int:
        return self._minimum

    @property
    def max_offset(self) -> int:
        return self._maximum

    def recover(self) -> None:
        super().recover()
        if self.files:
            self._revise()

    def _note(self, unit: np.void) -> None:
        self.max_physical = int(unit["physical_offset"])

    def put(self, request: DispatchRequest) -> None:
        """Append the unit of one record."""
        state = BatchQueueState(self.end, self.max_physical, self._maximum)
        found = state.put(request)
        if found is None:
            return
        first = not self.files
        self._write(found)
        self.max_physical, self._maximum = state.last_physical, state.next_offset
        if first and self._minimum == -1:
            self._revise_minimum()

    def truncate(self, physical: int) -> None:
        super().truncate(physical)
        if not self.files:
            self.max_physical = physical - 1
        self._revise()

    def _revise(self) -> None:
        """``reviseMaxAndMinOffsetInQueue``: the ends as the first and the last two files show them."""
        self._revise_minimum()
        last = next((u for f in self.files[:-3:-1] if (u := self._last_unit(f)) is not None), None)
        self._maximum = 0 if last is None else int(last["base_offset"]) + int(last["batch_size"])

    def _revise_minimum(self) -> None:
        self._minimum = -1
        if self.files and self.files[0].wrote >= self.unit_size:
            self._minimum = int(self.files[0].units(self.dtype)["base_offset"][0])

    def _last_unit(self, file: FileImage) -> np.void | None:
        count = file.wrote // self.unit_size
        unit: np.void | None = file.units(self.dtype)[count - 1] if count else None
        return unit

    def correct_minimum(self, log_begin: int, *, minimum_5: bool) -> None:
        self._revise_minimum()
        if not self.files:
            self._maximum = 0
            return
        units = self._first_units()
        old = units["physical_offset"] < log_begin
        count = int(np.argmin(old)) if not old.all() else len(units)
        if count:
            self._minimum = int(units["base_offset"][count - 1]) + int(units["batch_size"][count - 1])
