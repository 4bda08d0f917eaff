"""No two commands disagree about a GPU, whatever a host looks like.

Each host is the prepared host with one fact changed: every field of the facts' model takes other values of its type,
and Hypothesis combines several. One run of each command judges all of them. What `scan`, `host plan`, `nova render`
and `nova lint` print is parsed; flavors, quotas, images, nodes of guests, capacity, the fleet and why are asked by
their pure cores.
"""

import ast
import contextlib
import copy
import io
import json
import tempfile
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

import gpustack
from gpustack.base.errors import GpustackError
from gpustack.cli.app import main
from gpustack.cloud.compute import Hypervisor, Service
from gpustack.configure import packing
from gpustack.configure.lint import lint
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.numa_nodes import spanning_flavors
from gpustack.fleet.cards import Models, models_of
from gpustack.fleet.index import Answers, Index
from gpustack.fleet.join import join
from gpustack.fleet.model import Fleet, Gpu, State
from gpustack.fleet.summary import host_counts
from gpustack.hosts.facts.model import Cpu, Function, Host, Iommu
from gpustack.hosts.facts.store import parse_host
from gpustack.hosts.readiness.assessment import Readiness
from gpustack.nova_options.device_spec import DeviceSpec, offered
from gpustack.nova_options.releases import release
from gpustack.offer.flavor.shares import host_shares
from gpustack.offer.guest.kubernetes.groups import node_groups
from gpustack.offer.image.needs import needs_of
from gpustack.offer.quota.compare import gpus_of
from gpustack.operate.capacity.hosts import Sources, hosts
from gpustack.operate.capacity.read import Rooms
from gpustack.operate.why.host import _gpus
from gpustack.operate.why.links import BOUND
from gpustack.operate.why.read import WhySources
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec
from gpustack.spec.verdict import HostVerdicts, verdicts
from support.fleet_answers import device
from support.host_samples import Raw, snapshot
from support.mediated_hosts import parted

PRODUCT = Path(gpustack.__file__).parent
RELEASE = release("2025.2")
GPUS = ("0000:84:00.0", "0000:88:00.0")
OUT = ("0000:88:00.0",)
SPEC = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}}}
hosts: {"*": [k4200]}
nova: {release: "2025.2", placement: "off", deployment: drop-in}
quotas: {default: {k4200: 0}}
OUT
"""
FLAVORS = "flavors: {g1: {model: k4200, per_gpu: {vcpus: auto, ram: auto, disk: 40GiB}, reserve: {vcpus: 0, ram: 0}}}\n"
READINESS = {f"GPU0{number:02}" for number in range(40)} | {"GPU111", "GPU112", "GPU118", "GPU119", "GPU123"}
SECOND = next(f for f in snapshot("k4200-prepared")["pci"] if f["address"] == GPUS[1])
NIC = {
    "address": "0000:88:00.2",
    "vendor": "8086",
    "product": "1521",
    "class": "020000",
    "driver": "igb",
    "iommu_group": SECOND["iommu_group"],
    "reset_methods": ["flr"],
}
BASE = snapshot("k4200-prepared")


def change(place: str, value: object) -> Raw:
    """The prepared host with one fact changed: ``iommu.group_count``, or ``pci.driver`` of the second GPU."""
    raw = copy.deepcopy(BASE)
    target = next(f for f in raw["pci"] if f["address"] == GPUS[1]) if place.startswith("pci.") else raw
    *parents, last = place.removeprefix("pci.").split(".")
    for parent in parents:
        target = target[parent]
    target[last] = value
    return raw


def values(annotation: str) -> Iterator[object]:
    """Other values of a field, by the name of its type."""
    if "bool" in annotation:
        yield from (True, False)
    elif "tuple" in annotation:
        yield []
    elif "int" in annotation or "Number" in annotation:
        yield from (0, 4)
    elif "str" in annotation or "Line" in annotation:
        yield from ("", "vfio-pci", "nouveau")
    yield None


def changes() -> Iterator[tuple[str, object]]:
    """Each field of the facts' model that a verdict may depend on, with other values."""
    for prefix, model in (("pci.", Function), ("iommu.", Iommu), ("cpu.", Cpu), ("", Host)):
        for name, field in model.model_fields.items():
            if name not in ("address", "hostname", "version", "iommu", "cpu", "pci"):
                for value in values(str(field.annotation)):
                    yield prefix + (field.alias or name), value
    yield "pci.address", "10000:88:00.0"
    yield "pci.bars", [{"index": 1, "start": 0, "size": 4096}]
    yield "pci.physical_function", "0000:84:00.0"
    yield "unread", [{"path": f"/sys/bus/pci/devices/{GPUS[1]}/driver", "error": "EIO"}]
    yield "unread", [{"path": f"/sys/bus/pci/devices/{GPUS[0]}/iommu_group", "error": "EIO"}]
    yield "container", "docker"
    yield "files./etc/default/grub", {"text": "eval $(date)\n", "mode": "0644"}
    yield "pci.iommu_group", next(f for f in BASE["pci"] if f["address"] == GPUS[0])["iommu_group"]


def single() -> Iterator[Raw]:
    for place, value in changes():
        yield change(place, value)
    yield {**copy.deepcopy(BASE), "pci": [*BASE["pci"], NIC]}


def readable(documents: Iterator[Raw]) -> list[Raw]:
    """The hosts that are valid facts, each with a name of its own."""
    raws: list[Raw] = []
    for raw in documents:
        raw["hostname"] = f"gpu{len(raws):03}"
        with contextlib.suppress(GpustackError, ValidationError):
            parse_host(raw, "test")
            raws.append(raw)
    return raws


def run(*arguments: str) -> Any:
    """The JSON of a command."""
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(io.StringIO()):
        main([*arguments, "-f", "json"])
    return json.loads(out.getvalue())


def agree(raws: list[Raw], out: tuple[str, ...], directory: Path) -> Counter[str]:
    """Judge the hosts with each command, and compare.

    :return: the number of GPUs by the answer that all gave.
    """
    entries = [{"host": raw["hostname"], "address": address, "reason": "x"} for raw in raws for address in out]
    text = SPEC.replace("OUT", f"out_of_service: {json.dumps(entries)}" if entries else "")
    spec_file, facts_file, rendered = directory / "spec.yaml", directory / "hosts.json", directory / "rendered"
    spec_file.write_text(text, encoding="utf-8")
    facts_file.write_text(json.dumps({"gpustack_snapshot": 1, "hosts": raws}), encoding="utf-8")
    spec, facts = parse_spec(text, "spec"), {raw["hostname"]: parse_host(raw, "test") for raw in raws}
    source = ("--snapshot", str(facts_file))
    scan = {(row["host"], row["address"]): row for row in run("scan", *source)}
    plans = {plan["host"]: plan for plan in run("host", "plan", str(spec_file), *source)}
    render = run("nova", "render", str(spec_file), *source, "--out", str(rendered))
    offers = {name: _offered(render["files"], host) for name, host in facts.items()}
    written = {file["target"] for file in render["files"]}
    reported: dict[str, set[str]] = {}
    for entry in render["findings"]:
        reported.setdefault(entry["place"].partition(" ")[0], set()).add(entry["code"])
    shares = {share.host: share for share in host_shares(spec, [*facts.values()])}
    quotas, free, fleet = gpus_of(spec, [*facts.values()]), _free(spec, facts), _fleet(spec, facts)
    answers: Counter[str] = Counter()
    flavored = parse_spec(f"{text}{FLAVORS}", "spec")
    paired = parse_spec(f"{text}{FLAVORS.replace('model:', 'count: 2, model:')}", "spec")
    marked = LintSubject.of_spec(flavored, RELEASE, [*facts.values()]).marked
    warned = _warned(flavored, facts, directory)
    for name, host in facts.items():
        plan, offer = plans[name], offers[name]
        assigned = [a for a in GPUS if (f := host.functions.get(a)) and f.ids == "10de:11b4" and (name, a) in scan]
        counted = shares[name].gpus["k4200"] if name in shares else ()
        about = f"{name}: {plan['findings']} {reported.get(name)}"
        assert {gpu.main.address for gpu in counted} == offer or name not in written, about
        assert sum(quotas[name].values()) == len(counted), about
        assert sum(free[name] or ()) <= len(counted), about
        (nodes,) = node_groups(flavored, hosts=[host]).groups
        assert bool(nodes.sizes) != bool(nodes.unsized), about  # a node without sizes has a finding
        assert counted or nodes.sizes is None, about
        assert nodes.sizes or not (counted and host.cpu.logical and (host.memory_mib or 0) > 1024), about
        assert packing.gpus_of(spec, [host]) == [{"k4200": len(counted)} if counted else {}], about
        assert sum(marked[name].values()) == len(counted), about
        assert _advised(spec, host, directory) == bool(offer) or name not in written, about
        (one, *_) = needs_of(flavored, RELEASE, [host])
        assert one.architectures == ({host.architecture} if counted and host.architecture else set()), about
        nodes_of = {gpu.main.numa_node for gpu in counted}
        assert any(spanning_flavors(host, paired)) == (len(nodes_of) > 1 and None not in nodes_of), about
        held = {address for address in assigned if scan[name, address]["state"] == "ready"}
        _of_facts(spec, host, held, about)
        refused = {gpu["address"] for gpu in plan["gpus"] if gpu["refused"]}
        skipped = {f["place"].partition(" ")[2] for f in plan["findings"] if f["code"] == "GPU500"}
        of_host = {f["code"] for f in plan["findings"] if f["severity"] == "error" and f["place"] == name} & READINESS
        for address in assigned:
            row, state = scan[name, address], fleet[name, address]
            codes = {reason["code"] for reason in row["reasons"]}
            if name in written and address not in out:
                assert ((name, address) in warned) == (address not in offer), about
            if address in offer:
                assert address not in refused, about
                assert not of_host, about
                assert row["state"] in ("ready", "preparable"), about
                assert state is (State.FREE if not (codes or plan["operations"]) else state), about
            elif address not in out and address not in skipped:
                assert plan["refused"], about
                assert reported[name] & (codes | READINESS | {"GPU024", "GPU032"}), about
                assert state is not State.FREE or row["state"] == "unknown" or name not in written, about
            answers[row["state"] if address not in out else "out of service"] += 1
        assert offer <= {*assigned} - {*out}, about
        if not plan["operations"] and not plan["refused"] and not out and free[name] is not None:
            assert sum(free[name] or ()) == len(counted), about
    _lint(rendered, facts_file, spec_file)
    return answers


def _offered(files: list[dict[str, Any]], host: Host) -> set[str]:
    """The functions that Nova takes by the rendered device_spec of a host."""
    texts = [f["text"] for f in files if f["target"] == host.hostname and "compute" in f["services"]]
    lines = [line.partition(" = ")[2] for text in texts for line in text.splitlines() if line.startswith("device_spec")]
    return {*offered([DeviceSpec.parse(json.loads(line)) for line in lines], host)}


def _free(spec: Spec, facts: dict[str, Host]) -> dict[str, list[int] | None]:
    """The free GPUs that capacity counts from the facts; None if they are unknown."""
    known: dict[str, Any] = {"enabled": True, "up": True, "ram": 1, "cpus": 2, "disk": 3}
    hypervisors = [Hypervisor(uuid=name, node=name, host=name, **known) for name in facts]
    sources = Sources(fleet=Fleet(), hypervisors=hypervisors, rooms=Rooms(), facts=[*facts.values()])
    counted = {host.name: host.cards for host in hosts(spec, sources)}
    free = {name: counted.get(name, ()) for name in facts}
    return {name: None if cards is None else [entry.count for entry in cards] for name, cards in free.items()}


def _fleet(spec: Spec, facts: dict[str, Host]) -> dict[tuple[str, str], State]:
    """The states of GPUs that Placement has as free."""
    devices = [device(name, int(address[5:7], 16)) for name in facts for address in GPUS]
    answers = Answers(servers=(), devices=tuple(devices), hosts=(*facts.values(),), models=models_of(spec), spec=spec)
    return {(gpu.host, gpu.address): gpu.state for gpu in join(answers).gpus}


def _of_facts(spec: Spec, host: Host, held: set[str], about: str) -> None:
    """What the fleet and why say of a host whose GPUs no other source lists; ``held``: those that are ready."""
    name = host.hostname
    answers = Answers(servers=(), devices=(), hosts=(host,), models=models_of(spec), spec=spec)
    unlisted = Gpu(host=name, model="k4200", state=State.ALLOCATED)
    (count,) = host_counts([unlisted], Index(answers))
    assert (count.total or 0) == len(held), about
    (first, *_) = GPUS
    listed = replace(answers, devices=(device(name, int(first[5:7], 16)),), services=(Service(host=name),))
    others = {gpu.address for gpu in join(listed).gpus if gpu.state is State.UNAVAILABLE}
    assert others - {first} == held - {first}, about
    unknown = join(replace(listed, devices=(), models=Models())).notes
    assert any(name in note for note in unknown) == bool(held), about
    for gpu in _gpus(Index(answers), Fleet(), name, WhySources(spec=Path("spec"))):
        assert gpu.address not in GPUS or (gpu.records[BOUND] is True) == (gpu.address in held), about


def _warned(spec: Spec, facts: dict[str, Host], directory: Path) -> set[tuple[str, str]]:
    """The GPUs that lint warns about if a device_spec offers all of them."""
    file = directory / "all.conf"
    file.write_text('[pci]\ndevice_spec = {"vendor_id": "10de", "product_id": "11b4"}\n', encoding="utf-8")
    report = lint([f"compute={file}"], LintSubject.of_spec(spec, RELEASE, [*facts.values()]))
    places = {entry.place for entry in report.findings if entry.code in READINESS}
    return {(name, address) for name in facts for address in GPUS if {name, f"{name} {address}"} & places}


def _advised(spec: Spec, host: Host, directory: Path) -> bool:
    """Whether lint advises a device_spec for the alias of a host that offers nothing."""
    file = directory / "alias.conf"
    alias = {"name": "k4200", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}
    file.write_text(f"[pci]\nalias = {json.dumps(alias)}\n", encoding="utf-8")
    report = lint([f"compute={file}"], LintSubject.of_spec(spec, RELEASE, [host]))
    return "GPU348" in {entry.code for entry in report.findings}


def _lint(rendered: Path, facts: Path, spec: Path) -> None:
    """The rendered files offer no GPU that lint knows to be unusable."""
    for result in run("nova", "lint", str(rendered), "--spec", str(spec), "--snapshot", str(facts)):
        for entry in result["Details"]:
            assert entry["code"] not in READINESS, entry


@pytest.mark.parametrize("out", [(), OUT], ids=["in service", "one GPU out of service"])
def test_one_changed_fact_leads_to_one_answer(out: tuple[str, ...], tmp_path: Path) -> None:
    raws = readable(single())
    assert len(raws) > 90
    answers = agree(raws, out, tmp_path)
    assert {"ready", "preparable", "blocked", "unknown"} <= {*answers} | ({"unknown"} if out else set())


CHANGES = [*changes()]


@settings(max_examples=6, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(st.lists(st.sampled_from(range(len(CHANGES))), min_size=2, max_size=3), min_size=20, max_size=20))
def test_several_changed_facts_lead_to_one_answer(picks: list[list[int]]) -> None:
    raws: list[Raw] = [copy.deepcopy(BASE)]  # the others may all be invalid
    for pick in picks:
        raw = copy.deepcopy(BASE)
        for number in pick:
            place, value = CHANGES[number]
            first, _, last = place.partition(".")
            if first == "pci":
                next((f for f in raw["pci"] if f["address"] == GPUS[1]), raw["pci"][-1])[last] = value
            else:
                raw[first] = change(place, value)[first]
        raws.append(raw)
    with tempfile.TemporaryDirectory() as directory:
        agree(readable(iter(raws)), (), Path(directory))


SHARED = """\
version: 1
models:
  large: {match: {vendor: "10de", product: "25b6"}, vgpu: {type: A16-8Q, count: 1}, alias: LARGE}
  small: {match: {vendor: "10de", product: "25b6"}, vgpu: {type: A16-4Q, count: 1}, alias: SMALL}
hosts: {"*": [large, small]}
nova: {release: "2025.2", placement: "off", deployment: drop-in}
quotas: {default: {large: 0}}
"""


@pytest.mark.parametrize(("large", "small", "units"), [("a16", "a16", 2), ("a16-8q", "a16-4q", 0)])
def test_virtual_functions_of_one_card_lead_to_one_answer(large: str, small: str, units: int, tmp_path: Path) -> None:
    """Nova can't distinguish those of several aliases."""
    card, *parts = parted(GPUS[0], 2)
    raw = copy.deepcopy(BASE) | {"hostname": "gpu000"}
    raw["kernel"] |= {"loaded_modules": ["nvidia", "nvidia_vgpu_vfio"], "nvidia_driver": "550.54.10"}
    others = [function for function in raw["pci"] if function["address"][:-2] not in (GPUS[0][:-2], GPUS[1][:-2])]
    typed = [{**part, "vgpu_type": number} for part, number in zip(parts, ("711", "710"), strict=True)]
    raw["pci"] = [*others, card, *typed]
    text = SHARED.replace("LARGE", large).replace("SMALL", small)
    spec_file, facts_file, rendered = tmp_path / "spec.yaml", tmp_path / "hosts.json", tmp_path / "rendered"
    spec_file.write_text(text, encoding="utf-8")
    facts_file.write_text(json.dumps({"gpustack_snapshot": 1, "hosts": [raw]}), encoding="utf-8")
    spec, host = parse_spec(text, "spec"), parse_host(raw, "test")
    source = ("--snapshot", str(facts_file))
    (plan,) = run("host", "plan", str(spec_file), *source)
    render = run("nova", "render", str(spec_file), *source, "--out", str(rendered))
    config = tmp_path / "nova.conf"
    entry = {"vendor_id": "10de", "product_id": "25b6", "managed": "no", "address": {"function": "[1-2]"}}
    config.write_text(f"[pci]\ndevice_spec = {json.dumps(entry)}\n", encoding="utf-8")
    warned = {entry.code for entry in lint([f"compute={config}"], LintSubject.of_spec(spec, RELEASE, [host])).findings}
    shares = [gpu for share in host_shares(spec, [host]) for gpus in share.gpus.values() for gpu in gpus]
    provider = device("gpu000", 0x84, capacity=2, resource_class="CUSTOM_PCI_10DE_25B6")
    fleet = join(Answers(servers=(), devices=(provider,), hosts=(host,), models=models_of(spec), spec=spec))
    (free,) = _free(spec, {"gpu000": host}).values()
    assert len(_offered(render["files"], host)) == units
    assert (len(shares), sum(gpus_of(spec, [host])["gpu000"].values()), sum(free or ())) == (units, units, units)
    assert [gpu.free for gpu in fleet.gpus] == [units]
    named = [
        "GPU979" in {entry["code"] for entry in plan["findings"]},
        "GPU979" in {entry["code"] for entry in render["findings"]},
        "GPU979" in {entry.code for entry in fleet.findings},
        "GPU979" in warned,
    ]
    assert named == [not units] * len(named)


CONSUMERS = sorted(
    ".".join(path.relative_to(PRODUCT).with_suffix("").parts)
    for path in PRODUCT.rglob("*.py")
    if "gpustack.spec.verdict" in (text := path.read_text(encoding="utf-8"))
    and any(
        isinstance(node, ast.ImportFrom)
        and node.module == "gpustack.spec.verdict"
        and "verdicts" in (name.name for name in node.names)
        for node in ast.walk(ast.parse(text))
    )
)
"""The modules that ask for verdicts: all of them."""


def lenient(spec: Spec | None, host: Host) -> HostVerdicts:
    """Verdicts by the spec alone."""
    judged = verdicts(spec, host)
    ready = Readiness(reasons=(), notes=())
    return replace(judged, all=tuple(replace(verdict, readiness=ready) for verdict in judged.all))


@pytest.mark.parametrize("module", CONSUMERS)
def test_a_consumer_with_a_rule_of_its_own_is_noticed(
    module: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(f"gpustack.{module}.verdicts", lenient)
    apart = change("pci.responds", False)
    next(f for f in apart["pci"] if f["address"] == GPUS[1])["numa_node"] = 0
    none = change("iommu.interrupt_remapping", False)
    with pytest.raises(AssertionError):
        agree(readable(iter([apart, change("pci.iommu_group", None), none])), (), tmp_path)
