"""A bundle says of a store what the store says of itself, and holds nothing of what its users put into it."""

from __future__ import annotations

import base64
import io
import json
import shlex
import shutil
import subprocess
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import zstandard
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from fixtures import damage, golden, kafka_damage
from formats.text import java_hash
from rmqctl.bundle import Wanted, make
from rmqctl.files.archives import BUNDLE_MANIFEST, bundle_at
from rmqctl.filters import Rendering
from rmqctl.kafka.dump.redaction import _densely
from rmqctl.opening import open_store
from rmqctl.redaction import same_hash
from rmqctl.repair.crc_correction import CRC32, CRC32C, Crc, pattern_at
from rmqctl.rocketmq.dump.redaction import KEPT_PROPERTIES

Rmqctl = Any
PARTS = 20
"""In which the variants of a release are checked."""
GIVEN_AWAY = "3.9.2:crash/zero-hole-64"
"""Where a batch is zeros but for two bytes, which only they themselves give the CRC that it has: its finding names another
computed CRC, and the manifest says that they differ.
"""
ROCKETMQ, KAFKA = "5.3.3:crash/torn-tail-only-header", "4.3.1:crash/middle-log-torn"


def damaged(name: str, into: Path) -> Path:
    """A store with the damage of a recorded variant: ``RELEASE:state/variant``."""
    release, _, variant = name.partition(":")
    found = golden.recovery_oracle(release)["variants"]
    root = golden.unpack(f"{release}-{variant.partition('/')[0]}", into)
    if release in golden.KAFKA_RELEASES:
        kafka_damage.apply(next(one["recipe"] for one in found if one["variant"] == variant), root)
    else:
        damage.apply(found[variant]["recipe"], root)
    return root


def bundled(root: Path, out: Path, **wanted: Any) -> Any:
    """Make a bundle; return its manifest."""
    answer = make(open_store(str(root)), out, Wanted(**wanted))
    answer.prepare()
    assert answer.document is not None
    return answer.document()


def held(out: Path) -> bytes:
    """All bytes of the files of a bundle."""
    return b"".join(file.read_bytes() for file in sorted(unpacked(out).rglob("*")) if file.is_file())


def unpacked(out: Path) -> Path:
    """Where the store of a bundle was unpacked."""
    found = bundle_at(str(out))
    assert found is not None
    return Path(found[0].place(""))


def secrets_of(root: Path) -> Iterator[bytes]:
    """Bodies, keys and values of properties and headers that are long enough to be no accident."""
    store = open_store(str(root))
    for row in store.dump(rendering=Rendering(body=True, records=store.family == "kafka")):
        if row["kind"] not in {"message", "record"} or row["topic"].startswith(_BROKERS_OWN):
            continue
        values = [row.get("body"), row.get("value"), row.get("key"), row.get("tags"), *(row.get("keys") or [])]
        properties = row.get("properties") or {}
        values += [value for name, value in properties.items() if name.encode() not in {*KEPT_PROPERTIES, b"KEYS"}]
        values += [value for _, value in row.get("headers") or []]
        for value in values:
            data = base64.b64decode(value["base64"]) if isinstance(value, dict) else (value or "").encode()
            if len(data) >= 6 and len(set(data)) > 3:
                yield data[:200]


_BROKERS_OWN = ("__", "RMQ_SYS_TRANS_OP_HALF_TOPIC", "rmq_sys_REVIVE_LOG_")


@pytest.mark.parametrize("name", [ROCKETMQ, "4.9.8:crash/zero-page-last-file", KAFKA])
def test_findings_start_and_plan_are_those_of_the_store(name: str, tmp_path: Path) -> None:
    manifest = bundled(damaged(name, tmp_path), tmp_path / "out.tar.zst")
    assert manifest["check"]["first"] == []
    assert manifest["check"]["equal"]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.parametrize("release", [*golden.RELEASES, "3.9.2", "4.3.1"])
def test_they_are_of_every_damaged_variant(release: str, part: int, tmp_path: Path) -> None:
    found = golden.recovery_oracle(release)["variants"]
    names = [one["variant"] for one in found] if release in golden.KAFKA_RELEASES else list(found)
    wrong = {}
    for name in names[part::PARTS]:
        manifest = bundled(damaged(f"{release}:{name}", tmp_path), tmp_path / "out.tar.zst")
        if f"{release}:{name}" == GIVEN_AWAY:
            assert all('"batch.crc"' in line for line in manifest["check"]["first"])
        elif not manifest["check"]["equal"]:
            wrong[name] = manifest["check"]["first"]
        shutil.rmtree(tmp_path / f"{release}-{name.partition('/')[0]}")
    assert wrong == {}


def test_a_batch_that_damage_makes_an_old_message_of_keeps_both_checksums(tmp_path: Path) -> None:
    """A plan heals it by the one, and the finding shows the other."""
    assert bundled(damaged("3.9.2:crash/magic-00", tmp_path), tmp_path / "out.tar.zst")["check"]["equal"]


def test_two_bytes_under_a_checksum_cannot_be_hidden(tmp_path: Path) -> None:
    """No other two have it, so to keep it is to give them away."""
    data = (damaged(GIVEN_AWAY, tmp_path) / "plain-none-0/00000000000000000091.log").read_bytes()[1570 : 1570 + 87]
    assert data[21:84].strip(b"\0") == b""
    wanted = crc32c(data[21:])
    same = [pair for n in range(1 << 16) if crc32c(data[21:84] + (pair := n.to_bytes(2, "big")) + data[86:]) == wanted]
    assert same == [data[84:86]]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*golden.NAMES, *golden.DATABASE_STORES, *golden.KAFKA_NAMES])
def test_they_are_of_every_golden_store(name: str, tmp_path: Path) -> None:
    assert bundled(golden.pristine(name), tmp_path / "out.tar.zst")["check"]["first"] == []


@pytest.mark.parametrize("name", [ROCKETMQ, KAFKA])
def test_it_holds_no_body_no_key_and_no_value(name: str, tmp_path: Path) -> None:
    root, out = damaged(name, tmp_path), tmp_path / "out.tar.zst"
    bundled(root, out)
    secrets = set(secrets_of(root))
    assert len(secrets) > 500
    data, names = held(out), {topic.encode() for topic in open_store(str(root)).topic_names()}
    assert [secret for secret in secrets - names if secret in data] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", [*golden.NAMES, *golden.DATABASE_STORES, *golden.KAFKA_NAMES])
def test_no_bundle_of_a_golden_store_does(name: str, tmp_path: Path) -> None:
    root, out = golden.pristine(name), tmp_path / "out.tar.zst"
    bundled(root, out)
    data, names = held(out), {topic.encode() for topic in open_store(str(root)).topic_names()}
    secrets = set(secrets_of(root)) - names
    assert len(secrets) > 100
    assert [secret for secret in secrets if secret in data] == []


def test_with_bodies_it_is_the_store(tmp_path: Path) -> None:
    root, out = damaged(ROCKETMQ, tmp_path), tmp_path / "out.tar.zst"
    manifest = bundled(root, out, bodies=True)
    assert not manifest["redacted"]
    own = unpacked(out)
    files = {file.relative_to(root): file for file in root.rglob("*") if file.is_file()}
    assert {file.relative_to(own) for file in own.rglob("*") if file.is_file()} == set(files)
    for name, file in files.items():
        assert (own / name).read_bytes() == file.read_bytes()
        assert (own / name).stat().st_mtime_ns // 1000 == file.stat().st_mtime_ns // 1000


def test_holes_stay_holes_in_the_hands_of_tar(tmp_path: Path) -> None:
    if shutil.which("tar") is None or shutil.which("zstd") is None:
        pytest.skip("no tar and zstd here")
    root, out = golden.pristine("5.3.3-crash"), tmp_path / "out.tar.zst"
    bundled(root, out)
    subprocess.run(["tar", "-C", tmp_path, "-I", "zstd", "-xf", out], check=True)
    wheel, own = tmp_path / "store/timerwheel", root / "timerwheel"
    assert wheel.read_bytes() == own.read_bytes()
    assert wheel.stat().st_blocks * 512 < wheel.stat().st_size // 10
    assert open_store(str(tmp_path)).bundle is not None


def test_it_is_read_as_a_store_and_refuses_what_was_left_out(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root, out = damaged(KAFKA, tmp_path), tmp_path / "out.tar.zst"
    assert rmqctl("bundle", root, out).exit_code == 0
    for verb in ("topics", "transactions", "producers", "metadata"):
        assert rmqctl(verb, out, "-o", "json").stdout == rmqctl(verb, root, "-o", "json").stdout
    of_store, of_bundle = (json.loads(rmqctl("lag", path, "-o", "json").stdout) for path in (root, out))
    assert [{**row, "metadata": ""} for row in of_bundle] == [{**row, "metadata": ""} for row in of_store]
    for typed in (
        ["dump", out, "--body"],
        ["dump", out, "--grep", "x"],
        ["query-key", out, "t", "k"],
        ["trace", out, "k"],
        ["dump", out, "--key", "k"],
    ):
        refused = rmqctl(*typed)
        assert refused.exit_code == 2
        assert "not in this bundle" in refused.stderr
    refused = rmqctl("repair", out, "--apply", "--yes")
    assert refused.exit_code == 2
    assert "this is a bundle" in refused.stderr


@pytest.mark.parametrize("name", ["5.3.3-crash", "4.3.1-clean"])
def test_what_it_says_to_type_names_the_bundle(name: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    """Where it is unpacked is gone when the command ends."""
    root = golden.unpack(name, tmp_path)
    log = "commitlog/00000000000000393216" if name[0] == "5" else "idem-0/00000000000000000000.log"
    damage.apply([{"op": "write", "file": log, "offset": 8762 if name[0] == "5" else 187, "hex": "01"}], root)
    packed = tmp_path / "for a ticket.tar.zst"
    assert rmqctl("bundle", root, packed).exit_code == 0
    for verb in ("verify", "recover", "info", "doctor", "repair", "producers", "topics"):
        shown = rmqctl(verb, packed)
        assert "rmqctl-bundle-" not in shown.stdout + shown.stderr, verb
    assert f"\nNext: rmqctl repair '{packed}'   (" in rmqctl("verify", packed).stdout
    assert f"rmqctl verify '{packed}'\n" in rmqctl("recover", packed).stdout
    release = "4.0.0" if name[0] == "4" else "5.5.0"
    for verb in (
        "verify",
        "recover",
        "info",
        "doctor",
        "repair",
        "topics",
        "lag",
        f"preflight --to {release}",
        "stats",
    ):
        shown = rmqctl(*verb.split(), packed, "-o", "json")
        assert shown.exit_code in {0, 1}, verb
        assert "rmqctl-bundle-" not in shown.stdout + shown.stderr, verb
    document = json.loads(rmqctl("info", packed, "-o", "json").stdout)
    assert (document if name[0] == "5" else document["directories"][0])["path"] == str(packed)


@pytest.mark.parametrize("name", ["5.3.3-crash", "4.3.1-clean"])
def test_what_a_report_of_a_bundle_says_to_type_can_be_typed(name: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    log = "commitlog/00000000000000393216" if name[0] == "5" else "idem-0/00000000000000000000.log"
    damage.apply([{"op": "write", "file": log, "offset": 8762 if name[0] == "5" else 187, "hex": "01"}], root)
    packed, out = tmp_path / "for a ticket.tar.zst", tmp_path / "out.json"
    assert rmqctl("bundle", root, packed).exit_code == 0
    assert rmqctl("report", packed, out).exit_code == 1
    assert "rmqctl-bundle-" not in out.read_text()
    (shown,) = json.loads(out.read_text())["stores"]
    (command,) = {one["command"] for one in shown["bytes"] if one["file"] == log}
    assert command.startswith(f"rmqctl dump '{packed}/{log}' -o hex --bytes ")
    of_bundle = rmqctl(*shlex.split(command)[1:])
    of_store = rmqctl(*[word.replace(str(packed), str(root)) for word in shlex.split(command)[1:]])
    assert of_bundle.exit_code == of_store.exit_code == 1
    assert of_bundle.stdout.splitlines()[:9] == of_store.stdout.splitlines()[:9]


@pytest.mark.parametrize(
    ("name", "log", "files"),
    [
        (
            "5.3.3-crash",
            "commitlog/00000000000000000000",
            ["consumequeue/LabOrders/2/00000000000000000000", "config/topics.json", "checkpoint"],
        ),
        (
            "4.3.1-clean",
            "idem-0/00000000000000000000.log",
            ["idem-0/00000000000000000000.timeindex", "idem-0/00000000000000000000.index", "meta.properties"],
        ),
    ],
)
def test_a_file_in_it_is_given_by_its_path(
    name: str, log: str, files: list[str], rmqctl: Rmqctl, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, packed = golden.pristine(name), tmp_path / "a.tar.zst"
    assert rmqctl("bundle", root, packed).exit_code == 0
    monkeypatch.chdir(tmp_path)
    for file in files:
        for options in (["-o", "json"], ["-o", "hex"]):
            of_store, of_bundle = rmqctl("dump", root / file, *options), rmqctl("dump", f"a.tar.zst/{file}", *options)
            assert of_bundle.stdout.replace("a.tar.zst", str(root)) == of_store.stdout
            assert of_bundle.exit_code == of_store.exit_code == 0
    for verb in ("info", "verify", "topics"):
        shown = rmqctl(verb, f"a.tar.zst/{files[1]}")
        assert "rmqctl-bundle-" not in shown.stdout + shown.stderr
        assert shown.exit_code == rmqctl(verb, root / files[1]).exit_code
    assert "a.tar.zst/nowhere is not a message store: nothing is there" in rmqctl("dump", "a.tar.zst/nowhere").stderr
    refused = rmqctl("dump", f"a.tar.zst/{log}", "--body")
    assert (refused.exit_code, "not in this bundle" in refused.stderr) == (2, True)


def test_a_file_of_which_nothing_is_in_it_is_said_to_be_left_out(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root, packed = golden.unpack("4.3.1-clean", tmp_path), tmp_path / "a.tar.zst"
    (root / "notes.txt").write_bytes(b"what somebody wrote down")
    assert rmqctl("bundle", root, packed).exit_code == 0
    refused = rmqctl("dump", f"{packed}/notes.txt")
    assert refused.exit_code == 2
    assert "notes.txt is not in this bundle: " in " ".join(refused.stderr.split())


def test_directories_of_a_log_beside_the_store_are_named_below_it(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root, log, packed = golden.unpack("5.3.3-clean", tmp_path), tmp_path / "fast", tmp_path / "a.tar.zst"
    (root / "commitlog").rename(log)
    first = min(log.iterdir()).name
    with (log / first).open("r+b") as file:
        file.seek(150)
        file.write(b"\1")
    assert rmqctl("bundle", root, packed, "--commitlog", log).exit_code == 0
    found = [json.loads(line) for line in rmqctl("verify", packed, "-o", "jsonl").stdout.splitlines()]
    assert f"{packed}/commitlog-1/{first}" in {row.get("file") for row in found}
    assert rmqctl("report", packed, tmp_path / "out.json").exit_code == 1
    (shown,) = json.loads((tmp_path / "out.json").read_text())["stores"]
    assert shown["path"] == str(packed)
    commands = [one["command"] for one in shown["bytes"] if first in one["file"]]
    assert [rmqctl(*shlex.split(one)[1:]).exit_code for one in commands] == [1] * len(commands) != []


def test_several_log_directories_are_named_below_it(rmqctl: Rmqctl, tmp_path: Path) -> None:
    one, other, packed = golden.unpack("4.3.1-clean", tmp_path), tmp_path / "other", tmp_path / "a.tar.zst"
    other.mkdir()
    shutil.copy(one / "meta.properties", other)
    (one / "idem-0").rename(other / "idem-0")
    damage.apply([{"op": "write", "file": "idem-0/00000000000000000000.log", "offset": 187, "hex": "01"}], other)
    assert rmqctl("bundle", f"{one},{other}", packed).exit_code == 0
    text = rmqctl("verify", packed)
    assert f"\nThen: rmqctl recover {packed}\n" in rmqctl("doctor", packed).stdout
    assert f"{packed}/store-1/idem-0/00000000000000000000.log" in text.stdout
    shown = rmqctl("dump", f"{packed}/store-1/idem-0/00000000000000000000.log", "-o", "json")
    assert (shown.exit_code, len(json.loads(shown.stdout)) > 5) == (1, True)
    assert rmqctl("report", packed, tmp_path / "out.json").exit_code == 1
    (document,) = json.loads((tmp_path / "out.json").read_text())["stores"]
    assert {row["command"].split()[2] for row in document["bytes"]} >= {
        f"{packed}/store-1/idem-0/00000000000000000000.log"
    }
    assert f"give one of {packed}/store,{packed}/store-1" in " ".join(rmqctl("repair", packed).stderr.split())
    assert rmqctl("repair", f"{packed}/store-1", "-o", "json").exit_code in {0, 1}


def test_it_keeps_to_a_size_or_writes_nothing(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root, out = golden.pristine("4.9.8-clean"), tmp_path / "out.tar.zst"
    refused = rmqctl("bundle", root, out, "--max-size", "10k")
    assert refused.exit_code == 13
    assert "--max-size" in refused.stderr
    assert list(tmp_path.iterdir()) == []
    assert rmqctl("bundle", root, out, "--max-size", "1M").exit_code == 0
    assert rmqctl("bundle", root, root / "out.tar.zst").exit_code == 13


def test_an_archive_sets_no_times_outside_of_it(rmqctl: Rmqctl, tmp_path: Path) -> None:
    """Names that begin at the root are taken as lying in the archive, and so are the times of what has them."""
    outside, crafted = tmp_path / "outside", tmp_path / "bundle.tar.zst"
    outside.write_bytes(b"sound")
    before = outside.stat().st_mtime_ns
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for name, mtime in (
            (BUNDLE_MANIFEST, "1.000000000"),
            (str(outside), "2.000000000"),
            ("x", f"{10**30}.000000000"),
        ):
            member = tarfile.TarInfo(name)
            member.pax_headers = {"mtime": mtime}
            archive.addfile(member)
    crafted.write_bytes(zstandard.compress(packed.getvalue()))
    assert rmqctl("info", crafted).exit_code == 11
    assert outside.stat().st_mtime_ns == before


def test_a_bundle_that_is_cut_is_said_to_be(rmqctl: Rmqctl, tmp_path: Path) -> None:
    out = tmp_path / "out.tar.zst"
    bundled(golden.pristine("4.5.2-clean"), out)
    out.write_bytes(out.read_bytes()[:-2000])
    refused = rmqctl("verify", out)
    assert refused.exit_code == 11
    assert "cannot be unpacked" in refused.stderr


# --- filler ---------------------------------------------------------------------------------------------


@given(st.text(min_size=2, max_size=40))
def test_a_text_of_the_same_hash_is_as_long_and_another(text: str) -> None:
    value = text.encode("utf-8", "replace")
    made = same_hash(value)
    assert len(made) == len(value)
    if len(text) >= 8 and value.isascii() and text.isprintable():
        assert java_hash(made.decode()) == java_hash(value.decode())
        assert sum(a == b for a, b in zip(made, value, strict=True)) <= len(value) // 2


@given(st.text("abcXYZ019-_", min_size=1, max_size=7))
def test_short_keys_keep_their_hash(text: str) -> None:
    made = same_hash(text.encode())
    assert java_hash(made.decode()) == java_hash(text)
    assert (made == text.encode()) == (len(text) == 1)


@pytest.mark.parametrize("crc", [Crc(CRC32, zlib.crc32), Crc(CRC32C, crc32c)])
@given(st.binary(min_size=4, max_size=2000), st.integers(0, 2**32 - 1), st.randoms())
def test_four_bytes_give_any_crc(crc: Crc, data: bytes, wanted: int, random: Any) -> None:
    at = random.randrange(len(data) - 3)
    pattern = pattern_at(len(data) - at, crc.compute(data) ^ wanted, crc)
    made = bytearray(data)
    for place, byte in enumerate(pattern, at):
        made[place] ^= byte
    assert crc.compute(bytes(made)) == wanted


@given(st.binary(max_size=300) | st.lists(st.sampled_from([b"a", b"bc", b"\0" * 9]), max_size=90).map(b"".join))
def test_dense_blocks_are_read_by_the_library(data: bytes) -> None:
    assert pa.Codec("snappy").decompress(_densely(data), len(data), asbytes=True) == data
