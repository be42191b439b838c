"""Every command that writes, on a small store, for tests of what it leaves; each calls what it was asked to make done."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fixtures.damaged import damaged_store, sound_store
from rmqctl.kafka.engine.config import EngineConfig, LogConfig
from rmqctl.kafka.engine.engine import KafkaEngine
from rmqctl.kafka.log.reference import Record
from rmqctl.kafka.producer.damage import damage as damage_kafka
from tests.conftest import Rmqctl

START = 1_700_000_000_000


def rocketmq(home: Path) -> None:
    sound_store(home / "store", 120)


def consumed_rocketmq(home: Path) -> None:
    rocketmq(home)
    (home / "store/config/consumerOffset.json").write_text('{"offsetTable":{"Topic0@g":{"0":5,"1":3}}}')


def crashed_rocketmq(home: Path) -> None:
    sound_store(home / "store", 120, crash=True)


def damaged_rocketmq(home: Path) -> None:
    damaged_store(home / "store", "queue-lost", messages=120)


def flipped_rocketmq(home: Path) -> None:
    damaged_store(home / "store", "body-flip", messages=120)


def kafka(home: Path, *, crash: bool = False) -> None:
    config = EngineConfig(log=LogConfig(segment_bytes=2000, index_bytes=4096), clock=lambda: START, seed=1)
    engine = KafkaEngine.open(home / "store", config)
    engine.make_topic("t", 2)
    for n in range(60):
        engine.append("t", n % 2, [Record(0, START + n, -1, b"key %d" % n, b"value %d " % n * 9)])
    engine.crash() if crash else engine.close()


def crashed_kafka(home: Path) -> None:
    kafka(home, crash=True)


def damaged_kafka(home: Path) -> None:
    kafka(home)
    damage_kafka(home / "store", "index-lost")


def nothing(home: Path) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Writer:
    """A command that writes.

    Attributes:
        prepare: makes what lies in the home before.
        words: its arguments; ``@`` stands for the home.
        codes: with which it may end.
        makes: the new directory that it makes; "" for one that changes what is there.
        first: commands that go before.
    """

    name: str
    prepare: Callable[[Path], None]
    words: str
    codes: tuple[int, ...] = (0,)
    makes: str = ""
    first: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.name

    def run(self, home: Path, rmqctl: Rmqctl) -> None:
        said(rmqctl, home, self.words, self.codes)

    def prepared(self, home: Path, rmqctl: Rmqctl) -> None:
        """Make what lies in the home before, and carry out the commands that come first."""
        home.mkdir(exist_ok=True)
        self.prepare(home)
        for words in self.first:
            said(rmqctl, home, words, (0, 1))


def said(rmqctl: Rmqctl, home: Path, words: str, codes: tuple[int, ...]) -> None:
    """Give a command, which ends with one of some codes."""
    result = rmqctl(*(word.replace("@", str(home)) for word in words.split()))
    assert result.exit_code in codes, result.output


_PRODUCE = "produce @/store --topic T{0..2} --queues 2 --count 40 --size 100-900 --key k{n}"
_KAFKA = "produce @/store --format kafka --topic K --partitions 3 --count 40 --size 100-900 --key k{n}"
COMMANDS = (
    Writer("produce", nothing, _PRODUCE + " --small"),
    Writer("produce-deep", nothing, _PRODUCE.replace("@/store", "@/a/b/store") + " --small"),
    Writer("produce-sync", nothing, _PRODUCE + " --small --flush sync"),
    Writer("produce-index", nothing, _PRODUCE + " --small --index-slots 20 --index-entries 12"),
    Writer("produce-more", rocketmq, _PRODUCE),
    Writer("produce-after-crash", crashed_rocketmq, _PRODUCE),
    Writer("produce-crash", nothing, _PRODUCE + " --small --crash"),
    Writer("produce-damage", rocketmq, "produce @/store --topic T --count 1 --damage body-flip"),
    Writer("produce-kafka", nothing, _KAFKA + " --small"),
    Writer("produce-kafka-2.8", nothing, _KAFKA + " --small --as-release 2.8.2"),
    Writer("produce-kafka-more", kafka, _KAFKA),
    Writer("produce-kafka-after-crash", crashed_kafka, _KAFKA),
    Writer("produce-kafka-crash", nothing, _KAFKA + " --small --crash"),
    Writer("salvage", flipped_rocketmq, "salvage @/store @/deep/new", (0, 1), "deep/new"),
    Writer("salvage-kafka", kafka, "salvage @/store @/new", (0, 1), "new"),
    Writer("convert", rocketmq, "convert @/store @/new --small --offsets-partitions 2", (0, 1), "new"),
    Writer("convert-kafka", kafka, "convert @/store @/new --small", (0, 1), "new"),
    Writer("rebuild-into", rocketmq, "rebuild @/store --queues --index --checkpoint --into @/new", (0, 1), "new"),
    Writer("rebuild-into-kafka", kafka, "rebuild @/store --into @/new", (0, 1), "new"),
    Writer("rebuild", damaged_rocketmq, "rebuild @/store --apply --yes", (0, 1)),
    Writer("rebuild-kafka", damaged_kafka, "rebuild @/store --apply --yes", (0, 1)),
    Writer("recover", crashed_rocketmq, "recover @/store --apply --yes", (0, 1)),
    Writer("recover-kafka", crashed_kafka, "recover @/store --apply --yes", (0, 1)),
    Writer("repair", damaged_rocketmq, "repair @/store --apply --yes", (0, 1)),
    Writer("repair-kafka", damaged_kafka, "repair @/store --apply --yes", (0, 1)),
    Writer("offsets", rocketmq, "offsets @/store set --group g --topic Topic0 --to earliest --apply --yes"),
    Writer(
        "offsets-kafka",
        consumed_rocketmq,
        "offsets @/new set --group g --topic Topic0 --to latest --apply --yes",
        first=("convert @/store @/new --small --offsets-partitions 2",),
    ),
    Writer("bundle", rocketmq, "bundle @/store @/out.tar.zst"),
    Writer("bundle-kafka", kafka, "bundle @/store @/out.tar.zst"),
    Writer("export", rocketmq, "export @/store @/deep/out --engine local"),
    Writer("export-kafka", kafka, "export @/store @/out --engine local"),
    Writer("report", rocketmq, "report @/store @/report.html"),
    Writer("watch", rocketmq, "watch @/store --once --state @/watch.json"),
    Writer("watch-kafka", kafka, "watch @/store --once --state @/watch.json"),
    Writer("undo", damaged_rocketmq, "undo @/store --yes", first=("repair @/store --apply --yes",)),
    Writer("undo-kafka", damaged_kafka, "undo @/store --yes", first=("repair @/store --apply --yes",)),
    Writer(
        "redo",
        damaged_rocketmq,
        "undo @/store --redo --yes",
        first=("rebuild @/store --apply --yes", "undo @/store --yes"),
    ),
)
