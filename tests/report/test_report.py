"""The report: it says what the verbs say, is bounded, hides what is to be hidden, and nothing in a store becomes markup."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from fixtures import damage, golden, kafka_damage
from fixtures.damaged import ALL_KINDS, damaged_store
from rmqctl import open_all
from rmqctl.filters import Rendering
from rmqctl.report import Wanted, collect, page
from rmqctl.rocketmq.engine.config import MadeUpClock, StoreConfig
from rmqctl.rocketmq.engine.engine import StoreEngine
from rmqctl.rocketmq.engine.message import Message
from tests.conftest import Rmqctl

SCHEMA = json.loads(files("rmqctl.report").joinpath("schema.json").read_text("utf-8"))
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>\"'{{7*7}}{% raw %}\u2028]]>"


class Page(HTMLParser):
    """A page as a browser reads it: elements with their attributes, and the texts of scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.inside: list[tuple[str, str]] = []
        self.shown = ""
        self._open = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._open = tag if tag in {"script", "style"} else ""
        if self._open:
            self.inside.append((tag, ""))

    def handle_endtag(self, tag: str) -> None:
        self._open = ""

    def handle_data(self, data: str) -> None:
        if self._open:
            tag, text = self.inside[-1]
            self.inside[-1] = tag, text + data
        else:
            self.shown += data

    @property
    def data(self) -> Any:
        return json.loads(self.inside[1][1])


def document_of(*paths: object, **wanted: Any) -> Any:
    found = collect(open_all([str(path) for path in paths]), Wanted(**wanted))
    return json.loads(json.dumps(found))


def damaged(name: str, tmp_path: Path) -> Path:
    root = golden.unpack(name, tmp_path)
    if (root / "commitlog").is_dir():
        with (root / "commitlog/00000000000000393216").open("r+b") as file:
            file.seek(8762)
            file.write(b"9")
    else:
        with (root / "idem-0/00000000000000000000.log").open("r+b") as file:
            file.seek(187)
            file.write(b"G")
    return root


def test_it_says_what_the_verbs_say(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = damaged("5.3.3-crash", tmp_path)
    (store,) = document_of(root)["stores"]

    def said(*typed: str) -> Any:
        return json.loads(rmqctl(typed[0], root, *typed[1:], "-o", "json").stdout)

    checked = said("verify")
    assert [{k: v for k, v in f.items() if k != "number"} for f in store["findings"]] == checked["findings"]
    assert store["start"] == checked["start"]
    assert {k: v for k, v in store["doctor"].items() if k not in {"said", "checked"}} == {
        k: v for k, v in said("doctor").items() if k != "checked"
    }
    assert sorted(store["topics"], key=str) == sorted(said("topics"), key=str)
    assert sorted(store["lag"], key=str) == sorted(said("lag"), key=str)
    assert store["recover"] == said("recover", "--compare")
    assert store["repair"]["summary"] == said("repair")["summary"]
    assert store["info"] == said("info")
    assert store["segments"] == said("info", "--segments")
    assert store["disk"] == sorted(said("topics", "--disk"), key=lambda row: -row["bytes_used"])
    pending = [
        json.loads(line)
        for what in ("timer", "delay")
        for line in rmqctl("dump", root, "--pending", what, "-o", "jsonl").stdout.splitlines()
    ]
    assert sorted(store["pending"], key=str) == sorted(pending, key=str)
    assert store["figures"]["groups"]["all"] == said("stats")["all"]
    assert store["changes"][0] == {
        "id": "log.body-crc", "file": "commitlog/00000000000000393216", "offset": 8762, "size": 1, "before": "39",
        "after": "38",
    }  # fmt: skip
    assert not store["sampled"]
    assert not store["unasked"]


def test_what_scrolls_takes_keys_and_every_bar_has_a_width(tmp_path: Path) -> None:
    """Groups that stand beyond the end of a queue have a lag below zero."""
    found = Page(page(document_of(damaged("5.3.3-crash", tmp_path))))
    scrolls = [attrs for tag, attrs in found.elements if tag == "pre" or attrs.get("class") in {"wide", "plots"}]
    assert len(scrolls) > 5
    assert all(attrs.get("tabindex") == "0" for attrs in scrolls)
    widths = [float(attrs["width"] or "") for tag, attrs in found.elements if tag == "rect"]
    assert any(
        row["lag"] is not None and row["lag"] < 0 for row in document_of(tmp_path / "5.3.3-crash")["stores"][0]["lag"]
    )
    assert min(widths) >= 0


@pytest.mark.parametrize("name", ["5.3.3-crash", "4.3.1-clean"])
def test_its_data_fit_the_schema_and_the_page_holds_them(name: str, tmp_path: Path) -> None:
    document = document_of(damaged(name, tmp_path), tmp_path / "nowhere")
    jsonschema.validate(document, SCHEMA)
    made = page(document)
    assert len(made) < 1 << 20
    assert Page(made).data["document"] == document
    for finding in document["stores"][0]["findings"]:
        assert f'id="s0-f{finding["number"]}"' in made


@pytest.mark.parametrize("name", ["5.3.3-crash", "4.3.1-clean"])
def test_damaged_bytes_are_shown_with_their_fields(name: str, tmp_path: Path) -> None:
    root = damaged(name, tmp_path)
    (store,) = document_of(root)["stores"]
    error = next(f for f in store["findings"] if f["severity"] == "error")
    stretch = next(s for s in store["bytes"] if s["finding"] == error["number"])
    stored = (root / error["file"]).read_bytes()
    assert (stretch["begin"], stretch["end"]) == (error["offset"], error["offset"] + error["size"])
    for field in stretch["fields"]:
        raw = bytes.fromhex(field["raw"])
        assert field["hidden"] or not field["size"] or (raw and stored[field["offset"] :].startswith(raw))
    assert any(not f["hidden"] and f["offset"] <= stretch["begin"] < f["offset"] + f["size"] for f in stretch["fields"])


def test_the_picture_shows_findings_groups_and_the_cut(tmp_path: Path) -> None:
    made = Page(page(document_of(damaged("5.3.3-crash", tmp_path))))
    (log,) = made.data["pictures"][0]["log"]
    assert log["cut"] == [401884, 655360]
    assert [mark["at"] for mark in log["marks"] if mark["kind"] == "error"] == [401884]
    queues = {lane["name"]: lane for lane in made.data["pictures"][0]["queues"]}
    assert [m["at"] for m in queues["LabLog/0"]["marks"] if m["kind"] == "group"] == [42]
    assert sum(n for lane in made.data["pictures"][0]["times"]["lanes"] for _, n in lane["counts"]) == 1117
    assert "lost 476" in made.shown
    assert "healed 1" in made.shown


def test_the_picture_of_partitions_shows_epochs_open_transactions_and_the_cut(tmp_path: Path) -> None:
    root = damaged("4.3.1-crash", tmp_path)
    (store,) = document_of(root)["stores"]
    started = {row["partition"]: row for row in list(open_all([str(root)]).only.recover())}  # type: ignore[union-attr]
    assert {row["partition"]: row["log_end_offset"] for row in store["partitions"]} == {
        name: row["log_end_offset"] for name, row in started.items()
    }
    made = Page(page(document_of(root)))
    lanes = {lane["name"]: lane for lane in made.data["pictures"][0]["queues"]}
    assert {name: lane["cut"][0] for name, lane in lanes.items() if lane["cut"]} == {
        name: row["log_end_offset"] for name, row in started.items() if row["lost"]["records"]
    }
    assert [m["at"] for m in lanes["plain-none-0"]["marks"] if m["kind"] == "epoch"] == [0, 92, 124]
    assert any(mark["kind"] == "open" for lane in lanes.values() for mark in lane["marks"])
    assert "Where a start ends each partition" in made.shown


def hostile_store(root: Path) -> Path:
    """A store whose topic, group, tags, keys and bodies are markup; one body is damaged."""
    config = StoreConfig.small(clock=MadeUpClock(1_700_000_000_000, 7), services=False, process_id=1)
    engine = StoreEngine.open(root, config)
    for number in range(20):
        engine.put(Message("Topic", f"{HOSTILE}{number}".encode(), 0, {"KEYS": HOSTILE, "TAGS": HOSTILE, "x": HOSTILE}))
    engine.close()
    offsets = root / "config/consumerOffset.json"
    offsets.parent.mkdir(exist_ok=True)
    offsets.write_text(json.dumps({"offsetTable": {f"Topic@{HOSTILE}": {"0": 3}}}))
    (log,) = (root / "commitlog").iterdir()
    data = log.read_bytes()
    log.write_bytes(data.replace(f"{HOSTILE}7".encode(), f"{HOSTILE}8".encode(), 1))
    return root


def test_nothing_in_a_store_becomes_markup(tmp_path: Path) -> None:
    root = hostile_store(tmp_path / HOSTILE.replace("/", "_"))
    document = document_of(root)
    assert HOSTILE in json.dumps(document, ensure_ascii=False).replace('\\"', '"')
    made = page(document)
    found = Page(made)
    assert [tag for tag, _ in found.elements if tag in {"script", "img"}] == ["script", "script"]
    assert not [name for _, attributes in found.elements for name in attributes if name.startswith("on")]
    assert not [1 for _, attributes in found.elements if "style" in attributes]
    assert found.data["document"] == document
    assert "{{7*7}}" in found.shown
    assert "\u2028" not in found.inside[1][1]


def test_its_policy_allows_its_own_style_and_script_and_no_request(tmp_path: Path) -> None:
    found = Page(page(document_of(golden.unpack("5.3.3-clean", tmp_path))))
    (policy,) = [a["content"] for tag, a in found.elements if a.get("http-equiv") == "Content-Security-Policy"]
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for _, text in found.inside]
    assert policy == (
        f"default-src 'none'; style-src 'sha256-{hashes[0]}'; script-src 'sha256-{hashes[2]}'; base-uri 'none'; "
        "form-action 'none'"
    )
    links = [a[name] for _, a in found.elements for name in ("src", "href", "action", "data") if a.get(name)]
    assert all(str(link).startswith("#") for link in links)


def secrets_of(root: Path) -> Iterator[str]:
    """Bodies, keys and values of properties of users that are long enough to be no accident: as text and as hex."""
    store = open_all([str(root)]).only
    assert store is not None
    is_kafka = store.family == "kafka"
    for row in store.dump(rendering=Rendering(body=True, records=is_kafka)):
        if row["kind"] in {"message", "record"} and not row["topic"].startswith("__"):
            values = [row.get("body"), row.get("value"), row.get("key"), *(row.get("keys") or [])]
            values += [*(row.get("properties") or {}).values(), *(value for _, value in row.get("headers") or [])]
            for value in values:
                data = base64.b64decode(value["base64"]) if isinstance(value, dict) else (value or "").encode()
                if len(data) >= 8 and not data.isdigit():
                    yield data[:32].hex()
                    yield data[:60].decode(errors="ignore")


@pytest.mark.parametrize("name", ["5.3.3-crash", "4.3.1-clean"])
def test_redacted_it_holds_no_body_no_key_and_no_value(name: str, tmp_path: Path) -> None:
    root = damaged(name, tmp_path)
    text, whole = page(document_of(root, redact=True)), page(document_of(root))
    secrets = {secret for secret in secrets_of(root) if len(secret) >= 8}
    assert len(secrets) > 500
    topics = {row["topic"] for row in json.loads(json.dumps(document_of(root)["stores"][0]["topics"]))}
    assert [secret for secret in secrets - topics if secret in text] == []
    assert [secret for secret in secrets - topics if secret in whole] != []


def test_a_page_is_made_again_of_its_data(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = damaged("5.3.3-crash", tmp_path)
    data, first, again = tmp_path / "out.json", tmp_path / "first.html", tmp_path / "again.html"
    assert rmqctl("report", root, data).exit_code == 1
    assert rmqctl("report", data, again).exit_code == 1
    first.write_text(page(json.loads(data.read_bytes())), "utf-8")
    assert again.read_text("utf-8") == first.read_text("utf-8")
    assert rmqctl("report", golden.unpack("5.3.3-clean", tmp_path), first).exit_code == 0


def test_a_store_that_was_verified_is_not_checked_again(rmqctl: Rmqctl, tmp_path: Path, monkeypatch: Any) -> None:
    from rmqctl.store import Store

    root = damaged("5.3.3-crash", tmp_path)
    scan = tmp_path / "scan.json"
    scan.write_text(rmqctl("verify", root, "-o", "json").stdout)
    (whole,) = document_of(root)["stores"]
    monkeypatch.setattr(Store, "verify", None)
    (store,) = document_of(root, verified=json.loads(scan.read_bytes()))["stores"]
    for name in ("findings", "start", "counts", "bytes", "sound"):
        assert store[name] == whole[name]


def test_an_answer_of_verify_in_the_place_of_a_store_leads_to_the_option(rmqctl: Rmqctl, tmp_path: Path) -> None:
    scan, out = tmp_path / "scan.json", tmp_path / "out.html"
    scan.write_text('{"summary": {}, "findings": []}')
    done = rmqctl("report", scan, out)
    assert done.exit_code == 2
    assert f"rmqctl report STORE {out} --verified {scan}" in done.stderr
    assert not out.exists()


def test_several_stores_replicas_and_what_cannot_be_read(rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = damaged("5.3.3-crash", tmp_path / "a")
    sound = golden.unpack("5.3.3-crash", tmp_path / "b")
    document = document_of(root, sound, replicas=True)
    assert [store["sound"] for store in document["stores"]] == [False, True]
    choices = document["replicas"]["logs"][0]["choices"]
    assert [choice["no_loss"] for choice in choices] == [False, True]
    found = Page(page(document)).shown
    assert "Which replica may lead" in found
    assert {row["store"] for row in document["differences"]} == {document["stores"][1]["store"]}
    assert any("body" in row["message"] for row in document["differences"])
    assert document["differences"][0]["message"] in found
    assert rmqctl("report", root, tmp_path / "nowhere", tmp_path / "out.html", "--replicas").exit_code == 2
    assert rmqctl("report", tmp_path / "nowhere", tmp_path / "out.html").exit_code == 11


@pytest.mark.parametrize(("name", "log"), [("4.3.1-clean", "plain-none-0"), ("5.3.3-crash", "LabOrders/2")])
def test_replicas_lie_side_by_side(name: str, log: str, tmp_path: Path) -> None:
    roots = [golden.unpack(name, tmp_path / one) for one in "xy"]
    damaged(name, tmp_path / "z")
    if name.startswith("4"):
        segments = sorted((roots[1] / log).glob("*.log"))
        segments[-1].unlink()
    document = document_of(*roots, tmp_path / "z" / name, replicas=True)
    made = Page(page(document))
    *own, side = made.data["pictures"]
    assert len(own) == 3
    lanes = side["queues"]
    names = [lane["name"] for lane in lanes]
    assert names[::3] == list(dict.fromkeys(names)), "lanes of one log lie together"
    assert {lane["label"] for lane in lanes} == {f"{one}/{name}" for one in "xyz"}
    assert log in names[:6], "damage comes first"
    ids = {attrs["id"] for _, attrs in made.elements if attrs.get("id")}
    leads = [mark["to"] for lane in (*side["log"], *lanes) for mark in lane["marks"] if "to" in mark]
    assert leads
    assert set(leads) <= ids
    assert {f"{lane['prefix']}-f{m['finding']}" for lane in lanes for m in lane["marks"] if "finding" in m} <= ids
    (third,) = (lane for lane in lanes if lane["label"] == f"z/{name}" and lane["name"] == log)
    (alone,) = (lane for lane in own[2]["queues"] if lane["name"] == log)
    assert third["blocks"] == alone["blocks"]
    if name.startswith("4"):
        first, second = (next(x for x in lanes if x["name"] == log and x["label"][0] == one) for one in "xy")
        (mark,) = (mark for mark in second["marks"] if "to" in mark)
        assert second["end"] == mark["at"] < first["end"]


def test_it_is_bounded_and_says_what_was_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rmqctl.report import collecting

    for name in ("_ROWS", "_SEGMENTS", "_STRETCHES", "_FINDINGS"):
        monkeypatch.setattr(collecting, name, 6)
    (store,) = document_of(golden.unpack("4.3.1-crash", tmp_path))["stores"]
    shown = {one["what"]: (one["shown"], one["of"]) for one in store["sampled"]}
    assert shown["findings"] == (6, 20)
    assert shown["topics"] == (6, 38)
    assert shown["segments"][1] == 99
    assert len(store["segments"]) == shown["segments"][0] <= 6
    assert sum(one["findings"] for one in store["counts"]) == 20


def test_wrong_input_is_refused(rmqctl: Rmqctl, tmp_path: Path) -> None:
    out = tmp_path / "out.html"
    for text in ("no json", '{"kind": "report", "version": 9}', '{"kind": "report", "version": 1, "stores": [{}]}'):
        given = tmp_path / "given.json"
        given.write_text(text)
        assert rmqctl("report", given, out).exit_code == 2, text
    assert rmqctl("report", tmp_path).exit_code == 2
    assert rmqctl("report", tmp_path, tmp_path / "out.txt").exit_code == 2
    assert not out.exists()


@pytest.mark.parametrize("name", ["5.3.3-clean", "4.3.1-clean"])
def test_nothing_is_written_into_a_store(name: str, rmqctl: Rmqctl, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    result = rmqctl("report", root, root / "out.html", "--level", "quick")
    assert result.exit_code == 13
    assert "which is only read" in result.stderr
    assert not (root / "out.html").exists()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ALL_KINDS)
def test_each_finding_of_each_kind_of_damage_is_on_the_page(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "store"
    damaged_store(root, kind)
    document = document_of(root)
    jsonschema.validate(document, SCHEMA)
    made = page(document)
    (store,) = document["stores"]
    assert len(re.findall(r'<details class="finding', made)) == len(store["findings"])
    for stretch in store["bytes"]:
        finding = store["findings"][stretch["finding"]]
        assert (stretch["file"], stretch["begin"]) == (finding["file"], finding["offset"])


def variants() -> Iterator[Any]:
    """Every eighth kind of damage of the recovery oracles of either family."""
    for release, module in (("5.5.0", damage), ("4.3.1", kafka_damage)):
        found = golden.recovery_oracle(release)["variants"]
        recipes = found.items() if isinstance(found, dict) else [(each["variant"], each) for each in found]
        for variant, each in list(recipes)[::8]:
            yield pytest.param(f"{release}-{variant.partition('/')[0]}", module, each["recipe"], id=variant)


@pytest.mark.slow
@pytest.mark.parametrize(("name", "module", "recipe"), list(variants()))
def test_variants_of_the_oracles_have_a_page(name: str, module: Any, recipe: Any, tmp_path: Path) -> None:
    root = golden.unpack(name, tmp_path)
    module.apply(recipe, root)
    document = document_of(root)
    jsonschema.validate(document, SCHEMA)
    assert len(page(document)) < 2 << 20
