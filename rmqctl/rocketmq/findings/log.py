"""What can be wrong with a commit log."""

from __future__ import annotations

from functools import partial

from rmqctl.findings import Severity, declare

_E, _W, _N = Severity.ERROR, Severity.WARNING, Severity.NOTE
_declare = partial(declare, page="emergency/missing-messages")


LOG_BAD_RECORD = _declare(
    "log.bad-record",
    _E,
    "Bytes inside the log are no record: the magic, the size or a length inside is wrong. Sound records follow.",
    "A start that scans this file drops everything after it; `rmqctl recover` says whether yours does. See it with "
    "`rmqctl dump -o hex`, copy the store, then plan a repair before the broker starts.",
    broker="Recovery that scans this file stops here, cuts the file and deletes all later ones.",
    see="spec 6.2, 6.3, 14.26",
)
LOG_BODY_CRC = _declare(
    "log.body-crc",
    _E,
    "The body does not match the CRC-32 stored in the record: the body, or the CRC field, was changed after it was written.",
    "The rest of the record is intact. Restore the body from a replica, or accept the loss of this one message.",
    broker="Recovery that scans this file treats the record as the end of the log and drops everything after it.",
    see="spec 2.5, 6.2",
)
LOG_PROPERTY_CRC = _declare(
    "log.property-crc",
    _E,
    "The record carries a CRC over all its bytes (`__CRC32#`), and it does not match: something in the record was changed.",
    "Compare the record with a replica; topic, properties or header fields may be wrong although the body CRC fits.",
    broker="Checked only with forceVerifyPropCRC=true; then the record ends the log.",
    fixed_in="5.3.1",
    see="spec 2.7; #8350: 20 odd bytes at the end of properties",
)
LOG_CRC_ZERO = _declare(
    "log.crc-zero",
    _N,
    "The property CRC of this record is zero and right. Brokers 5.2.0 to 5.3.1 with forceVerifyPropCRC refuse it.",
    "Use a broker of 5.3.2 or later, or leave forceVerifyPropCRC off.",
    fixed_in="5.3.2",
    see="spec 2.7; #9121",
)
LOG_PROPERTIES_LOST = _declare(
    "log.properties-damaged",
    _E,
    "The properties hold bytes no encoder writes (zeros, or text cut inside a pair) while the body is good: the body CRC "
    "does not cover them, so a broker serves the message without its keys and tags.",
    "Restore the record from a replica; without one the properties cannot be proven.",
    broker="Accepts the record as it is.",
    see="spec 2.6, 6.2; #7437",
)
LOG_PHYSICAL_OFFSET = _declare(
    "log.physical-offset",
    _E,
    "A whole record says it lies elsewhere in the log: the field was damaged, or the record belongs to another file that "
    "was reused or renamed.",
    "If its neighbours are right, only the field is damaged. If the whole file differs, check the file's name.",
    broker="Not compared by recovery; dispatch takes the wrong offset over into queues and index.",
    see="spec 2.1, 6.2; #10017: reused file",
)
LOG_QUEUE_OFFSET = _declare(
    "log.queue-offset",
    _E,
    "QUEUEOFFSET does not continue its queue: records are missing between, or the field was damaged, or the broker lost "
    "queue units and gave the same offsets again.",
    "Compare with the queue unit at that offset: `rmqctl dump` of the queue.",
    broker="Appends the unit at the end of the queue all the same; position and offset then differ.",
    see="spec 2.16, 3.4, 14.25",
)
LOG_STORE_TIME = _declare(
    "log.store-time",
    _W,
    "The store time is before that of the record in front of it, or zero: the broker's clock was set back, or the field was damaged.",
    "Time lookups near this place may answer wrongly; nothing to repair if the clock was stepped.",
    broker="A first record of a file with store time 0 is passed over when recovery chooses its start.",
    see="spec 6.4, 14.24",
)
LOG_FUTURE = _declare(
    "log.future-time",
    _W,
    "Records of a file are stored later than the year 9999: the clock of the broker was wrong.",
    "Nothing on the disk: put the clock right. Lookups by time are wrong for these records.",
    broker="Serves them. A delayed message waits for a time that never comes.",
    see="spec 2.1",
    by_hand=True,
)
LOG_BLANK = _declare(
    "log.blank",
    _W,
    "The blank record that ends a full file is wrong: its size does not reach the end of the file, or it was destroyed.",
    "If only the size is wrong brokers do not care; a destroyed blank stops recovery: restore its eight bytes.",
    broker="Goes to the next file at any blank, whatever its size; bytes that are no blank end the log.",
    see="spec 2.9",
)
LOG_GAP = _declare(
    "log.gap",
    _E,
    "A file is missing between two files of the log.",
    "Look for the file on other commit log paths or replicas. Units that point into it cannot be served.",
    broker="Starts and only logs it; recovery walks over the hole.",
    see="spec 1.2",
    page="emergency/file-deleted",
)
LOG_FILE_LENGTH = _declare(
    "log.file-length",
    _E,
    "A file of the log has another length than the others.",
    "Extend a short file with zeros to the full length on a copy, or take it from a replica; a longer one was not written by a broker.",
    broker="From 4.5.1 on refuses to start; an empty last file is deleted from 5.1.3 on.",
    see="spec 1.2",
)
LOG_FILE_NAME = _declare(
    "log.file-name",
    _E,
    "A name in the log's directory is not a file offset, or not a multiple of the file size.",
    "Run `rmqctl repair`: a file whose records say where it belongs gets its name back, others are moved away.",
    broker="A name that is no number stops the broker at load.",
    see="spec 1.2, 14.28",
)
LOG_MISSING = _declare(
    "log.missing",
    _E,
    "The store has no commit log, or no file in it, while queues, index or checkpoint show that there were messages; or"
    " its place is a file or a link that leads nowhere.",
    "Do not start the broker: without a log it deletes all queues. Mount the disk of the log, or name it (--commitlog).",
    broker="Starts with an empty log and destroys every consume queue.",
    see="spec 6.3, 1",
    page="emergency/file-deleted",
)
LOG_TORN_TAIL = _declare(
    "log.torn-tail",
    _E,
    "The log ends in bytes that are no whole record: the last write did not reach the disk completely.",
    "The broker cuts these bytes at start-up; the message was never complete on this disk.",
    broker="Recovery ends the log in front of it.",
    see="spec 6.2",
)
LOG_STALE_TAIL = _declare(
    "log.stale-tail",
    _W,
    "Old records lie after the end of the log: a recovery once cut the log here and left the bytes. They are not part of "
    "the log, but could come back if the chain reaches them.",
    "Nothing if the broker runs well; to be safe zero the bytes behind the end on a stopped store.",
    broker="Overwrites them in time; a stale record that happens to follow the end is taken back into the log.",
    see="spec 6.5, 14.3; #10666",
)
LOG_ZERO_FILE = _declare(
    "log.zero-file",
    _N,
    "The file after the last one with data is all zeros: brokers create the next file in advance.",
    "Nothing to do; a clean stop or a recovery deletes it.",
    see="spec 1.1, 14.1",
)
LOG_COMPRESSION = _declare(
    "log.compression",
    _E,
    "The compressed flag does not fit the body: it cannot be decompressed, or the compression type is unknown.",
    "The CRC says whether the body itself is intact; if it is, the flag was damaged.",
    broker="Stores and serves it unseen; consumers fail on the message.",
    see="spec 2.3, 2.10",
)
LOG_TOPIC = _declare(
    "log.topic",
    _W,
    "The topic in the record has characters or a length that no broker accepts: it was damaged, or written by something else.",
    "Compare with the queue unit that points here.",
    broker="Creates a queue of that name at dispatch.",
    see="spec 1, 2.2",
)
LOG_SIZE = _declare(
    "log.size",
    _W,
    "The record is larger than a broker with default settings accepts (maxMessageSize 4 MiB plus 64 KiB).",
    "Fine if maxMessageSize was raised; give --broker-conf to say so.",
    see="spec 2.8, 14.30",
    by_hand=True,
)
LOG_PORT = _declare(
    "log.port",
    _E,
    "The port of a host is none (0 to 65535): no client can decode the record, nor what follows it in an answer.",
    "`rmqctl repair` puts zeros into the port's upper bytes, so that the record and the others are read.",
    broker="Stores and serves it; MessageDecoder.decode gives nothing, and a client drops the rest of the answer.",
    see="spec 2.5",
)
LOG_EMPTY_BODY = _declare(
    "log.empty-body",
    _N,
    "A message without a body. Push consumers before 5.3.2 fail on it and get nothing more of its queue, nor what comes with it.",
    "Skip it with the group's offset, read with clients of 5.3.2 or later, or replace it: `rmqctl repair --neutralize OFFSET`.",
    broker="Stores and serves it; the client throws a NullPointerException in ProcessQueue.putMessage.",
    see="apache/rocketmq#2102",
)
LOG_V2 = _declare(
    "log.v2-record",
    _N,
    "The record has the V2 layout (two-byte topic length), which brokers before 5.1.0 cannot read.",
    "Do not downgrade this store below 5.1.0; it is not damage.",
    broker="Before 5.1.0 recovery stops here as at damage.",
    see="spec 2.2, 14.9",
)
LOG_DLEDGER_ENTRY = _declare(
    "log.dledger-entry",
    _E,
    "A DLedger entry header does not fit its place: index, position or size is not what the chain demands.",
    "Restore the range from another member of the group.",
    see="spec 2.14",
    by_hand=True,
)
