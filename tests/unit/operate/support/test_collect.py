"""A bundle with secrets planted in every source: none is in the archive, and each masker is needed.

Nova's answers are made; files, journals and facts are real.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
import stat
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from gpustack.base.errors import ApplyError
from gpustack.changes import journal
from gpustack.changes.change import ChangeOutcome, ChangeResult
from gpustack.changes.journal import Cloud, RunHead
from gpustack.cloud.session import Access
from gpustack.hosts.facts.model import Host
from gpustack.hosts.facts.store import load_snapshot
from gpustack.nova_options import masking
from gpustack.nova_options.masking import MASKERS, Masking
from gpustack.operate.doctor.check import ok
from gpustack.operate.support import collect
from gpustack.operate.support.collect import COLUMNS, BundleContents, BundlePart, files, parts, write
from gpustack.operate.why.read import WhySources
from support.change_store import change
from support.fleet_answers import device
from support.fleet_answers import facts as facts_of
from support.fleet_cloud import StandIn, servers, with_devices
from support.host_samples import snapshot


def test_what_exceeds_the_size_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "MOST", collect._MANIFEST + 8000)
    made = files(
        [BundlePart(path="a", data="x"), BundlePart(path="b", data="y" * 9000), BundlePart(path="c", data="z")],
        Masking(),
    )
    assert [(file.path, file.omitted != "") for file in made[:3]] == [("a", False), ("b", True), ("c", False)]
    assert "larger than the rest" in made[1].omitted
    assert made[-1].path == "manifest.json"
    rows = json.loads(made[-1].content)["files"]
    assert rows[0]["sha256"] == hashlib.sha256(b"x").hexdigest()
    assert [row["size"] for row in rows] == [1, None, 1]
    assert [row["omitted"] for row in rows] == [None, made[1].omitted, None]
    assert json.loads(made[-1].content)["gpustack_support_bundle"] == 1


def test_a_secret_of_one_file_is_masked_in_all() -> None:
    parts = [
        BundlePart(path="a", data="geheimnis", omitted="no geheimnis"),
        BundlePart(path="b", data={"admin_pass": "geheimnis"}),
    ]
    made = files([replace(parts[0], omitted=""), *parts], Masking())
    assert [(part.content, part.omitted) for part in made[:2]] == [(b"***", ""), (b"", "no ***")]


def test_an_archive_has_the_files_that_are_not_left_out(tmp_path: Path) -> None:
    path = tmp_path / "support.tar.gz"
    parts = [
        BundlePart(path="a/b.txt", data="x"),
        BundlePart(path="c.json", data={"y": [1]}),
        BundlePart(path="d", omitted="gone"),
    ]
    made = files(parts, Masking())
    collect.write(path, made)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with tarfile.open(path) as archive:
        members = {entry.name: (entry.mode, archive.extractfile(entry).read()) for entry in archive}  # type: ignore[union-attr]
    assert list(members) == ["support/a/b.txt", "support/c.json", "support/manifest.json"]
    assert {mode for mode, _content in members.values()} == {0o600}
    assert (members["support/a/b.txt"][1], json.loads(members["support/c.json"][1])) == (b"x", {"y": [1]})
    with pytest.raises(ApplyError, match=r"the bundle can't be written.*nothing was written"):
        collect.write(path, made)  # never over an existing file
    second = tmp_path / "again.tar.gz"
    collect.write(second, made)
    assert second.read_bytes()[4:8] == bytes(4)  # no time
    assert {column.title: column.cell(made[2]) for column in COLUMNS} == {
        "Path": "d",
        "Size": "-",
        "Masked": 0,
        "Left out": "gone",
    }
    assert [column.cell(made[0]) for column in COLUMNS] == ["a/b.txt", 1, 0, " "]


@pytest.mark.parametrize(("size", "fits"), [(6000, True), (6001, False)])
def test_a_file_may_fill_the_rest(monkeypatch: pytest.MonkeyPatch, size: int, fits: bool) -> None:
    """A file takes a frame beside its content."""
    monkeypatch.setattr(collect, "MOST", collect._MANIFEST + 6000 + collect._FRAME)
    first, *_manifest = files([BundlePart(path="a", data="x" * size)], Masking())
    assert (len(first.content), first.omitted == "") == ((size, True) if fits else (0, False))
    gone, *_manifest = files([BundlePart(path="a", data="x" * size, omitted="gone")], Masking())
    assert (gone.content, gone.omitted) == (b"", "gone")


def test_masked_values_are_counted_by_file() -> None:
    secrets = {"admin_pass": "geheim", "b": {"password": "verborgen"}}
    parts = [BundlePart(path="a", data=secrets, masked=2), BundlePart(path="b", data="nothing")]
    first, second, _manifest = files(parts, Masking())
    assert (first.masked, second.masked) == (4, 0)
    assert json.loads(first.content) == {"admin_pass": "***", "b": {"password": "***"}}
    kept, manifest = files(parts[:1], Masking(keep_names=True))
    assert kept.path == "a"
    assert json.loads(manifest.content)["names"] == "kept"


VM = "5f0c1b8e-6f5e-4b5f-9a55-1e1d6a1c2b3d"
FORMS: dict[str, Callable[[str], str]] = {
    "clear": str,
    "base64": lambda text: base64.b64encode(text.encode()).decode(),
    "percent": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
}


REUSED = "Zqreused9x7word"
"""An option of nova.conf that a fault repeats without its type."""


@dataclasses.dataclass
class Planted:
    """Secrets by their place and form, and names that get pseudonyms."""

    secrets: dict[str, str] = dataclasses.field(default_factory=lambda: {"typed elsewhere": REUSED})
    names: list[str] = dataclasses.field(default_factory=list)

    def secret(self, place: str, form: str, end: str = "-é/") -> str:
        """A new secret, as it is written at a place."""
        value = self.secrets[f"{len(self.secrets)} {place} {form}"] = f"Zq{len(self.secrets):03}x9pass{end}{place[:3]}"
        return FORMS[form](value)

    def name(self, value: str) -> str:
        self.names.append(value)
        return value

    def shown(self, text: str) -> list[str]:
        """The places whose secret is in a text in any form; the base64 of a part of a text begins at any byte."""
        return [place for place, value in self.secrets.items() if any(form in text for form in _forms(value))]


def _forms(value: str) -> Iterator[str]:
    yield value
    yield quote(value, safe="")
    yield FORMS["percent"](value)
    yield value.encode().hex()
    for offset in range(3):
        encoded = base64.b64encode(b"\0" * offset + value.encode()).decode().rstrip("=")
        yield encoded[4 if offset else 0 : -2]


USER = Access(user="captain-hook", project="pirates-1", roles=frozenset())


@pytest.fixture(autouse=True)
def _signed_in(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collect, "sign_in", lambda _cloud: USER)


def free(planted: Planted, place: str) -> str:
    """A text of somebody else with a secret in each way and form."""
    parts = [f"amqp://nova:{planted.secret(f'{place} plain', 'clear', 'x')}@mq"]
    for form, written in FORMS.items():
        inner = (
            f"mysql://nova:{quote(planted.secret(f'{place} URL', 'clear'), safe='')}@db/nova",
            f"adminPass: {planted.secret(f'{place} assignment', 'clear')}",
            f"X-Auth-Token gAAAA{planted.secret(f'{place} token', 'base64').rstrip('=')}AAAABBBB",
            f"-----BEGIN PRIVATE KEY-----\n{planted.secret(f'{place} key', 'clear')}\n-----END PRIVATE KEY-----",
            f"$ANSIBLE_VAULT;1.1;AES256\n          {planted.secret(f'{place} vault', 'clear').encode().hex()}\n",
            f"data: {{a: {planted.secret(f'{place} manifest', 'base64')}}}\nkind: Secret\n",
        )
        parts += [inner_text if form == "clear" else written(inner_text) for inner_text in inner]
    return " ; ".join(parts)


def configuration(planted: Planted, directory: Path) -> list[Path]:
    """Files of services, with secrets in known and in unknown options, in comments and in YAML."""
    lines = [f"[service_user]\npassword = {REUSED}\nusername = {planted.name('captain-nemo')}"]
    lines += [f"# {planted.secret('comment', form)}" for form in FORMS]
    for form in FORMS:
        lines += [f"[neutron]\npassword = {planted.secret('option', form)}"]
        lines += [f"[DEFAULT]\ntransport_url = rabbit://nova:{planted.secret('transport_url', form)}@mq/"]
        lines += [f"[vendor]\napi_code = {planted.secret('unknown option', form)}"]
    nova, placement = directory / "nova.conf", directory / "placement.conf"
    nova.write_text("\n".join(lines), encoding="utf-8")
    url = f"mysql://placement:{planted.secret('placement', 'percent')}@db/placement"
    placement.write_text(f"[placement_database]\nconnection = {url}\n", encoding="utf-8")
    clouds = {"clouds": {"c": {"auth": {"auth_url": "https://k/v3", "password": planted.secret("clouds", "clear")}}}}
    variables = {"ansible_become_pass": planted.secret("variables", "base64"), "list": [free(planted, "list")]}
    made = {"clouds.yaml": clouds, "all.yml": variables}
    for name, data in made.items():
        (directory / name).write_text(json.dumps(data), encoding="utf-8")
    vault = directory / "vault.yml"
    vault.write_text(f"$ANSIBLE_VAULT;1.1;AES256\n{planted.secret('vault file', 'clear').encode().hex()}\n")
    return [nova, placement, *(directory / name for name in made), vault]


def cloud(planted: Planted) -> StandIn:
    """A failed instance whose users and whose fault know secrets."""
    entry: dict[str, Any] = {
        "id": VM,
        "name": planted.name("blue-whale-7"),
        "tenant_id": planted.name("9a8b7c6d5e4f4a3b2c1d0e9f8a7b6c5d"),
        "user_id": planted.name("1a2b3c4d5e6f4a3b2c1d0e9f8a7b6c5d"),
        "status": "ERROR",
        "metadata": {"note": free(planted, "metadata")},
        "OS-EXT-SRV-ATTR:user_data": planted.secret("user data", "base64"),
        "image": {"id": "i", "properties": {"hw_x": "1", "owner_hint": planted.secret("image", "clear")}},
        "flavor": {
            "original_name": "g1",
            "vcpus": 1,
            "ram": 512,
            "disk": 1,
            "extra_specs": {"note": free(planted, "spec")},
        },
        "scheduler_hints": {planted.secret("hint", "base64"): "x", "password=" + planted.secret("hint", "clear"): "y"},
        "fault": {
            "message": f"blue-whale-7: no login with {REUSED}: {free(planted, 'fault')}",
            "created": "2026-11-24T14:02:00Z",
        },
    }
    action = {"action": "create", "request_id": "req-1", "start_time": "2026-11-24T14:01:59", "message": "Error"}
    entry["fault"]["message"] += f" (user {entry['user_id']}, project {entry['tenant_id']})"
    action["user_id"] = planted.name("3c2b1a0f5e6f4a3b2c1d0e9f8a7b6c5d")
    event = {"event": "compute_x", "result": "Error", "host": "gpu1", "traceback": free(planted, "step")}
    made = StandIn()
    made.answers["compute /servers?all_tenants=1"] = (200, {"servers": [{"id": VM}]})
    made.answers[f"compute /servers/{VM}"] = (200, {"server": entry})
    made.answers[f"compute /servers/{VM}/os-instance-actions"] = (200, {"instanceActions": [action]})
    made.answers[f"compute /servers/{VM}/os-instance-actions/req-1"] = (
        200,
        {"instanceAction": {**action, "events": [event]}},
    )
    return made


def facts(planted: Planted) -> Host:
    """A host whose files and arguments have secrets, and a serial number."""
    raw = snapshot("k4200")
    raw["kernel"]["command_line"] = f"quiet rd.iscsi.password={planted.secret('argument', 'clear')} ro"
    raw["files"]["/etc/default/grub"] = {"text": f"# {free(planted, 'file')}\nip=10.20.30.40 52:54:00:12:34:56\n"}
    raw["pci"][0]["serial"] = planted.name("SN-77-ABCD")
    planted.names += ["10.20.30.40", "52:54:00:12:34:56"]
    return Host.model_validate(raw)


def recorded(planted: Planted) -> None:
    """A run with secrets in its texts."""
    place = Cloud(auth_url=f"https://a:{planted.secret('auth_url', 'percent')}@k/v3", user=planted.name("dr-strange"))
    head = RunHead(id="20261126T000000000000Z", command="flavor apply", cloud=place, spec=free(planted, "record"))
    named = {"project_name": planted.name("nautilus-lab")}
    changes = [change("a", named, {"password": planted.secret("wanted", "base64")})]
    of_instance = {"name": f"{planted.name('zq7')} ({VM})", "why": f"2 GPUs of gpu1 for {planted.name('q-k')}, SHUTOFF"}
    changes.append(dataclasses.replace(change("b", None, 1), **of_instance))
    changes.append(change("c", {}, {"filter_tenant_id": planted.name("c0ffee5e6f4a3b2c, c0ffee5e6f4a3b2d")}))
    log = journal.RunJournal(head, changes)
    log.begin(changes[0])
    log.end(ChangeOutcome(change=changes[0], result=ChangeResult.FAILED, detail=free(planted, "detail")))
    foreign = planted.name("00aa11bb5e6f4a3b2c1d0e9f8a7b6c5d")
    log.begin(changes[1])
    log.end(ChangeOutcome(change=changes[1], result=ChangeResult.FAILED, detail=f"zq7: project {foreign} has it"))
    log.close()


def archive(
    planted: Planted, directory: Path, monkeypatch: pytest.MonkeyPatch, *, keep: bool = False
) -> dict[str, str]:
    """The texts of the unpacked archive of all sources, by path."""
    monkeypatch.setenv("XDG_STATE_HOME", str(directory / "state"))
    recorded(planted)
    planted.names += [USER.user, USER.project]
    host, stand_in = facts(planted), cloud(planted)
    stand_in.newest = (2, 100)
    spec = directory / "gpustack.yaml"
    spec.write_text(
        f"# {planted.secret('comment of the spec', 'clear')}\nversion: 1\n"
        'models: {k4200: {match: {vendor: "10de", product: "11b4"}}}\n'
        f'hosts: {{"gpu1": [k4200]}}\nnova: {{release: "2025.2"}}\n'
        f"quotas: {{default: {{k4200: 0}}, projects: {{{planted.name('moon-lab')}: {{k4200: 1}}}}}}\n",
        encoding="utf-8",
    )
    contents = BundleContents(
        cloud=lambda: stand_in.connection,
        sources=WhySources(spec=spec, scanned=(host,)),
        checks=lambda: [ok("Cloud", f"signed in as {USER.user} of project {USER.project}: {free(planted, 'check')}")],
        configuration=configuration(planted, directory),
        instances=[VM],
    )
    hidden = Masking(keep_names=keep)
    write(directory / "b.tar.gz", files(parts(contents, hidden), hidden))
    with tarfile.open(directory / "b.tar.gz") as packed:
        members = {entry.name: packed.extractfile(entry) for entry in packed}
        return {name: stream.read().decode() for name, stream in members.items() if stream}


def decoded(texts: dict[str, str]) -> str:
    """All texts, of JSON without its escapes too."""
    return "\n".join([*texts.values(), *(str(json.loads(of)) for name, of in texts.items() if name.endswith(".json"))])


def test_no_planted_secret_or_name_is_in_the_archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Planted()
    texts = archive(planted, tmp_path, monkeypatch)
    assert {name.partition("/")[2].partition("/")[0] for name in texts} == {
        *("versions.json", "doctor.json", "why", "failures.json", "spec.json", "configuration", "findings.json"),
        *("records", "facts", "manifest.json"),
    }
    text = decoded(texts)
    assert len(planted.secrets) > 150
    assert planted.shown(text) == []
    assert [name for name in planted.names if name in text] == []
    of_instance = json.loads(texts["b/why/instance-1.json"])
    assert (of_instance["instance"], of_instance["name"], of_instance["status"]) == (VM, "instance-1", "ERROR")
    assert {entry["code"] for entry in of_instance["findings"]} <= {
        entry["code"] for entry in json.loads(texts["b/findings.json"])
    }
    assert of_instance["findings"]
    assert json.loads(texts["b/facts/1.json"])["hosts"][0]["pci"][0]["class"]
    shown = json.loads(texts["b/failures.json"])[0]
    assert (shown["instance"], shown["name"], shown["flavor"]["vcpus"]) == (VM, "instance-1", 1)
    assert shown["fault"].startswith("instance-1: ")
    listed = {entry["path"]: entry for entry in json.loads(texts["b/manifest.json"])["files"]}
    assert texts["b/configuration/5-vault.yml"] == "***"
    assert listed["configuration/1-nova.conf"]["masked"] >= 9
    facts_file = tmp_path / "facts.json"
    facts_file.write_text(texts["b/facts/1.json"], encoding="utf-8")
    assert load_snapshot(facts_file)[0].pci[0].serial == "serial-1"


def _unmasked(monkeypatch: pytest.MonkeyPatch, masker: str) -> None:
    """Take one masker away."""
    if masker in MASKERS:
        monkeypatch.setitem(masking.MASKERS, masker, lambda _masking, text: text)
    elif masker == "options":
        monkeypatch.setattr(masking, "is_secret", lambda _path: False)
    elif masker == "unknown options":
        monkeypatch.setattr(masking, "is_secret", lambda path: masking._known().get(path.lower(), False))
    elif masker == "keys":
        monkeypatch.setattr(masking, "_is_key", lambda _key: False)
    elif masker == "texts of records":
        monkeypatch.setattr(masking, "_NAMED", {})
    elif masker in ("_IMAGE", "_HINTS"):
        monkeypatch.setattr(collect, masker, SimpleNamespace(fullmatch=lambda _key: True))
    else:
        monkeypatch.setattr(masking, "_KINDS", {})


@pytest.mark.parametrize(
    "masker",
    [*MASKERS, "options", "unknown options", "keys", "texts of records", "_IMAGE", "_HINTS", "kinds"],
    ids=lambda name: name.replace(" ", "-"),
)
def test_each_masker_is_needed(masker: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Planted()
    _unmasked(monkeypatch, masker)
    text = decoded(archive(planted, tmp_path, monkeypatch))
    assert planted.shown(text) or [name for name in planted.names if name in text]


def test_names_can_be_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = Planted()
    text = decoded(archive(planted, tmp_path, monkeypatch, keep=True))
    assert (planted.shown(text), [name for name in planted.names if name not in text]) == ([], [])


def omitted(tmp_path: Path, *configuration: Path) -> dict[str, str]:
    contents = BundleContents(
        cloud=lambda: StandIn().connection,
        sources=WhySources(spec=tmp_path / "no.yaml"),
        checks=list,
        configuration=configuration,
        instances=["vm"],
    )
    return {part.path: part.omitted for part in parts(contents, Masking()) if part.omitted}


def test_unreadable_sources_are_left_out_and_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    (tmp_path / "gpustack/changes").mkdir(parents=True)
    (tmp_path / "gpustack/changes/broken.jsonl").write_text("password=x\n")
    (tmp_path / "gpustack/changes/linked.jsonl").symlink_to(tmp_path / "gpustack/changes/broken.jsonl")
    (tmp_path / "no.yaml").write_text("version: 1\nkey: a secret that no spec has\n")
    link, binary, damaged = (tmp_path / name for name in ("link.conf", "binary.conf", "broken.conf"))
    binary.write_bytes(b"\xff\xfe")
    damaged.write_text("password\n")
    link.symlink_to(binary)
    names = omitted(tmp_path, link, binary, damaged, tmp_path / "none.conf", tmp_path)
    reasons = {path.partition("-")[2] or path: reason for path, reason in names.items()}
    assert reasons["link.conf"] == "a symbolic link"
    assert reasons["binary.conf"] == "not UTF-8"
    assert reasons["broken.conf"] == "not understood"
    assert reasons["none.conf"] == "there is no such file"
    assert "can't list instances" in reasons["1.json"]
    assert reasons["records/broken.json"] == "no journal of gpustack"
    assert reasons["records/linked.json"] == "a symbolic link"
    assert reasons["spec.json"] == "not understood"
    (tmp_path / "no.yaml").unlink()
    assert omitted(tmp_path)["spec.json"] == "there is no such file"


def collected(directory: Path, cloud: StandIn, **more: Any) -> dict[str, Any]:
    """The data of the parts, by path."""
    spec = directory / "gpustack.yaml"
    spec.write_text(
        'version: 1\nmodels: {k4200: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {"gpu[1:2]": [k4200]}\n'
    )
    known = {
        "sources": WhySources(spec=spec, scanned=(facts_of("gpu1", 0x81), facts_of("gpu2", 0x81))),
        "checks": list,
        **more,
    }
    contents = BundleContents(cloud=lambda: cloud.connection, **known)
    return {part.path: part.data for part in parts(contents, Masking()) if not part.omitted}


def test_hosts_have_their_answer_and_their_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    cloud = with_devices([device("gpu1", 0x82)])
    cloud.answers["compute /servers/detail?all_tenants=1"] = servers()
    found = collected(tmp_path, cloud, hosts=["gpu1", "gpu9"])
    answer = found["why/host-1.json"]
    assert (answer["host"], [gpu["address"] for gpu in answer["gpus"]]) == ("gpu1", ["0000:81:00.0", "0000:82:00.0"])
    assert answer["summary"].startswith("gpu1: 1 in the host")
    assert "why/host-2.json" not in found
    codes = [entry["code"] for entry in found["findings.json"]]
    assert "GPU589" in codes
    hosts = [data["hosts"][0]["hostname"] for path, data in found.items() if path.startswith("facts/")]
    assert hosts == ["gpu1"]
    everything = collected(tmp_path, cloud)
    assert [path for path in everything if path.startswith("facts/")] == ["facts/1.json", "facts/2.json"]
    assert everything["findings.json"] == []


def test_failures_have_the_steps_of_the_failing_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = cloud(Planted())
    path = f"compute /servers/{VM}/os-instance-actions"
    start = {"action": "start", "request_id": "req-2", "start_time": "2026-11-24T15:00:00", "message": None}
    made.answers[path][1]["instanceActions"].insert(0, start)  # type: ignore[index, union-attr]
    (failure,) = collected(tmp_path, made)["failures.json"]
    assert ([step["name"] for step in failure["steps"]], failure["host"]) == (["compute_x"], None)
    assert [event["request"] for event in failure["events"]] == ["req-2", "req-1"]
    assert failure["failed_at"] == "2026-11-24T14:02:00Z"
    made.answers[path] = (200, {"instanceActions": [start]})
    del made.answers[f"compute /servers/{VM}"][1]["server"]["fault"]  # type: ignore[union-attr, index]
    (failure,) = collected(tmp_path, made)["failures.json"]
    assert (failure["steps"], failure["failed_at"]) == ([], None)


def test_files_of_directories_are_read_and_unreadable_ones_listed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    service = tmp_path / "nova"
    service.mkdir()
    (service / "nova.conf").write_text("[DEFAULT]\ndebug = true\nhost = gpu1\n[pci]\nreport_in_placement = true\n")
    (service / "all.yml").write_text("nova: [{debug: true, host: null}]\n")
    (tmp_path / "broken.yaml").write_text("a: [")
    found = collected(tmp_path, StandIn(), configuration=[service, service / "all.yml", tmp_path / "broken.yaml"])
    files = {path: data for path, data in found.items() if path.startswith("configuration/")}
    assert files["configuration/1-nova.conf"].splitlines() == [
        *("[DEFAULT]", "debug = true", "host = gpu1", "[pci]", "report_in_placement = true"),
    ]
    assert files["configuration/2-all.yml"] == {"nova": [{"debug": True, "host": None}]}
    assert len(files) == 2
