"""Flavors on a real Keystone and a real Nova API, over HTTP: how many requests, and what an interruption leaves."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from gpustack.base.errors import CloudError
from gpustack.cli.app import main
from gpustack.cloud.flavors import FlavorCloud
from gpustack.nova_options.releases import release
from gpustack.offer.flavor.apply import plan
from gpustack.offer.flavor.compare import FlavorChoices
from gpustack.offer.flavor.desired import wanted
from gpustack.offer.flavor.flavors import MARK, PresentFlavor, WantedFlavor, present_flavors
from gpustack.spec.extra_specs import ALIAS
from gpustack.spec.load import parse_spec
from gpustack_demo.embedded.releases import available
from support.change_runs import apply_flavors as apply
from support.flavor_clouds import Proxied, proxied

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # of its own code
HEAD = """\
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}, alias: K4200}}
hosts: {gpu1: [k4200]}
nova: {release: "2025.2"}
"""
FIRST = f"""{HEAD}
flavors:
  "g1.k4200.{{count}}":
    model: k4200
    count: [1]
    per_gpu: {{vcpus: 8, ram: 32GiB, disk: 40GiB}}
  lab:
    model: k4200
    vcpus: 4
    ram: 16GiB
    disk: 20
    access: [research]
    numa: {{policy: required, nodes: 1}}
    hide_hypervisor: true
    description: For the course
"""
SECOND = f"""{HEAD}
flavors:
  "g1.k4200.{{count}}":
    model: k4200
    count: 1
    per_gpu: {{vcpus: 8, ram: 32GiB, disk: 40GiB}}
    cpu_policy: dedicated
  lab:
    model: k4200
    vcpus: 4
    ram: 16GiB
    disk: 20
    access: [teaching, admin]
    mem_page_size: large
    maxphysaddr: passthrough
  new:
    model: k4200
    vcpus: 2
    ram: 2GiB
    disk: 1
    access: []
"""
ALL = FlavorChoices(prune=True)


CHOSEN = os.environ.get("GPUSTACK_NOVA_RELEASES", "2025.2 2026.2").split()
RELEASES = [entry.name for entry in available() if entry.name in CHOSEN or CHOSEN == ["all"]]


@pytest.fixture(scope="module", params=RELEASES)
def cloud(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxied]:
    with proxied(request.param, tmp_path_factory.mktemp("clouds")) as proxy:
        with proxy.cloud.connection() as connection:
            for name in ("research", "teaching"):
                assert connection.identity.post("/projects", json={"project": {"name": name}}).ok
        yield proxy


@pytest.fixture
def empty(cloud: Proxied, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxied]:
    """The cloud without flavors, and the environment that leads to it."""
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(cloud.clouds_yaml))
    monkeypatch.setenv("OS_CLOUD", "embedded")
    for name in [name for name in os.environ if name.startswith("OS_") and "CL" not in name]:
        monkeypatch.delenv(name)
    cloud.traffic.calm()
    yield cloud
    cloud.traffic.calm()
    with cloud.connection() as connection:
        clear(present_flavors(connection))


def clear(api: FlavorCloud[PresentFlavor]) -> None:
    for flavor in api.flavors():
        api.delete(flavor.id)


def flavors_of(text: str) -> tuple[WantedFlavor, ...]:
    if not text:
        return ()
    return wanted(parse_spec(text, "spec"), release=release("2025.2")).flavors


def state(api: FlavorCloud[PresentFlavor]) -> dict[str, Any]:
    """All flavors with the projects that may use them, without the ids that Nova makes."""
    by_name = {}
    for flavor in api.flavors():
        access = sorted(api.access(flavor.id)) if not flavor.public else None
        by_name[flavor.name] = {**flavor.to_dict(), "access": access, "id": None}
    return by_name


def test_a_second_apply_signs_in_and_lists_and_writes_nothing(empty: Proxied, tmp_path: Path) -> None:
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(FIRST)
    assert main(["flavor", "apply", str(spec), "--yes"]) == 0
    first = list(empty.traffic.requests)
    empty.traffic.calm()
    assert main(["flavor", "apply", str(spec), "--yes"]) == 0
    assert empty.traffic.requests == [
        "GET /v3",
        "POST /v3/auth/tokens",
        "GET /v2.1/flavors/detail?is_public=None&limit=1000",
        "GET /v3/projects?name=research&limit=1000",
    ]
    # The project's name; two for the public flavor; for the private one, its project, read before, and the mark of
    # access too; the lock.
    assert len(first) == 3 + 1 + 2 + 5 + 3


@pytest.mark.parametrize(("before", "after"), [("", FIRST), (FIRST, SECOND)], ids=["create", "change"])
def test_interrupted_at_every_request_a_second_run_completes(empty: Proxied, before: str, after: str) -> None:
    carried_out = empty.cloud.release == "2026.2"  # one release loses the request, the other its answer
    first, second = flavors_of(before), flavors_of(after)
    with empty.connection() as connection:
        api = present_flavors(connection)
        assert not apply(api, plan(api, first, ALL).operations)
        assert not apply(api, plan(api, second, ALL).operations)
        calm = state(api)
        for number in itertools.count():
            assert not apply(api, plan(api, first, ALL).operations)
            empty.traffic.calm()
            empty.traffic.dies_at, empty.traffic.carried_out = number, carried_out
            empty.traffic.comes_back = number % 2 == 0
            completed = goes_through(api, second)
            died = number < len(empty.traffic.requests)
            # A lost reading is repeated, and a change whose answer was lost is confirmed by reading.
            assert completed or died
            empty.traffic.calm()
            for flavor in api.flavors():
                assert ALIAS in flavor.extra_specs or (flavor.half_made and flavor.description.endswith(MARK))
            assert goes_through(api, second)
            assert state(api) == calm
            if not died:
                break
    assert number > 6


def test_a_server_error_at_any_write_is_reported_and_a_second_run_completes(empty: Proxied) -> None:
    flavors = flavors_of(FIRST)
    with empty.connection() as connection:
        api = present_flavors(connection)
        for number in itertools.count():
            clear(api)
            flavor_plan = plan(api, flavors)
            empty.traffic.calm()
            empty.traffic.fails_at = number
            failures = apply(api, flavor_plan.operations, jobs=1)
            failed = number < len(empty.traffic.requests)
            empty.traffic.calm()
            assert bool(failures) == failed
            assert not failed or "HTTP 500" in failures[0].error
            assert all(ALIAS in flavor.extra_specs for flavor in api.flavors())
            assert goes_through(api, flavors)
            assert not plan(api, flavors).operations
            if not failed:
                break
    assert number >= 6


def goes_through(api: FlavorCloud[PresentFlavor], flavors: Sequence[WantedFlavor]) -> bool:
    """Whether flavors are applied, one after the other, without a failure."""
    try:
        return not apply(api, plan(api, flavors, ALL).operations, jobs=1)
    except CloudError:
        return False


def test_interrupted_while_signing_in_says_so_and_a_second_run_completes(
    empty: Proxied, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(FIRST)
    for number in range(5):
        empty.traffic.calm()
        empty.traffic.dies_at, empty.traffic.comes_back = number, False
        assert main(["flavor", "apply", str(spec), "--yes"]) == CloudError.exit_code
        output = capsys.readouterr().err
        assert "Traceback" not in output
        assert "→" in output
    empty.traffic.calm()
    assert main(["flavor", "apply", str(spec), "--yes"]) == 0
    assert main(["flavor", "plan", str(spec), "--exit-code"]) == 0


def test_several_at_a_time(empty: Proxied) -> None:
    text = f"{HEAD}flavors:\n" + "".join(
        f"  f{n}: {{model: k4200, vcpus: {n + 1}, ram: 1GiB, disk: 1}}\n" for n in range(20)
    )
    with empty.connection() as connection:
        api = present_flavors(connection)
        assert not apply(api, plan(api, flavors_of(text)).operations, jobs=8)
        assert not plan(api, flavors_of(text)).operations
        assert len(empty.traffic.writes) == 40


def test_nova_accepts_an_extra_spec_without_a_validator(empty: Proxied) -> None:
    wide = "{model: k4200, vcpus: 1, ram: 1GiB, disk: 1, maxphysaddr: passthrough, secure_boot: true}"
    with empty.connection() as connection:
        api = present_flavors(connection)
        assert not apply(api, plan(api, flavors_of(f"{HEAD}flavors: {{f: {wide}}}\n")).operations)
        assert api.flavors()[0].extra_specs["hw:maxphysaddr_mode"] == "passthrough"


def test_nova_judges_other_extra_specs_and_nothing_is_left(
    empty: Proxied, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "gpustack.yaml"
    misspelt = '{model: k4200, vcpus: 1, ram: 1GiB, disk: 1, extra_specs: {"hw:cpu_polcy": shared}}'
    spec.write_text(f"{HEAD}flavors: {{f: {misspelt}}}\n")
    assert main(["flavor", "apply", str(spec), "--yes"]) == 22
    output = capsys.readouterr().err
    assert "hw:cpu_polcy" in output
    assert "nothing is left" in output
    with empty.connection() as connection:
        assert present_flavors(connection).flavors() == ()


def test_openstack_reads_what_gpustack_wrote(empty: Proxied) -> None:
    with empty.connection() as connection:
        api = present_flavors(connection)
        assert not apply(api, plan(api, flavors_of(FIRST)).operations)
        for flavor in api.flavors():
            document = json.loads(empty.cloud.openstack("flavor", "show", flavor.name, "-f", "json").stdout)
            assert document["properties"] == dict(flavor.extra_specs)
            assert (document["vcpus"], document["ram"], document["disk"]) == (
                flavor.sizes.vcpus,
                flavor.sizes.ram,
                flavor.sizes.disk,
            )
            assert document["description"] == flavor.description
            assert document["os-flavor-access:is_public"] == flavor.public
            if not flavor.public:
                assert document["access_project_ids"] == list(api.access(flavor.id))


def test_the_plugin_of_openstack_says_the_same(
    empty: Proxied, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spec = tmp_path / "gpustack.yaml"
    spec.write_text(FIRST)
    openstack = Path(sys.executable).with_name("openstack")

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(openstack), "gpu", "flavor", *arguments]
        return subprocess.run(command, env=empty.variables(), capture_output=True, text=True, check=False)

    assert run("plan", str(spec), "--exit-code").returncode == 3
    process = run("apply", str(spec), "--yes")
    assert process.returncode == 0, process.stderr
    listed = run("list", "--spec", str(spec), "-f", "json")
    assert main(["flavor", "list", "--spec", str(spec), "-f", "json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads(listed.stdout)
    assert [entry["Name"] for entry in json.loads(listed.stdout)] == ["g1.k4200.1", "lab"]
    refused = run("delete", "no-such", "lab", "--yes")
    assert refused.returncode == 22
    assert "1 of 2" in refused.stderr


def test_novas_schedulers_and_validation_pass_the_mark_over(cloud: Proxied) -> None:
    program = Path(__file__).parent / "judge_mark.py"
    python = cloud.cloud.environment.program("python")
    variables = {**cloud.cloud.environment.variables(), "OS_NOVA_DISABLE_EVENTLET_PATCHING": "true"}
    process = subprocess.run([str(python), str(program)], env=variables, capture_output=True, text=True, check=True)
    assert json.loads(process.stdout) == {
        "valid": True,
        "typo refused": True,
        "capabilities with the mark": True,
        "aggregates with the mark": True,
        "aggregates without a namespace": False,
    }
