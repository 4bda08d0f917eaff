"""Every input that gpustack reads, with what reads it; ``tests/unit/fuzz/test_readers.py`` derives the list again.

Files are named by the options of commands (``OPTIONS``), answers of hosts by the modules of the playbooks
(``MODULES``), and answers of APIs by the functions of ``gpustack.cloud``, which are found by their first parameter.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import inspect
import io
import json
import pkgutil
import random
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from inspect import formatannotation
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import gpustack.cloud
from gpustack.base.errors import GpustackError, PartialError, PlanError, UsageError
from gpustack.changes import journal as run_journal
from gpustack.changes import saved
from gpustack.changes.undo import plan_undo
from gpustack.cli import change as change_cli
from gpustack.cli.app import main
from gpustack.cloud.flavors import Flavor, FlavorCloud
from gpustack.cloud.image import ImageCloud
from gpustack.cloud.limits import LimitsCloud
from gpustack.configure import plugin_api as nova
from gpustack.connect.playbooks import results
from gpustack.connect.playbooks.inventory import AnsibleInventory
from gpustack.connect.playbooks.record import HostRecord, Record
from gpustack.connect.playbooks.show import line, problems
from gpustack.connect.ssh import program as ssh_program
from gpustack.hosts.facts import store
from gpustack.hosts.facts.collector import collect, text
from gpustack.novadb import databases, sources
from gpustack.novadb.sources import Sources
from gpustack.operate.capacity.stream import recorded
from gpustack.operate.why.instance import quoted
from gpustack.prepare import plugin_api as controller
from gpustack.repair import hypervisor, show
from gpustack.repair import plan as cleanup
from gpustack.repair.plan import Selection
from gpustack_demo.examples.host import write_host
from gpustack_demo.examples.hosts import talk_host
from support.cellfile import CELL_TABLES, CellFile, fill
from support.fleet_cloud import StandIn
from support.fuzz_inputs import RAW, SPEC, THERE
from support.fuzzing import Reader, by_name, damaged, spoiled, written
from support.host_samples import SNAPSHOTS

WRITTEN = "written"
OPENSSH = "OpenSSH's files of the operator"
OPTIONS: Mapping[str, str] = {
    # by the last option string of an argument, or its name
    "--baseline": "snapshot",
    "--cloud": "nova.conf",
    "--compute-config": "nova.conf",
    "--config-file": "nova.conf",
    "--console": "console",
    "--findings": WRITTEN,
    "--from": "deployment",
    "--identity": OPENSSH,
    "--inventory": "inventory",
    "--journal": WRITTEN,
    "--kernel-log": "kernel log",
    "--known-hosts": OPENSSH,
    "--log": WRITTEN,
    "--merge": "vendor data",
    "--metrics": WRITTEN,
    "--out": WRITTEN,
    "--path": WRITTEN,
    "--plot": WRITTEN,
    "--private-key": OPENSSH,
    "--record": WRITTEN,
    "--rendered": "nova.conf",
    "--root": "root",
    "--save": WRITTEN,
    "--scheduler-log": "scheduler log",
    "--snapshot": "snapshot",
    "--spec": "spec",
    "--ssh-config": OPENSSH,
    "--textfile": WRITTEN,
    "change": "run journal",
    "cloud": WRITTEN,
    "directory": WRITTEN,
    "paths": "nova.conf",
    "plan": "clean-up plan",
    "records": "record of a run",
    "spec": "spec",
}
MODULES: Mapping[str, str] = {
    "gpustack_bind": "events",
    "gpustack_domains": "domains",
    "gpustack_facts": "facts",
    "gpustack_files": "events",
    "gpustack_image": "events",
    "gpustack_nova_config": "nova answer",
    "gpustack_run": "events",
}
DEVICE = {"id": 1, "address": "0000:01:00.0", "status": "allocated", "dev_type": "type-PCI"}
PLAN: dict[str, Any] = {
    "gpustack_cleanup_plan": 1,
    "verdicts": [
        {
            **dict.fromkeys(("title", "cell", "host", "node", "instance", "because", "advice"), "x"),
            "class": "A",
            "status": "stale",
            "host_state": "up",
            "repair": "free",
            "evidence": ["e"],
            "devices": [DEVICE],
            "migrations": [],
            "stop_service": False,
            "allocation": None,
        }
    ],
}
HOSTS_OF_RUN = results._adapter().dump_json(
    results.RunResults(
        playbook="plan",
        specs=(results.SpecSeen(path="gpustack.yaml", sha256="0" * 64, hosts=("gpu01",)),),
        hosts=(HostRecord(host="gpu01", text="gpu01: 1 file", todo=True, planned={"file": 1}),),
    )
)
JOURNAL = [
    {"gpustack_cleanup_journal": 1},
    {
        "begin": 1,
        "cell": "c",
        "database": "u",
        "verdict": PLAN["verdicts"][0],
        "changes": [{"table": "pci_devices", "id": 1, "seen": {"status": "allocated"}, "new": {"status": "available"}}],
        "before": [
            {
                "id": 1,
                "status": "allocated",
                "instance_uuid": "vm",
                "updated_at": {"datetime": "2026-01-01T00:00:00"},
            }
        ],
        "allocation": None,
    },
    {"end": 1, "outcome": "done"},
]
CHANGES: list[dict[str, Any]] = [
    {"kind": "image", "seen": {"os_type": None}, "wanted": {"os_type": "windows"}},
    {"kind": "aggregate_host", "seen": False, "wanted": True, "about": {"host": "h", "aggregate": "a"}},
    {
        "kind": "limit",
        "seen": 1,
        "wanted": 2,
        "about": dict.fromkeys(("resource_class", "project", "description", "model", "project_name"), "CUSTOM_A"),
    },
    {"kind": "flavor", "seen": {"extra_specs": {"a": "b"}}, "wanted": {"extra_specs": {"a": None}}},
    {"kind": "flavor_access", "seen": {"p": False}, "wanted": {"p": True}},
]
PLANNED = [
    {"key": f"k{number}", "id": "i", "name": "n", "why": "w", "needs": [], "about": {}, **change}
    for number, change in enumerate(CHANGES)
]
RUN = [
    {"gpustack_change": 1, "id": "x", "command": "flavor apply", "changes": PLANNED},
    *(
        {word: f"k{number}", **more}
        for number in range(5)
        for word, more in (("begin", {}), ("end", {"result": "done"}))
    ),
    {
        "begin": "late",
        "planned": {**PLANNED[0], "key": "late", "kind": "instance", "seen": "ACTIVE", "wanted": "SHUTOFF"},
    },
]
SAVED = {"gpustack_plan": 1, "cloud": {}, "spec": "s", "spec_sha256": "", "changes": PLANNED}
CONF = (
    b'[pci]\nalias = {"vendor_id": "10de", "product_id": "11b4", "name": "a"}\ndevice_spec = {"address": "0000:81:*"}\n'
)
CONF += b"[api_database]\nconnection = sqlite:////x\n[DEFAULT]\nhost = gpu01\n"
VALUES = b'conf:\n  nova:\n    pci:\n      alias: {type: multistring, values: [\'{"name": "a"}\']}\n'
INVENTORY = b"""\
all:
  vars: {prefix: 192.0.2, racks: &racks [r1, r2]}
  children:
    gpus:
      hosts:
        gpu01: {ansible_host: '{{ prefix }}.1', ansible_port: 22, ansible_user: root, racks: *racks}
        gpu[02:03]: {ansible_ssh_common_args: '-o ProxyJump=bastion', ansible_become: true}
"""
CONSOLE = (
    b"[    1.0] NVRM: Xid (PCI:0000:81:00): 79, pid=1, GPU has fallen off the bus.\n"
    b'[    2.0] gpustack-guest: {"gpustack_guest": 1, "gpus": []}\n[    3.0] nouveau 0000:81:00.0: unknown chipset\n'
)
SCHEDULER_LOG = (
    b"INFO [None req-1 u p] Got no allocation candidates from the Placement API.\n"
    b"INFO Filtering removed all hosts for 'vm'. Filter results: ['ComputeFilter: (start: 1, end: 0)']\n"
)
REQUESTS = b"time,flavor,life\n0,g,10\n1.5,g,20\n"
EVENT = {
    "event": "task",
    "host": "a",
    "task": "Run",
    "phase": "plan",
    "changed": False,
    "done": {"file": 1},
    "ignored": False,
    "state": "failed",
    "action": "gpustack_plan",
    "result": {"msg": "m", "text": "t", "todo": True, "reboot": ["r"], "findings": [], "cmd": ["c"], "items": []},
}
IMAGES = {"6.1.0-37-amd64": {"modules": ["vfio_pci"], "files": {"/etc/modprobe.d/x.conf": {"text": "options x y=1\n"}}}}


HELM = {"conf": {"nova": {"DEFAULT": {"host": "gpu01"}, "pci": {"device_spec": ['{"address": "0000:81:*"}']}}}}
_READ = (0, PlanError.exit_code, PartialError.exit_code)
"""The exit codes of commands that have read their input."""


def command(*words: str) -> int | None:
    """Run a command of gpustack; an unexpected error is a fault."""
    errors, code = io.StringIO(), None
    with (
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(errors),
        contextlib.suppress(SystemExit),
    ):
        code = main(list(words))
    assert not re.search(r"^gpustack: .*unexpected [A-Z]\w*: |Traceback", errors.getvalue(), re.M), errors.getvalue()
    return code


def _spec(directory: Path) -> str:
    return str(written(directory, SPEC.encode(), "gpustack.yaml"))


def _file(words: str, honest: Any, value: Any, directory: Path) -> None:
    path = written(directory, value, "input.yaml")
    snapshot = written(directory, {"gpustack_snapshot": 1, "hosts": [RAW["k4200"]]}, "snapshot.json")
    conf = written(directory, value, "nova.conf")  # lint reads the options of a deployment's chart from *.yaml
    values = {"file": str(path), "conf": str(conf), "spec": _spec(directory), "snapshot": str(snapshot)}
    code = command(*(word.format(**values) for word in words.split()))
    assert value != honest or code in _READ, code


def _read(read: Callable[[Path], object], value: Any, directory: Path) -> None:
    lines = "\n".join(map(json.dumps, value)).encode("utf-8", "surrogatepass") if isinstance(value, list) else value
    path = written(directory, lines)
    path.chmod(0o600)
    read(path)


def _undo(path: Path) -> None:
    made, final = plan_undo(run_journal.read(path, change_cli.former()), change_cli.kinds())
    for change in (*made, *final):
        change.describe()
        change.details()
        json.dumps(change.to_record())


def _results(path: Path) -> None:
    results.joined({"a": results.load(path)})
    command("host", "results", str(path))


def _saved(path: Path) -> None:
    _, changes = saved.load(path, change_cli.kinds())
    for change in changes:
        change.describe()
        change.details()
        json.dumps(change.to_dict(), default=str)


def _facts(value: Any, directory: Path) -> None:
    spec = _spec(directory)
    steps: tuple[Callable[[], object], ...] = (
        lambda: controller.plan(spec, value, "gpu01", adopt=True, live=True),
        lambda: controller.undo(value, "gpu01", force=True),
        lambda: controller.verify(spec, value, IMAGES, "gpu01"),
        lambda: controller.verify_next(spec, value, "gpu01"),
        lambda: nova.overall(spec, {"gpu01": value}),
    )
    refused = 0
    for step in steps:
        try:
            step()
        except GpustackError:
            refused += 1
    if refused == len(steps):
        raise UsageError("every step refuses")


def _nova(value: Any, directory: Path) -> None:
    decided: Any = {"aliases": [], "computes": {"gpu01": []}}
    nova.for_host(_spec(directory), decided, "gpu01", services=["compute"], facts=RAW["k4200"], module_answer=value)


@functools.cache
def _ansible() -> None:
    """Import Ansible in the parent of the cases."""
    AnsibleInventory(["gpu01,"])


def _inventory(value: bytes, directory: Path) -> None:
    with contextlib.redirect_stderr(io.StringIO()):
        inventory = AnsibleInventory([str(written(directory, value, "inventory"))])
        for name in inventory.select([], None, list):
            inventory.groups(name)
            inventory.settings(name)


def _events(value: Any, directory: Path) -> None:
    record = Record()
    record.take({**EVENT, "result": value})
    record.take({"event": "end", "hosts": {"a": {"ok": 1}}})
    for host in record.hosts.values():
        json.dumps(host.to_dict())
        line(host)
        problems(host)


@functools.cache
def _template() -> Path:
    """The root of an example host, made in the parent of the cases."""
    directory = Path(tempfile.mkdtemp(prefix="gpustack-fuzz-root-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    write_host(directory / "talk", talk_host("talk"))
    return directory / "talk"


def _root(value: Any, directory: Path) -> None:
    """A directory that is read as the root of a host: its files are damaged, and one is a link without end."""
    rng = random.Random(repr(value))  # noqa: S311
    root = directory / "root"
    shutil.copytree(_template(), root, symlinks=True)
    files = sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink())
    for path in rng.sample(files, min(8, len(files))):
        path.write_bytes(spoiled(rng, path.read_bytes()[:100_000]))
    path = rng.choice(files)
    path.unlink(missing_ok=True)
    path.symlink_to(rng.choice(("/dev/zero", path.name, "/")))
    store.parse_host(json.loads(json.dumps(collect(str(root)))), "gpu01")
    command("guest", "check", "--root", str(root))


def _requests(value: bytes, directory: Path) -> None:
    try:
        recorded(value.decode("utf-8", "replace").splitlines(), {"g": cast("Any", SimpleNamespace())}, "requests.csv")
    except ValueError as error:  # as the command does
        raise UsageError(str(error)) from error


# --- databases ------------------------------------------------------------------------------------------------------


def _database(value: Any, directory: Path) -> None:
    """A cell whose values are damaged: ``value`` chooses them."""
    rng = random.Random(repr(value))  # noqa: S311
    cell = CellFile(f"sqlite:///{directory}/cell.sqlite")
    fill(cell)
    with cell.engine.begin() as connection:
        for _ in range(rng.randint(1, 6)):
            name = rng.choice(sorted(CELL_TABLES))
            columns = [row[1] for row in connection.exec_driver_sql(f"PRAGMA table_info({name})").all()]
            strange = damaged(rng, ["allocated", 5, {"a": [1]}])[0:1] or [None]
            content = strange[0] if isinstance(strange[0], int | float | None) else json.dumps(strange[0])
            if isinstance(content, int) and abs(content) >= 2**63:
                content = str(content)[:50]
            column = rng.choice([name for name in columns if name != "id"])
            change = f"UPDATE OR IGNORE {name} SET {column} = ? WHERE rowid % 3 = {rng.randrange(3)}"
            connection.exec_driver_sql(change, (content,))
    cleanup_plan = cleanup.make(Sources.from_url(cell.url), Selection())
    for verdict in cleanup_plan.verdicts:
        show.explanation(verdict)
    json.dumps(cleanup_plan.to_dict(), default=str)


def _connection(value: str, directory: Path) -> None:
    database = databases.database("cell c", sources.fill_template(value, "mysql+pymysql://nova:s3cr3t@db/nova", "c"))
    assert "local_infile" not in database.url.query
    databases.engine(database).dispose()


# --- APIs -----------------------------------------------------------------------------------------------------------

EVERYTHING: dict[str, Any] = {
    # one document that answers every request
    "id": "vm-a",
    "name": "n",
    "status": "active",
    "visibility": "public",
    "owner": "p1",
    "tags": [],
    "size": 5,
    "services": [
        {"id": "s", "host": "vm-a", "binary": "nova-compute", "zone": "z", "status": "enabled", "state": "up"}
    ],
    "aggregate": {"id": 1, "uuid": "u", "name": "a", "hosts": ["gpu1"], "metadata": {"x": "y"}},
    "aggregates": [{"id": 1, "uuid": "u", "name": "a", "hosts": ["gpu1"], "metadata": {"x": "y"}}],
    "hypervisors": [
        {"id": "h", "hypervisor_hostname": "gpu1", "service": {"host": "gpu1"}, "state": "up", "status": "enabled"}
    ],
    "flavors": [
        {"id": "f", "name": "g", "vcpus": 1, "ram": 2, "disk": 3, "swap": 0, "extra_specs": {"a": "b"}},
    ],
    "flavor": {"id": "f", "name": "g", "vcpus": 1, "ram": 2, "disk": 3, "swap": 0, "extra_specs": {"a": "b"}},
    "flavor_access": [{"flavor_id": "f", "tenant_id": "p1"}],
    "projects": [{"id": "p1", "name": "vm-a", "domain_id": "d", "enabled": True}],
    "users": [{"id": "u1", "name": "ada"}],
    "domains": [{"id": "d", "name": "Default"}],
    "images": [{"id": "i", "name": "n", "status": "active", "visibility": "public", "owner": "p1", "os_type": "linux"}],
    "servers": [{"id": "vm-a", "name": "A", "status": "ACTIVE", "tenant_id": "p1", "user_id": "u1", "flavor": {}}],
    "server": {"id": "vm-a", "name": "A", "status": "ACTIVE", "tenant_id": "p1", "user_id": "u1", "flavor": {}},
    "server_group": {"name": "g", "policy": "anti-affinity", "rules": {"max_server_per_host": 2}, "members": ["vm-a"]},
    "instanceActions": [
        {"action": "stop", "request_id": "r", "start_time": "2026-01-01T00:00:00", "user_id": "u1", "message": None}
    ],
    "instanceAction": {"events": [{"event": "e", "traceback": "t", "result": "Error"}]},
    "migrations": [
        {"id": 1, "uuid": "vm-a", "status": "done", "instance_uuid": "vm-a", "created_at": "2026-01-01T00:00:00"}
    ],
    "resource_providers": [{"uuid": "gpu", "name": "gpu1_0000:81:00.0", "root_provider_uuid": "node", "generation": 1}],
    "allocations": {"gpu": {"generation": 1, "resources": {"CUSTOM_PCI": 1}}},
    "allocation_requests": [{"allocations": {"gpu": {"resources": {"CUSTOM_PCI": 1}}}}],
    "provider_summaries": {"gpu": {"resources": {"CUSTOM_PCI": {"capacity": 1, "used": 0}}, "traits": ["T"]}},
    "inventories": {"CUSTOM_PCI": {"total": 1, "reserved": 0, "max_unit": 1, "allocation_ratio": 1.0}},
    "resource_provider_generation": 1,
    "usages": {"CUSTOM_PCI": 1},
    "traits": ["T"],
    "registered_limits": [{"id": "l", "service_id": "s", "resource_name": "class:CUSTOM_PCI", "default_limit": 1}],
    "limits": [{"id": "l", "service_id": "s", "resource_name": "class:CUSTOM_PCI", "resource_limit": 1}],
    "model": {"name": "flat"},
    "endpoints": [{"id": "e", "service_id": "s", "interface": "public", "region_id": "R"}],
    "ports": [{"id": "p", "device_id": "vm-a", "binding:vnic_type": "direct", "binding:host_id": "gpu1"}],
    "output": "[    1.0] Linux version 6.1",
    "resource_classes": [{"name": "CUSTOM_PCI_10DE_11B4"}],
    "consumer_generation": 1,
    "project_id": "p1",
    "user_id": "u1",
}
ARGUMENTS: Mapping[str, Any] = {"str": "vm-a", "int": 1, "bool": True}
CLIENTS: tuple[Any, ...] = (partial(FlavorCloud, kind=Flavor), ImageCloud, LimitsCloud)
ELSEWHERE = {"ports_of", "LimitsCloud.create", "LimitsCloud.find", "LimitsCloud.own", "LimitsCloud.present"}
"""Need keystoneauth's session: ``tests/unit/prepare/drain``, ``tests/nova/quota``."""
WRITES = {"FlavorCloud.delete", "FlavorCloud.describe", "FlavorCloud.grant", "FlavorCloud.revoke", "delete_aggregate"}
WRITES |= {
    "close",
    "reopen",
    "set_reason",
    "FlavorCloud.unset_extra_spec",
    "ImageCloud.project",
    "clock",
    "may",
    "may_reserve",
    "may_switch",
}
"""Read no content of an answer."""
UNREAD = ELSEWHERE | WRITES | {"limited", "connect_as", "sign_in", "place_of", "request", "get", "find"}
UNREAD |= {"again", "connect", "shared", "pages", "listing", "newest"}
"""Functions of ``gpustack.cloud.session`` that the others call, or that read Keystone through keystoneauth."""


def functions() -> Iterator[tuple[str, Callable[[Any], object]]]:
    """Every function and method that reads an API, by name, to be called with a connection."""
    for info in pkgutil.iter_modules(gpustack.cloud.__path__):
        module = importlib.import_module(f"gpustack.cloud.{info.name}")
        for name, function in inspect.getmembers(module, inspect.isfunction):
            parameters = list(inspect.signature(function).parameters.values())
            foreign = function.__module__ != module.__name__ or name.startswith("_") or name in UNREAD
            if foreign or not parameters or parameters[0].name not in ("cloud", "connection"):
                continue
            if (values := _values(parameters[1:])) is not None:
                yield f"{info.name}.{name}", partial(_called, function, values)
    for client in CLIENTS:
        kind: Any = getattr(client, "func", client)
        for name, method in inspect.getmembers(kind, inspect.isfunction):
            values = _values(list(inspect.signature(method).parameters.values())[1:])
            named = f"{kind.__name__}.{name}"
            if not name.startswith("_") and named not in UNREAD and values is not None:
                yield f"{kind.__name__}.{name}", partial(_of_client, client, name, values)


def _values(parameters: list[inspect.Parameter]) -> dict[str, Any] | None:
    """Values for the parameters without a default; None if one has another type."""
    values = {}
    for parameter in parameters:
        if parameter.default is not inspect.Parameter.empty:
            continue
        kind = parameter.annotation if isinstance(parameter.annotation, str) else formatannotation(parameter.annotation)
        kind = kind.replace("collections.abc.", "").removesuffix(" | None")
        if kind.startswith(("Collection[str]", "Iterable[str]")):
            values[parameter.name] = ["vm-a"]
        elif kind in ARGUMENTS:
            values[parameter.name] = ARGUMENTS[kind]
        else:
            return None
    return values


def _called(function: Callable[..., object], values: Mapping[str, Any], cloud: Any) -> object:
    return function(cloud, **values)


def _of_client(client: Callable[[Any], object], name: str, values: Mapping[str, Any], cloud: Any) -> object:
    return getattr(client(cloud), name)(**values)


def _api(function: Callable[[Any], object], value: Any, directory: Path) -> None:
    answered = []

    def answer(path: str) -> tuple[int, Any]:
        answered.append(path)
        # A list without an end is a fault of a service, too: the reader must not follow it for ever.
        return 200, value

    cloud = StandIn(answers=dict.fromkeys(("compute", "placement", "identity", "image"), answer))
    result = function(cloud)
    if inspect.isgenerator(result):
        list(result)
    assert len(answered) < 1000, answered[:3]


SNAPSHOT = {"gpustack_snapshot": 1, "hosts": [RAW["k4200"]]}
HONEST = tuple(
    document
    for path in sorted(SNAPSHOTS.glob("*.json"))
    for document in json.loads(path.read_text(encoding="utf-8")).get("hosts", ())
)


_ABSOLUTE = {f"{kind}{name}": 1 for name in ("Instances", "Cores", "RAMSize", "RAM") for kind in ("maxTotal", "total")}
_HONEST: Any = {
    "quotas": {**EVERYTHING, "limits": {"absolute": _ABSOLUTE | {f"{name}Used": 0 for name in _ABSOLUTE}}},
}
"""Readers whose answer has a key of another service's in another form."""


def _command(name: str, honest: Any, words: str) -> Reader:
    return _other(name, partial(_file, words, honest), honest)


def _other(name: str, read: Callable[[Any, Path], object], *honest: Any) -> Reader:
    return Reader(name=name, honest=honest, read=read, plant=PLANTS.get(name, ""))


PLANTS: Mapping[str, str] = {
    # readers that refuse little: the function that gets a planted fault
    "console": "gpustack.offer.guest.inside.console:facts",
    "database": "gpustack.repair.show:explanation",
    "domains": "gpustack.repair.hypervisor:_texts",
    "events": "gpustack.connect.playbooks.record:Record.take",
    "kernel log": "gpustack.hosts.health.kernel_log:table",
    "root": "gpustack.hosts.facts.store:parse_host",
    "scheduler log": "gpustack.hosts.facts.collector.text:lines",
    "vendor data": "gpustack.offer.guest.vendordata:render",
}
_CONTENT = "gpustack.cloud.session:content_of"
URLS = ("mysql+pymysql://nova:s3cr3t@127.0.0.1:1/nova", "{scheme}://{username}:x@h/d")
RENDER = "nova render {spec} --snapshot {snapshot} --deployment openstack-helm --from {file}"
READERS = by_name(
    (
        _command("spec", SPEC.encode(), "host plan {file} --snapshot {snapshot}"),
        _command("spec check", SPEC.encode(), "spec check {file}"),
        _command("snapshot", SNAPSHOT, "host plan {spec} --snapshot {file}"),
        _command("snapshot as baseline", SNAPSHOT, "health --snapshot {snapshot} --baseline {file}"),
        _command("nova.conf", CONF, "nova lint {conf} --spec {spec}"),
        _command("nova.conf in YAML", HELM, "nova lint {file} --spec {spec}"),
        _command("deployment", VALUES, RENDER),
        _command("console", CONSOLE, "guest check --console {file}"),
        _command("kernel log", CONSOLE, "health --kernel-log {file}"),
        _other("scheduler log", lambda value, _: quoted(text.lines(value), "vm", "req-1"), SCHEDULER_LOG),
        _command("vendor data", {"ntp": ["a"]}, "guest vendordata {spec} --merge {file}"),
        replace(_other("root", _root, "x"), prepare=_template),
        _other("requests", _requests, REQUESTS),
        _other("clean-up journal", partial(_read, _undo), JOURNAL),
        _other("clean-up plan", partial(_read, show.load_plan), json.dumps(PLAN).encode()),
        _other("run journal", partial(_read, _undo), RUN),
        _other("record of a run", partial(_read, _results), HOSTS_OF_RUN),
        _other("saved plan", partial(_read, _saved), json.dumps(SAVED).encode()),
        _other("facts", _facts, RAW["k4200"], RAW["k4200-prepared"], *HONEST),
        _other("program", lambda value, _: ssh_program._document(value, "a"), json.dumps(RAW["k4200"]).encode()),
        _other("domains", lambda value, _: hypervisor.usage(value), {"used": {"0000:81:00.0": ["u"]}, "unread": []}),
        _other("nova answer", _nova, THERE),
        _other("events", _events, EVENT["result"]),
        replace(
            _other("inventory", _inventory, INVENTORY, b"[gpus]\ngpu[01:02] ansible_port=22 ansible_user=root\n"),
            prepare=_ansible,
        ),
        _other("database", _database, ["x"]),
        _other("connection", _connection, *URLS),
        *(
            Reader(
                name=f"API {name}",
                honest=(_HONEST.get(name.rpartition(":")[2].rpartition(".")[2], EVERYTHING),),
                read=partial(_api, read),
                plant=_CONTENT,
            )
            for name, read in functions()
        ),
    )
)
