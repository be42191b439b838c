"""The loads of the partitions of a log directory by one release, each done once, and what a broker knows before."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import cached_property, partial

from rmqctl.kafka.directory.directory import LogDirectory, Partition
from rmqctl.kafka.directory.file_names import DirectoryState, FileKind
from rmqctl.kafka.directory.releases import COMPARED
from rmqctl.kafka.loading.checkpoints import Checkpoints
from rmqctl.kafka.loading.files import StartFails
from rmqctl.kafka.loading.known import KnownLogs
from rmqctl.kafka.loading.load import LoadedPartition, LoadSettings, load
from rmqctl.kafka.loading.snapshots import EXPIRATION_MS
from rmqctl.kafka.log.indexes import read_offset_index
from rmqctl.release import Release

Configs = Mapping[tuple[str, str], Mapping[str, str]]
"""Settings by name, by the type and the name of what they are for, as the metadata log has them."""
_ROOM, _INTERVAL = 10 << 20, 4096
_INDEX_ROOM = "segment.index.bytes", "log.index.size.max.bytes"
INDEX_INTERVAL = "index.interval.bytes", "log.index.interval.bytes"
_EXPIRATION = "producer.id.expiration.ms"


class Loads:
    """The partitions of one log directory, each loaded when it is first asked for.

    Args:
        configs: gives the settings that the metadata log has; asked where they matter.
        settings: of the broker, for what files do not store.
        known: logs that have been read already; None: none.
    """

    def __init__(
        self,
        directory: LogDirectory,
        checkpoints: Checkpoints | None = None,
        release: Release = COMPARED[-1],
        configs: Callable[[], Configs] = dict,
        settings: Mapping[str, str] | None = None,
        known: KnownLogs | None = None,
    ) -> None:
        self.directory, self.release, self.known = directory, release, known
        self.checkpoints = checkpoints or Checkpoints(directory)
        self._configs, self._settings = configs, settings or {}
        self._done: dict[int, LoadedPartition | StartFails] = {}

    def of(self, partition: Partition) -> LoadedPartition:
        """Return a partition as the broker loads it.

        Raises:
            StartFails: it cannot.
        """
        found = self._done.get(id(partition))
        if found is None:
            try:
                found = load(partition, self.settings_of(partition))
            except StartFails as failure:
                found = failure
            self._done[id(partition)] = found
        if isinstance(found, StartFails):
            raise found
        return found

    def settings_of(self, partition: Partition) -> LoadSettings:
        """Return what a broker knows when it loads a partition; it always loads the metadata log as after a crash."""
        if partition.is_metadata_log:
            return LoadSettings(self.release, is_clean=False, alive_since=self._alive_since, known=self.known)
        interval = setting_of(self._configs(), self._settings, partition.topic)
        return LoadSettings(
            self.release,
            self.directory.is_clean,
            self._offset(FileKind.RECOVERY_POINTS, partition),
            self._offset(FileKind.LOG_STARTS, partition),
            partial(self._room, partition),
            _INTERVAL if interval is None else interval,
            self._alive_since,
            keeps_producers=self._keeps_producers(partition),
            known=self.known,
        )

    def _offset(self, kind: FileKind, partition: Partition) -> int:
        return self.checkpoints.offset(kind, partition) or 0

    @cached_property
    def _alive_since(self) -> int:
        """When producers were idle for too long, ms, at the time a broker last ran: it writes high watermarks often."""
        file = self.directory.one(FileKind.HIGH_WATERMARKS)
        times = (file.mtime_ms for file in self.directory.all_files())
        last = file.mtime_ms if file is not None else max(times, default=0)
        return last - (_number(self._settings.get(_EXPIRATION)) or EXPIRATION_MS)

    def _room(self, partition: Partition) -> int:
        """Bytes of an index that is written: as settings say, else of one here that has room left, else a broker's."""
        stated = setting_of(self._configs(), self._settings, partition.topic, _INDEX_ROOM)
        return stated or _room_shown(partition) or self._common_room or _ROOM

    @cached_property
    def _common_room(self) -> int | None:
        """The size of most offset indexes with room left, of topics without a setting."""
        configs = self._configs()
        rooms = (
            _room_shown(partition)
            for partition in self.directory.partitions
            if partition.partition is not None
            and not partition.is_metadata_log
            and partition.state is not DirectoryState.DELETE
            and setting_of(configs, self._settings, partition.topic, _INDEX_ROOM) is None
        )
        seen = Counter(room for room in rooms if room is not None)
        return seen.most_common(1)[0][0] if seen else None

    def _keeps_producers(self, partition: Partition) -> bool:
        """Whether the messages are of magic 2, which the settings of an old topic may deny."""
        if self.release >= Release(3, 0, 0) or not any(log.size for log in partition.logs):
            return True
        return partition.one(FileKind.LEADER_EPOCHS) is not None


def setting_of(
    configs: Configs, settings: Mapping[str, str], topic: str, names: tuple[str, str] = INDEX_INTERVAL
) -> int | None:
    """Return a number that the metadata log has, of the topic or of all brokers; else of the broker's own settings.

    Args:
        names: what the setting is called for a topic, and for a broker.
    """
    of_topic = configs.get(("topic", topic), {}).get(names[0])
    of_all = configs.get(("broker", ""), {}).get(names[1])
    return _number(of_topic or of_all or settings.get(names[1]))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() else None


def _room_shown(partition: Partition) -> int | None:
    """Return the size of the offset index of a partition's last segment, where zeros are left at its end."""
    file = partition.segments[-1].offset_index if partition.segments else None
    if file is None:
        return None
    source = file.open()
    try:
        return file.size if read_offset_index(source).padding > 0 else None
    finally:
        source.close()
