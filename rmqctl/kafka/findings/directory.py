"""Findings in the files of a log directory: names, checkpoints, ids, metadata (spec 1, 10)."""

from __future__ import annotations

from functools import partial

from rmqctl.findings import Severity, declare, declare_difference

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_declare_metadata = partial(declare, page="emergency/metadata-lost")

FILE_UNREADABLE = declare(
    "directory.unreadable-file",
    _E,
    "The system refuses to read the file, or a link in its place leads nowhere.",
    "Let this user read it, mount what the link leads to, or copy what can still be read to another disk.",
)
CHECKPOINT_UNREADABLE = declare(
    "checkpoint.unreadable",
    _E,
    "An offset checkpoint cannot be read: a line, its version or its count is wrong.",
    "Rebuild it, or empty it: an empty file is valid.",
    broker="Takes the directory offline; with one directory it does not start.",
    see="spec 1.2",
)
CHECKPOINT_BEYOND_END = declare(
    "checkpoint.beyond-end",
    _W,
    "A recovery point or high watermark lies after the end of its log.",
    "Nothing: a broker takes the end of the log instead.",
    broker="Lowers it. After a crash it checks no segment below a recovery point.",
    see="spec 13.4, 21 (14)",
)
CHECKPOINT_LOG_START = declare(
    "checkpoint.log-start",
    _E,
    "The log start offset of a partition lies after the end of its log: a broker would delete all its segments.",
    "Remove the entry, or set it to the first offset that is to be served.",
    broker="Deletes all segments and begins an empty log at that offset.",
    see="spec 13.4",
)
CHECKPOINT_UNKNOWN = declare(
    "checkpoint.unknown-partition",
    _N,
    "A checkpoint has an entry of a partition that is not here.",
    "Nothing: normal after a topic was deleted or moved.",
    see="spec 1.2",
)
DIRECTORY_IDENTITY = declare(
    "directory.meta-properties",
    _E,
    "meta.properties is missing or cannot be read, or does not go with those of the broker's other log directories.",
    "Is a wrong volume mounted? Then mount the right one and change nothing. Else write it again with the ids of the cluster and the node. Of two directories with one directory.id, take the line out of one: a broker from 3.7 on makes a new id and tells the controller what lies there.",
    broker="Does not start.",
    see="spec 1.1",
    page="emergency/does-not-start",
)
DIRECTORY_NODE = declare(
    "directory.node-id",
    _E,
    "The node.id of meta.properties is of no node that the cluster's metadata knows: the metadata is another node's.",
    "Look whether the wrong volume is mounted, and change nothing then. Where the file was written anew, give it the id of the "
    "node whose partitions these are (rmqctl metadata).",
    broker="Waits for the controllers of the metadata log. Where they answer, it is a new broker, and renames the partitions "
    "to -stray (from 3.7 on).",
    see="spec 1.1, 1.4",
    page="emergency/does-not-start",
    by_hand=True,
)
DIRECTORY_FOREIGN = declare(
    "directory.foreign-directory",
    _E,
    "A directory whose name is no partition's lies in the log directory.",
    "Move it away.",
    broker="Does not start (lost+found is the classic case).",
    see="spec 1",
    page="emergency/does-not-start",
)
DIRECTORY_NAME = declare(
    "directory.file-name",
    _E,
    "A file with the ending of a segment file has no offset as its name.",
    "Move it away.",
    broker="Fails to load the partition and does not start.",
    see="spec 1.5",
)
DIRECTORY_OTHER = declare(
    "directory.foreign-file",
    _N,
    "A file that is not Kafka's lies in the directory.",
    "Nothing: brokers pass over it.",
    see="spec 21 (19)",
)
DIRECTORY_LEFTOVER = declare(
    "directory.leftover",
    _N,
    "A file waits to be removed or renamed: .deleted, .cleaned, .swap, .tmp or .part.",
    "Nothing: a broker deals with it when it starts.",
    broker="Removes .deleted and .cleaned files, and puts .swap files in the place of what they replace.",
    see="spec 1.5, 13.1",
)
DIRECTORY_SWAP = declare(
    "directory.swap",
    _W,
    "A .swap file stands beside a segment: a broker that starts puts it in the place of the segments that it covers.",
    "Nothing if compaction was broken off; if somebody made the file, move it away before a start.",
    broker="Deletes the segments that it covers and renames it.",
    see="spec 13.1",
)
DIRECTORY_ORPHAN = declare(
    "directory.orphan-index",
    _W,
    "An index belongs to no segment.",
    "Nothing: a broker deletes it.",
    broker="Deletes it when it starts.",
    see="spec 13.2",
)
DIRECTORY_TOPIC_ID = declare(
    "directory.partition-metadata",
    _E,
    "partition.metadata is missing or cannot be read where topics have ids.",
    "Write it again with the id that the metadata log gives.",
    broker="A missing file makes a KRaft broker rename the directory to -stray and begin an empty one; a bad one takes the directory offline.",
    see="spec 9.4",
    page="emergency/partition-offline",
)
DIRECTORY_OTHER_ID = declare(
    "directory.topic-id",
    _E,
    "The topic id of a partition is not that of the cluster's metadata.",
    "Put the partition's own directory in its place: what lies there is of the topic of that id. Only an id of which a byte "
    "or two are destroyed is written again.",
    broker="Renames the directory to -stray and begins an empty one.",
    see="spec 9.4",
    page="emergency/partition-offline",
)
DIRECTORY_STRAY = declare(
    "directory.stray",
    _W,
    "A partition is not in the cluster's metadata, or its directory is marked as stray.",
    "Nothing if the topic was deleted; else look at the metadata log.",
    broker="Renames the directory to -stray, or leaves it.",
    see="spec 1.4",
    page="emergency/partition-offline",
)
DIRECTORY_EMPTY = declare(
    "directory.no-segment",
    _W,
    "A partition's directory holds no segment.",
    "Nothing: a broker begins an empty log; if data was there, restore it.",
    broker="Begins an empty log.",
    see="spec 13.4",
    page="emergency/file-deleted",
)
DIRECTORY_LOST_LOG = declare(
    "directory.lost-log",
    _E,
    "A partition had records here, and no segment of it is left.",
    "Restore it from a replica before a broker is started: `rmqctl repair --from REPLICA`.",
    broker="Begins an empty log at offset 0; a follower fetches the records again, an only replica has lost them.",
    see="spec 13.4",
    page="emergency/file-deleted",
    by_hand=True,
)
DIRECTORY_LOST = declare(
    "directory.lost-partition",
    _E,
    "A checkpoint names records of a partition that the metadata gives to this node, and its directory is gone.",
    "Restore it from a replica before a broker is started: `rmqctl repair --from REPLICA`.",
    broker="Makes an empty directory; a follower fetches the records again, an only replica has lost them.",
    see="spec 1.2, 10.4",
    page="emergency/file-deleted",
    by_hand=True,
)
DIRECTORY_DOUBLE = declare(
    "directory.double",
    _E,
    "One partition lies in two log directories.",
    "Compare them, and move one away.",
    broker="Does not start.",
    see="spec 1.4",
    page="emergency/does-not-start",
    by_hand=True,
)
QUORUM_STATE = _declare_metadata(
    "metadata.quorum-state",
    _W,
    "The quorum-state file is missing or cannot be read.",
    "Nothing where other controllers are up: a node that lost it may vote twice in an epoch.",
    broker="Begins without a vote.",
    see="spec 10.4",
)
METADATA_REPLAY = _declare_metadata(
    "metadata.replay",
    _E,
    "A record of the metadata log or of a snapshot cannot be applied.",
    "Compare with another controller's directory: rmqctl diff.",
    broker="The controller or broker stops with a fatal fault.",
    see="spec 10.4",
)
METADATA_SNAPSHOT = _declare_metadata(
    "metadata.snapshot",
    _E,
    "The metadata log starts after offset 0 and no snapshot reaches its start.",
    "Restore the snapshot from another controller.",
    broker="Cannot load the cluster's metadata.",
    see="spec 10.4",
)
METADATA_LOG = _declare_metadata(
    "metadata.missing-log",
    _E,
    "The metadata log of a KRaft node is in none of the directories that were given, and partitions are.",
    "Name all log directories of the node: one of them (metadata.log.dir) should have it. Where none does, restore it before a "
    "broker is started; a broker with controllers on other nodes fetches it from them.",
    broker="One that is its own only controller begins an empty metadata log, knows no topic, and renames all partitions "
    "to -stray (from 3.7 on); others fetch it.",
    see="spec 1.4, 10.4",
    by_hand=True,
)
DIFF_PARTITION = declare_difference(
    "diff.partition",
    _W,
    "A partition that only one of two log directories has.",
    "Nothing where the brokers were given different partitions.",
)
DIFF_TOPIC_ID = declare_difference(
    "diff.topic-id",
    _E,
    "Two copies of a partition belong to different topics of one name: the topic was deleted and made again.",
    "Keep the copy whose id the cluster has (`rmqctl metadata`); the other one is of the topic that was deleted.",
    broker="Renames the directory whose id the cluster has not to -stray.",
    see="spec 9.4",
)
DIFF_METADATA = declare_difference(
    "diff.metadata",
    _E,
    "Two controllers have different metadata at the same offset of the metadata log.",
    "Compare their logs from the first divergence on; the one of the later epoch counts.",
    see="spec 10.4",
)
