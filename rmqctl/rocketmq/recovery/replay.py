"""A broker's start, step by step, on a view of the store that nothing is written to (spec 6)."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import replace

import numpy as np

from formats.layout import plan_of
from formats.rocketmq.checkpoint import Checkpoint
from formats.rocketmq.rocksdb import UNIT_FAMILY
from rmqctl.release import Release
from rmqctl.rocketmq.dispatch.database_rows import Marks
from rmqctl.rocketmq.dispatch.dispatched import Dispatched, Dispatcher, Wanted
from rmqctl.rocketmq.dispatch.rules import DispatchRules
from rmqctl.rocketmq.dispatch.series import not_yet
from rmqctl.rocketmq.index import IndexFile, files_are_written, index_entries
from rmqctl.rocketmq.log.commitlog import LogBlock
from rmqctl.rocketmq.queues.rocksdb import open_queues
from rmqctl.rocketmq.recovery.databases import (
    SINCE,
    DatabaseStart,
    RocksQueueImage,
    emptied_databases,
    marks_of,
    message_starts,
    refused_database,
    refused_queues,
    rocksdb_images,
)
from rmqctl.rocketmq.recovery.images import (
    BatchQueueImage,
    CutFile,
    IndexImage,
    QueueImage,
)
from rmqctl.rocketmq.recovery.log_replay import Known, LogWalk, Verdict, replay_log, start_index
from rmqctl.rocketmq.recovery.outcome import Recovery, SecondStart
from rmqctl.rocketmq.recovery.proof import (
    LEAST,
    Follower,
    Job,
    Proof,
    find_losses,
    find_undispatched,
    holds_data,
    lost_between,
    lost_from_queues,
    proofs,
    stop_finding,
)
from rmqctl.rocketmq.recovery.rules import Loaded, LoadFailure, QueueCut, RecoveryRules, load_store, unknown_topics
from rmqctl.rocketmq.state.config import read_checkpoint
from rmqctl.rocketmq.state.parts import as_read_by, unread_parts
from rmqctl.rocketmq.state.releases import release_range
from rmqctl.rocketmq.store.databases import MESSAGES, DatabaseDamaged, lost_current
from rmqctl.rocketmq.store.files import (
    BATCH_QUEUES,
    QUEUES,
    SEPARATE_QUEUES,
    StoreFile,
    StoreFiles,
    bytes_held,
    can_have_queues,
    holds_current,
    missing_log,
)
from rmqctl.rocketmq.store.geometry import IndexGeometry, flag, geometry_of

UNIT_FIELDS = ("physical_offset", "size", "tags_code")
_TAKE_EVERY = 1 << 18
_LIGHT_INSIDE = Release(5, 5, 0)
"""From here on brokers that write queues twice keep light queues in RocksDB, or do not start."""
_FIELDS = plan_of(Checkpoint).runs[0].names


def recover(
    store: StoreFiles,
    release: Release | None = None,
    *,
    index: bool = False,
    databases: bool = False,
    processes: int = 1,
) -> Recovery:
    """Return what a broker of a release does when it starts on the store.

    Args:
        release: default: the latest that the store shows.
        index: build the index entries, too, and do not only count them.
        databases: find what is written into databases, too.
        processes: that share the log where it is large.

    Raises:
        MissingExtra: queues are in RocksDB, or ``databases`` is asked, and the package rocksdict is not installed.
    """
    replay = Replay(store, release, index=index, databases=databases)
    job = replay.begin()
    if job is not None and processes > 1 and bytes_held(job.files[job.first :]) >= LEAST:
        for proof in proofs(job, processes):
            if not replay.take(proof):
                break
    return replay.finish(processes)


Walking = Generator[Job, Proof | None, None]
"""Steps of a start that stop where the log is to be walked, and take proofs of it until there are no more."""


class _NeverStarts(Exception):
    """start() waits for ever; the text says for what."""


class Replay:
    """One start. The methods run in the order of ``DefaultMessageStore.load`` and ``start``.

    :meth:`begin` goes to the walk over the log, :meth:`take` carries the walk on by what somebody else has read of it,
    :meth:`finish` reads the rest. Arguments and errors are those of :func:`recover`.

    Args:
        killed: as after a kill, though ``abort`` is not there.
    """

    def __init__(
        self,
        store: StoreFiles,
        release: Release | None = None,
        *,
        index: bool = False,
        databases: bool = False,
        killed: bool = False,
    ) -> None:
        release = release or release_range(store).highest
        unread = list(unread_parts(store, release))
        self.store = store = as_read_by(store, release)
        self.rules = RecoveryRules.of(release)
        self.geometry = geometry_of(store)
        self.dispatch_rules = DispatchRules.of(store, release, starting=True)
        found = read_checkpoint(store)
        self.checkpoint = found[0] if found else dict.fromkeys(_FIELDS, 0)
        self.result = Recovery(release, normal=not (store.has_abort or killed), unread=unread)
        self.images: dict[tuple[str, str, int], QueueImage] = {}
        self.index_end, self.builds_index, self.finds_databases = 0, index, databases
        self.database_end: int | None = None
        self.database_units, self.dispatched_from = 0, 0
        self.marks = Marks()
        self._opened = ExitStack()
        self.body = flag(store.settings, "checkCRCOnRecover", default=True)
        self.writes_index = files_are_written(store)
        self._are_queues_cut = False
        self._steps, self._follower = self._run(), Follower(LogWalk(0), [])
        self._job: Job | None = None

    def begin(self) -> Job | None:
        """Load the store up to the walk over its log; what a proof of the log needs, None where nothing is walked."""
        self._job = next(self._steps, None)
        return self._job

    def take(self, proof: Proof) -> bool:
        """Carry the walk on by the next proof, in log order; whether later ones can do so, too."""
        if self._job is not None:
            self._steps.send(proof)
        return not self._follower.is_over

    def finish(self, processes: int = 1) -> Recovery:
        """Read what is left, and return what the start does; the processes share what only the start after it reads."""
        for _ in self._steps:  # as a generator, it takes that for the end of the proofs
            pass
        found = self.result
        if found.starts:
            found.emptied = emptied_databases(self.store, found.release)
            found.second = self._second_start(processes)
        if self.finds_databases and found.starts:
            found.databases = list(self._database_starts())
            found.refuse(refused_database(self.store))
        return found

    def _run(self) -> Walking:
        with self._opened:
            yield from self._start_up()
            for image in self.images.values():
                if isinstance(image, RocksQueueImage):
                    image.leave()

    def _start_up(self) -> Walking:
        result = self.result
        try:
            loaded = load_store(self.store, self.rules, self.geometry)
            self._set_log(loaded)
            self._load_index()
            self._recover_queues(loaded)
            yield from self._recover_log(loaded.log)
            self._correct_minimum()
            self._start()
            result.end = self._log_end()
        except (LoadFailure, _NeverStarts) as failure:
            result.error = str(failure)
        result.images, result.dispatched_from = list(self.images.values()), self.dispatched_from
        if result.starts:
            self._add_up()

    def _set_log(self, loaded: Loaded) -> None:
        result = self.result
        result.log_files, result.deleted = loaded.log, [f.name for f in loaded.deleted]
        result.log_begin = loaded.log[0].base if loaded.log else 0
        result.end_before = loaded.log[-1].base + loaded.log[-1].size if loaded.log else 0

    # --- load ---------------------------------------------------------------------------------

    def _load_index(self) -> None:
        """``IndexService.load``: after a crash, files with entries younger than the checkpoint are deleted."""
        geometry, last = IndexGeometry(self.geometry.index_slots, self.geometry.index_entries), None
        for entry in index_entries(self.store):
            try:
                file = IndexFile.open(self.store.tree, entry, geometry)
            except OSError as error:  # what was loaded so far stays, where the broker goes on
                if self.rules.index_error_stops:
                    raise LoadFailure(f"{entry.path} cannot be read: {error.strerror or error}") from error
                break
            file.close()
            if not self.result.normal and file.header["end_timestamp"] > self.checkpoint["index_msg_timestamp"]:
                self.result.index_deleted.append(file.path)
            else:
                self.index_end, last = file.header["end_phy_offset"], file
        if self.builds_index and self.writes_index:
            self.result.index = IndexImage(last, geometry, counts_slots=self.dispatch_rules.counts_slots)

    def _recover_queues(self, loaded: Loaded) -> None:
        places = QUEUES, SEPARATE_QUEUES
        if not self.store.unread & {*places} and all(
            holds_current(self.store.tree, path) for path in places
        ):  # RocksDBConsumeQueueStore
            raise LoadFailure(f"{QUEUES} and {SEPARATE_QUEUES} both hold a database of queues: incompatible settings")
        settings = self.store.settings
        twice = flag(settings, "rocksdbCQDoubleWriteEnable", default=False) and self.rules.release >= _LIGHT_INSIDE
        if twice and not flag(settings, "combineCQUseRocksdbForLmq", default=False):  # RocksDBLiteLifecycleManager.init
            raise LoadFailure(
                "rocksdbCQDoubleWriteEnable=true needs combineCQUseRocksdbForLmq=true: "
                f"{self.rules.release} refuses to write queues twice with light queues in files"
            )
        self.marks = marks_of(self.store, self.rules.release)
        if refusal := refused_queues(self.store):
            raise LoadFailure(refusal)
        if self.store.queue_database is not None and lost_current(self.store, self.store.queue_database):
            self.database_end = 0
        elif self.store.is_rocksdb or self.store.has_light_database:
            try:
                database = self._opened.enter_context(open_queues(self.store))
                self.images.update(rocksdb_images(self.store, database))
                self.database_end = database.dispatched_end()
            except DatabaseDamaged as error:  # RocksDBConsumeQueueStore.load
                path = self.store.queue_database
                raise LoadFailure(f"the RocksDB database {path} cannot be opened: {error.reason}") from error
        if self.store.is_rocksdb:
            return
        for key, files in loaded.queues.items():
            image = self._new_image(key, files)
            image.removed += [f for f in loaded.deleted if f.name.startswith(f"{image.directory}/")]
            image.recover()
            self.images[key] = image

    def _new_image(self, key: tuple[str, str, int], files: list[StoreFile]) -> QueueImage:
        if self.store.in_database(key[1]):
            return RocksQueueImage(key)
        if key[0] == BATCH_QUEUES:
            return BatchQueueImage(key, files, self.geometry.batch_queue_file_size)
        return QueueImage(key, files, self.geometry.queue_file_size, skips_repeated=self.rules.skips_repeated)

    def _queues_end(self) -> int:
        """``getMaxPhyOffsetInConsumeQueue``."""
        nothing = 0 if self.store.is_rocksdb else -1
        return max((image.max_physical for image in self.images.values()), default=nothing)

    def _recover_log(self, files: list[StoreFile]) -> Walking:
        """``recoverNormally`` or ``recoverAbnormally``."""
        queues_end = self._queues_end()
        light_end = self.database_end if self.store.has_light_database else None
        if not files:
            self.result.missing = missing_log(self.store)
            if self.rules.queue_cut is QueueCut.WHEN_AHEAD or not self.result.normal:
                for image in self.images.values():
                    image.destroy()
            return
        settings = self.store.settings
        index_safe = flag(settings, "messageIndexSafe", default=False) and flag(
            settings, "messageIndexEnable", default=True
        )
        marks = self.marks.offsets
        known = Known(
            queues_end, self.checkpoint, index_safe, self.store.is_rocksdb, self.body,
            [*([light_end] if light_end else []), *marks],
        )  # fmt: skip
        walk = LogWalk(start_index(files, self.rules, known, normal=self.result.normal))
        self.result.start_file = files[walk.index].name
        reached = queues_end if light_end is None else min(queues_end, light_end)
        above = min([reached, *(mark for mark in marks if mark > 0)]) if self.result.normal else None
        dispatches = not self.result.normal or self.rules.dispatches_after_queues
        scanned = files[walk.index].base
        self.dispatched_from = scanned if above is None else max(scanned, above + 1)
        wanted = Wanted(stated=True, hashes=self.builds_index)
        job = Job(files, walk.index, self.rules, self.dispatch_rules, wanted, dispatches, above, self.body)
        self._follower = Follower(walk, files)
        yield from self._prove(job)
        self._walk(files, walk, above=above, dispatches=dispatches, body=self.body)
        # what light queues lose with an empty database is no message of a topic
        self._note_undispatched(queues_end if light_end == 0 else reached, scanned, above, dispatches=dispatches)
        self._cut(files, walk, self._queues_end() if self.rules.cuts_late else queues_end)

    def _note_undispatched(self, queues_end: int, scanned: int, lower: int | None, *, dispatches: bool) -> None:
        """Between the end of the queues and what is dispatched lies what no queue gets, until the log is rebuilt.

        Of a normal recovery the record exactly at the end of the queues is part of it: the test is ``>``. Batch queues
        give the start of their last record for its end.
        """
        ends = (i.max_physical for i in self.images.values() if isinstance(i, BatchQueueImage))
        known = queues_end in ends
        above = lower + 1 if lower is not None and queues_end >= 0 else 0
        until = max(scanned, above) if dispatches else self.result.end_before
        if self.rules.reput_from_queues and self.result.normal:
            until = 0
        self.result.never_dispatched = max(queues_end + known, self.result.log_begin), until

    def _prove(self, job: Job) -> Walking:
        """Dispatch what proofs carry the walk over."""
        while (proof := (yield job)) is not None:
            if self._follower.take(proof):
                self._count(proof.records, proof.bytes, proof.last_time)
                if proof.dispatched is not None:
                    self._dispatch(proof.dispatched)

    def _walk(self, files: list[StoreFile], walk: LogWalk, *, above: int | None, dispatches: bool, body: bool) -> None:
        """Dispatch what the walk accepts: all of it, or records that say they lie after ``above``."""
        wanted = Wanted(stated=True, hashes=self.builds_index)
        dispatcher = Dispatcher(self.dispatch_rules, wanted)
        waiting = 0
        for found, _ in replay_log(files, walk, self.rules, body=body):
            if len(found.block):
                block = found.block
                self._count(len(block), int(block.total_size.sum()), int(block["store_timestamp"][-1]))
            if not dispatches:
                continue
            if above is not None:
                found = LogBlock(found.block.take(np.flatnonzero(found.block["physical_offset"] > above)))
            dispatcher.add(found)
            waiting += len(found.block)
            if waiting >= _TAKE_EVERY:
                self._dispatch(dispatcher.take())
                waiting = 0
        self._dispatch(dispatcher.take())

    def _count(self, records: int, size: int, last_time: int) -> None:
        self.result.records += records
        self.result.bytes += size
        self.result.last_store_timestamp = last_time

    def _dispatch(self, done: Dispatched) -> None:
        """``doDispatch``: units into the queues, keys into the index.

        A topic that cannot name a directory has no queue here; a broker fails on its files, or puts them elsewhere.
        """
        for piece in done.pieces:
            if not can_have_queues(piece.key[0]):
                continue
            units = piece.units
            offsets = piece.offsets if piece.offsets is not None else piece.first + np.arange(len(units))
            physical, size, tags = (units[name].astype(np.int64) for name in UNIT_FIELDS)
            self._image(QUEUES, *piece.key).put_many(physical, size, tags, offsets)
            self.database_units += int((physical >= (self.database_end or 0)).sum())
        for request in (r for r in done.batches if can_have_queues(r.topic)):
            image = self._image(BATCH_QUEUES, request.topic, request.queue_id)
            assert isinstance(image, BatchQueueImage)
            image.put(request)
        if done.index is None or not len(done.index.physical) or not self.writes_index:
            return
        if self.result.index is not None:
            self.result.index.add(done.index)
        new = not_yet(done.index, self.index_end)
        self.result.index_keys += int(done.index.keys[new].sum())
        keyed = done.index.physical[new & (done.index.keys > 0)]
        self.index_end = int(keyed[-1]) if len(keyed) else self.index_end

    def _image(self, kind: str, topic: bytes, queue_id: int) -> QueueImage:
        key = kind, topic.decode("utf-8", "replace"), queue_id
        image = self.images.get(key)
        if image is None:
            image = self.images[key] = self._new_image(key, [])
        return image

    def _cut(self, files: list[StoreFile], walk: LogWalk, queues_end: int) -> None:
        """``truncateDirtyFiles`` and ``truncateDirtyLogicFiles``."""
        end = files[walk.index].base + walk.position + walk.drift
        self.result.log_cut, self.result.scanned_files = end, walk.files
        self.result.stopped_by = stop_finding(files[walk.index], walk)
        is_ahead = queues_end >= end if self.rules.queue_cut is QueueCut.WHEN_AHEAD else not self.result.normal
        self._are_queues_cut = is_ahead
        if is_ahead:
            for image in self.images.values():
                image.truncate(end)

    def _log_end(self) -> int:
        """``MappedFileQueue.getMaxOffset`` after the cut."""
        last = next(reversed(self._kept_log()), None)
        return last.base + last.size if last else 0

    def _kept_log(self) -> list[StoreFile]:
        """Files of the log that remain, each with the bytes of it that count as its size.

        ``MappedFileQueue.truncateDirtyFiles`` takes the rest by the file size, which for a file that starts at no
        multiple of it is not the cut less the start.
        """
        cut = self.result.log_cut
        if cut is None:
            return []
        files = (f for f in self.result.log_files if f.base <= cut)
        return [f if f.base + f.size <= cut else replace(f, size=cut % f.size) for f in files]

    def _correct_minimum(self) -> None:
        """``recoverTopicQueueTable``."""
        begin = self.result.log_begin if self.result.log_files else -1
        for image in self.images.values():
            image.correct_minimum(begin, minimum_5=self.rules.minimum_5)

    # --- start --------------------------------------------------------------------------------

    def _start(self) -> None:
        """``start`` of 4.5.1 to 4.9.8 dispatches from the end of the queues and waits for the end of the log."""
        if not self.rules.reput_from_queues or not self.result.log_files:
            return
        files, end = self._kept_log(), self._log_end()
        offset = max(self._queues_end(), self.result.log_begin)
        while offset < end:
            offset = self._reput(files, offset)
        self._correct_minimum()

    def _reput(self, files: list[StoreFile], offset: int) -> int:
        """Dispatch from an offset to the end of its file; where dispatch goes on (``ReputMessageService.doReput``)."""
        file = next((f for f in files if f.base <= offset < f.base + f.size), None)
        if file is None:
            raise _NeverStarts(f"start() never returns: it waits for dispatch, and no file of the log holds {offset}")
        records, size = self.result.records, self.result.bytes
        walk = LogWalk(0, offset - file.base)
        self._walk([file], walk, above=None, dispatches=True, body=False)
        self.result.records, self.result.bytes = records, size
        if walk.stopped is not None and walk.stopped.verdict is Verdict.BAD_SIZE:
            return file.base + walk.position + walk.stopped.size
        return file.base + file.size

    # --- the start after that -----------------------------------------------------------------

    def _second_start(self, processes: int) -> SecondStart | None:
        """What ``recoverNormally`` cuts after a clean stop: the log in files that this start has not read, or queues at
        units that this one has left because they did not reach to the end of the log yet.
        """
        if self.result.log_cut is None or self.result.start_file is None or not self._kept_log():
            return None
        return self._second_cut(processes) or self._second_queue_cut()

    def _second_queue_cut(self) -> SecondStart | None:
        end = self.result.end
        if self._are_queues_cut or self.rules.queue_cut is not QueueCut.WHEN_AHEAD or end is None:
            return None
        if self._queues_end() < end:
            return None
        lost, file, position = lost_from_queues(self.result, end)
        reason = "a unit there leads beyond the log, and what follows it goes with it"
        return SecondStart(file, position, end, reason, lost) if lost else None

    def _second_cut(self, processes: int) -> SecondStart | None:
        """From the file on at which this start began, the next one finds what this one has left."""
        result, times = self.result, self.checkpoint
        assert result.log_cut is not None
        assert result.start_file is not None
        files = result.log_files[: len(self._kept_log())]
        if not result.normal and result.last_store_timestamp:
            time = result.last_store_timestamp
            times = {**times, "physic_msg_timestamp": time, "logics_msg_timestamp": time}
        known = Known(self._queues_end(), times, rocksdb=self.store.is_rocksdb, body=self.body)
        walk = LogWalk(start_index(files, self.rules, known, normal=True))
        unread = min([file.name for file in result.log_files].index(result.start_file), len(files))
        if walk.index >= unread:
            return None
        files = files[:unread]
        follower = Follower(walk, files)
        if processes > 1 and bytes_held(files[walk.index :]) >= LEAST:
            first, rules = walk.index, self.dispatch_rules
            job = Job(files, first, self.rules, rules, Wanted(), dispatches=False, above=None, body=self.body)
            all(map(follower.take, proofs(job, processes)))
        for _ in replay_log(files, walk, self.rules, body=self.body):
            pass
        if walk.stopped is None or walk.stopped.verdict is Verdict.END_OF_FILE:
            return None
        file = files[walk.index]
        cut = file.base + walk.position
        gone = {message.physical for message in result.lost}
        lost = [m for m in lost_between(result, cut, result.log_cut) if m.physical not in gone]
        return SecondStart(file.name, walk.position, cut, walk.stopped.reason, lost) if lost else None

    # --- databases ----------------------------------------------------------------------------

    def _database_starts(self) -> Iterator[DatabaseStart]:
        """Yield what the start writes into every database."""
        end = self.result.end or 0
        if self.database_end is not None:
            place = self.store.queue_database or QUEUES
            reaches = max(end, self.database_end) if self.database_units else self.database_end
            emptied = lost_current(self.store, place) or None
            if emptied and self.store.has_light_database and self.dispatched_from > self.result.log_begin:
                emptied += (
                    f" (light queues, if any, LOSE what lies in front of byte {self.dispatched_from:,} of the log)"
                )
            yield DatabaseStart(place, UNIT_FAMILY, self.database_end, reaches, self.database_units, emptied=emptied)
        for path in self.result.emptied:
            if path not in (self.store.queue_database, MESSAGES):
                yield DatabaseStart(path, "default", None, None, 0, emptied=lost_current(self.store, path))
        if self.rules.release >= SINCE:
            yield from message_starts(self.store, self._kept_log(), self.dispatched_from, end, self.marks)

    # --- what it comes to ---------------------------------------------------------------------

    def _add_up(self) -> None:
        result = self.result
        result.redispatched = sum(image.appended for image in result.images)
        made = {f"{i.directory}/{f.base:020d}" for i in result.images for f in i.files}
        removed = [f.name for image in result.images for f in image.removed if f.name not in made]
        cut = result.log_cut
        gone = [f.name for f in result.log_files if cut is not None and f.base > cut]
        result.deleted = sorted({*result.deleted, *removed, *gone} - made)
        result.cuts = [*self._log_cuts(), *(c for image in result.images for c in image.cuts())]
        result.unknown_topics = unknown_topics(self.store, {topic for topic, *_ in result.ranges()})
        result.lost = find_losses(result)
        begin, until = result.never_dispatched
        result.never_dispatched = begin, min(until, result.end or 0)
        result.undispatched = find_undispatched(result)

    def _log_cuts(self) -> Iterable[CutFile]:
        for before, after in zip(self.result.log_files, self._kept_log(), strict=False):
            if after.size < before.size and holds_data(before, after.size):
                yield CutFile(before.name, before.size, after.size)
