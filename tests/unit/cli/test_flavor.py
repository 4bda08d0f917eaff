"""``gpustack flavor …`` on a model of Nova's API: what is printed, what is done, and the exit codes."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import yaml

from gpustack.cli.app import main
from gpustack.cli.flavor import InCloud
from gpustack.cloud.flavors import Sizes
from gpustack.cloud.session import Refused
from gpustack.offer.flavor.flavors import PresentFlavor
from gpustack.spec.extra_specs import ALIAS
from support.change_runs import without_cloud
from support.flavor_model import NovaModel

SPEC = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}, alias: K4200, numa_policy: preferred}
hosts: {gpu1: [k4200]}
nova: {release: "2025.2"}
flavors:
  "g1.{count}":
    model: k4200
    count: [1, 2]
    per_gpu: {vcpus: 8, ram: 32GiB, disk: 40GiB}
  lab: {model: k4200, vcpus: 4, ram: 8GiB, disk: 20, access: [research], numa: {policy: required, nodes: 1}}
"""


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> NovaModel:
    model = NovaModel(projects={"research": "1" * 32, "teaching": "2" * 32})
    without_cloud(monkeypatch, tmp_path / "state")
    monkeypatch.setattr(InCloud, "cloud", lambda self, parsed_args: model)
    for module in ("flavor.changes", "cloud_plan.plan"):
        monkeypatch.setattr(f"gpustack.offer.{module}.present_flavors", lambda connection, lookup=None: model)
    monkeypatch.chdir(tmp_path)
    Path("gpustack.yaml").write_text(SPEC)
    return model


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_plan_apply_list_show(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flavor", "plan", "gpustack.yaml", "--exit-code"]) == 3
    output = capsys.readouterr().out
    assert (
        "create lab (4 vCPUs, 8 GiB RAM, 20 GiB disk; for 1 project)\n    + pci_passthrough:alias = K4200:1\n" in output
    )
    assert output.endswith("3 to create, 0 to change, 0 to delete, 0 unchanged\n")
    assert not cloud.writes
    assert main(["flavor", "apply", "gpustack.yaml", "--yes"]) == 0
    capsys.readouterr()
    assert main(["flavor", "plan", "gpustack.yaml", "--exit-code", "-f", "json"]) == 0
    plan = json.loads(capsys.readouterr().out)
    assert main(["flavor", "plan", "gpustack.yaml", "-f", "yaml"]) == 0
    assert yaml.safe_load(capsys.readouterr().out) == plan
    assert main(["flavor", "list", "--spec", "gpustack.yaml", "--long", "-f", "json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [{**entry, "ID": ""} for entry in listed if entry["Name"] != "g1.1"] == [
        {
            "Name": "g1.2",
            "Model": ["k4200"],
            "GPUs": 2,
            "Alias": {"K4200": 2},
            "VCPUs": 16,
            "RAM": 65536,
            "Disk": 80,
            "Access": "public",
            "NUMA policy": "preferred",
            "State": "managed",
            "ID": "",
        },
        {
            "Name": "lab",
            "Model": ["k4200"],
            "GPUs": 1,
            "Alias": {"K4200": 1},
            "VCPUs": 4,
            "RAM": 8192,
            "Disk": 20,
            "Access": ["1" * 32],
            "NUMA policy": "required",
            "State": "managed",
            "ID": "",
        },
    ]
    assert main(["flavor", "list", "-f", "value", "-c", "Name", "-c", "Alias", "-c", "RAM"]) == 0
    assert capsys.readouterr().out == "g1.1 K4200:1 32 GiB\ng1.2 K4200:2 64 GiB\nlab K4200:1 8 GiB\n"
    assert main(["flavor", "show", "lab", "-f", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["gpus"] == {"K4200": 1}


@pytest.mark.parametrize(("name", "access"), [("g1.1", "public"), ("lab", "private")])
def test_users_of_one_project_see_a_flavor(
    cloud: NovaModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str, access: str
) -> None:
    """Nova refuses them the projects of a private flavor, and the instances of other projects."""

    def refuse(_flavor: str) -> None:
        raise Refused("Policy doesn't allow it", status=403)

    assert main(["flavor", "apply", "gpustack.yaml", "--yes"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(cloud, "users", refuse)
    monkeypatch.setattr(cloud, "access", refuse)
    assert main(["flavor", "show", name, "-f", "json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["access"], shown["instances"], shown["gpus"]) == (access, None, {"K4200": 1})


def test_shell_and_value_formats_carry_out_no_text_of_a_flavor(
    cloud: NovaModel, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = ("--vcpus", "1", "--ram", "1GiB", "--disk", "1")
    text = "$(id)\nstate forged"
    assert main(["flavor", "create", "x", "--alias", "A", *sizes, "--description", text, "--yes"]) == 0
    capsys.readouterr()
    assert main(["flavor", "show", "x", "-f", "shell", "-c", "description"]) == 0
    assert capsys.readouterr().out == 'description="\\$(id)\\\\nstate forged [gpustack]"\n'
    assert main(["flavor", "show", "x", "-f", "value", "-c", "description"]) == 0
    assert capsys.readouterr().out == "$(id)\\nstate forged [gpustack]\n"


def test_a_flavor_without_a_common_driver(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    models = 'models: {h100: {match: {vendor: "10de", product: "2331"}},'
    spec = SPEC.replace("models:\n  k4200:", f"{models}\n  k4200:").replace("preferred}\n", "preferred}}\n")
    both = spec.replace("[k4200]", "[k4200, h100]").replace(
        "{model: k4200, vcpus: 4", "{gpus: {k4200: 1, h100: 1}, vcpus: 4"
    )
    Path("gpustack.yaml").write_text(both)
    assert main(["flavor", "plan", "gpustack.yaml"]) == 0
    assert "WARNING GPU800 lab: " in capsys.readouterr().err


def test_apply_asks(cloud: NovaModel, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flavor", "apply", "gpustack.yaml"]) == 2
    assert "--yes" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin", Terminal("no\n"))
    assert main(["flavor", "apply", "gpustack.yaml"]) == 1
    assert not cloud.writes
    monkeypatch.setattr("sys.stdin", Terminal("y\n"))
    assert main(["flavor", "apply", "gpustack.yaml"]) == 0
    assert len(cloud.by_id) == 3


def test_an_error_refuses_all(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    cloud.by_id["x"] = PresentFlavor(id="x", name="lab", sizes=Sizes(vcpus=1, ram=1, disk=1))
    assert main(["flavor", "apply", "gpustack.yaml", "--yes"]) == 13
    assert "GPU401 lab" in capsys.readouterr().err
    assert not cloud.writes
    assert main(["flavor", "apply", "gpustack.yaml", "--yes", "--adopt"]) == 13
    assert "GPU400 lab" in capsys.readouterr().err
    assert main(["flavor", "apply", "gpustack.yaml", "--yes", "--adopt", "--replace", "lab"]) == 0
    assert cloud.by_name("lab").sizes.vcpus == 4


def test_failures_are_counted(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    cloud.refuses = "flavors g1.2"
    assert main(["flavor", "apply", "gpustack.yaml", "--yes"]) == 22
    output = capsys.readouterr().err
    assert "g1.2: failed: HTTP 400, injected" in output
    assert "1 of 4 operations failed or was skipped" in output


def test_a_half_made_flavor_is_reported_and_finished(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    cloud.dies_at, cloud.comes_back = 3, False  # when its extra specs are set
    assert main(["flavor", "apply", "gpustack.yaml", "--yes", "--jobs", "1"]) == 22
    assert "lab: unknown: the connection died" in capsys.readouterr().err
    cloud.dies_at = 10**9
    assert main(["flavor", "plan", "gpustack.yaml"]) == 0
    assert "GPU402 lab" in capsys.readouterr().err
    assert main(["flavor", "apply", "gpustack.yaml", "--yes"]) == 0
    assert {flavor.state for flavor in cloud.by_id.values()} == {"managed"}


def test_by_hand(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--vcpus", "16", "--ram", "64GiB", "--disk", "80"]
    create = [
        "flavor",
        "create",
        "hand",
        "--model",
        "k4200",
        "--count",
        "2",
        *sizes,
        "--property",
        "quota:x=1",
        "--yes",
    ]
    assert main(create) == 0
    assert cloud.by_name("hand").extra_specs[ALIAS] == "K4200:2"  # the alias is the spec's
    assert main(create) == 22
    assert (
        main(
            [
                "flavor",
                "set",
                "hand",
                "--count",
                "1",
                "--numa-policy",
                "required",
                "--unset-property",
                "quota:x",
                "--yes",
            ]
        )
        == 0
    )
    flavor = cloud.by_name("hand")
    assert (flavor.extra_specs[ALIAS], flavor.owned) == ("K4200:1", {ALIAS, "hw:pci_numa_affinity_policy"})
    writes = len(cloud.writes)
    assert main(["flavor", "set", "hand", "--count", "1", "--yes"]) == 0
    assert len(cloud.writes) == writes
    assert main(["flavor", "apply", "gpustack.yaml", "--yes", "--prune"]) == 0
    assert cloud.by_name("hand") is not None
    assert main(["flavor", "set", "hand", "--project", "research"]) == 2  # it is public
    assert main(["flavor", "set", "hand", "--unset-property", ALIAS]) == 2
    assert main(["flavor", "set", "hand", "--unset-property", "gpustack:sets"]) == 2
    capsys.readouterr()
    assert main(["flavor", "delete", "hand", "nobody", "--yes"]) == 22
    assert "1 of 2 flavors were not deleted" in capsys.readouterr().err
    assert cloud.by_name("hand") is None


def test_projects_by_hand(cloud: NovaModel) -> None:
    sizes = ["--vcpus", "1", "--ram", "1GiB", "--disk", "1"]
    assert main(["flavor", "create", "hand", "--alias", "A", *sizes, "--project", "research", "--yes"]) == 0
    (projects,) = cloud.lists.values()
    assert projects == {"1" * 32}
    assert main(["flavor", "set", "hand", "--project", "teaching", "--remove-project", "research", "--yes"]) == 0
    assert projects == {"2" * 32}


def test_foreign_flavors_and_flavors_in_use_are_kept(cloud: NovaModel) -> None:
    cloud.by_id["x"] = PresentFlavor(id="x", name="theirs", sizes=Sizes(vcpus=1, ram=1, disk=1))
    assert main(["flavor", "delete", "theirs"]) == 22
    assert main(["flavor", "set", "theirs", "--alias", "K4200"]) == 22
    assert main(["flavor", "apply", "gpustack.yaml", "--yes"]) == 0
    used = cloud.by_name("lab")
    cloud.instances[used.id] = 1
    assert main(["flavor", "delete", "lab"]) == 22
    assert main(["flavor", "delete", "lab", "--force", "--yes"]) == 0
    assert cloud.by_name("theirs") is not None


def test_a_spec_without_release(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    Path("gpustack.yaml").write_text(SPEC.replace('nova: {release: "2025.2"}\n', ""))
    assert main(["flavor", "plan", "gpustack.yaml"]) == 20
    assert "nova" in capsys.readouterr().err
    assert main(["flavor", "plan", "gpustack.yaml", "--release", "yoga"]) == 0


@pytest.mark.parametrize("size", ["1.5GiB", "32GB", "x", "-1", ""])
def test_sizes_that_are_none(cloud: NovaModel, size: str) -> None:
    assert main(["flavor", "create", "f", "--alias", "A", "--vcpus", "1", f"--ram={size}", "--disk", "1"]) == 2


@pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")
def test_without_a_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "none.yaml"))
    assert main(["flavor", "list", "--os-cloud", "nowhere"]) == 21
    output = capsys.readouterr().err
    assert "nowhere" in output
    assert "→" in output


def test_a_flavor_whose_alias_nova_can_not_read_is_listed_all_the_same(
    cloud: NovaModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each boot of it fails: somebody looks for it here."""
    sizes = Sizes(vcpus=1, ram=1, disk=1)
    cloud.by_id["1"] = PresentFlavor(id="1", name="odd", sizes=sizes, extra_specs={ALIAS: "K4200:1:2"})
    cloud.by_id["2"] = PresentFlavor(id="2", name="none", sizes=sizes)
    assert main(["flavor", "list", "-f", "value", "-c", "Name"]) == 0
    assert capsys.readouterr().out == "odd\n"
    assert main(["flavor", "list"]) == 0
    assert "K4200:1:2" in capsys.readouterr().out


@pytest.mark.parametrize("alias", ["K4200:0", "K4200:2:1", "K4200,P100", " "])
def test_an_alias_that_no_flavor_can_ask_for_is_refused(
    cloud: NovaModel, capsys: pytest.CaptureFixture[str], alias: str
) -> None:
    argv = ["flavor", "create", "x", "--alias", alias, "--vcpus", "1", "--ram", "1GiB", "--disk", "1"]
    assert main(argv) == 2
    assert "is not NAME or NAME:N" in capsys.readouterr().err
    assert not cloud.writes


def test_the_id_auto_is_one_that_is_made_up(cloud: NovaModel) -> None:
    """As in ``openstack flavor create``."""
    argv = ["flavor", "create", "x", "--alias", "K4200", "--vcpus", "1", "--ram", "1GiB", "--disk", "1"]
    assert main([*argv, "--id", "auto", "--yes"]) == 0
    assert list(cloud.by_id) != ["auto"]


SIZES = ("--vcpus", "1", "--ram", "1GiB", "--disk", "1")


def test_flavor_by_hand_requests_two_kinds_of_gpu(cloud: NovaModel) -> None:
    assert main(["flavor", "create", "mixed", "--model", "k4200", "--alias", "P100:2", *SIZES, "--yes"]) == 0
    assert cloud.by_name("mixed").gpus == {"K4200": 1, "P100": 2}
    assert main(["flavor", "set", "mixed", "--alias", "P100:4", "--alias", "K4200", "--yes"]) == 0
    assert cloud.by_name("mixed").gpus == {"P100": 4, "K4200": 1}
    assert cloud.by_name("mixed").description == "4 x P100, 1 x K4200 [gpustack]"


@pytest.mark.parametrize(
    "gpus",
    [("--alias", "K4200", "--alias", "P100"), ("--alias", "K4200:1"), ("--model", "k4200", "--model", "k4200")],
)
def test_count_with_several_kinds_of_gpu_is_refused(
    cloud: NovaModel, capsys: pytest.CaptureFixture[str], gpus: tuple[str, ...]
) -> None:
    assert main(["flavor", "create", "x", *gpus, "--count", "2", *SIZES]) == 2
    assert "--count is ambiguous: the GPUs are" in capsys.readouterr().err
    assert not cloud.writes


def test_default_description_follows_the_count(cloud: NovaModel) -> None:
    assert main(["flavor", "create", "hand", "--model", "k4200", *SIZES, "--yes"]) == 0
    assert main(["flavor", "create", "named", "--model", "k4200", "--description", "for the lab", *SIZES, "--yes"]) == 0
    for name in ("hand", "named"):
        assert main(["flavor", "set", name, "--count", "2", "--yes"]) == 0
    assert cloud.by_name("hand").description == "2 x K4200 [gpustack]"
    assert cloud.by_name("named").description == "for the lab [gpustack]"


def test_vgpus_by_hand_are_virtual_functions(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    text = Path("gpustack.yaml").read_text().replace("numa_policy: preferred", "vgpu: {type: K4200-1Q}")
    Path("gpustack.yaml").write_text(text)
    assert main(["flavor", "create", "vgpu", "--model", "k4200", *SIZES, "--yes"]) == 0
    assert "warning: the alias K4200 requests virtual functions" in capsys.readouterr().err
    assert cloud.by_name("vgpu").extra_specs[ALIAS] == "K4200:1"


def test_flavors_of_vgpus_are_listed(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    """Custom classes are those of the spec; other flavors with a custom class are no GPU flavors."""
    text = Path("gpustack.yaml").read_text()
    Path("vgpu.yaml").write_text(
        text.replace("numa_policy: preferred", "vgpu: {type: K4200-1Q, resource_class: CUSTOM_K4200_1Q}")
    )
    for name, klass in (("standard", "VGPU"), ("own", "CUSTOM_K4200_1Q"), ("metal", "CUSTOM_BAREMETAL")):
        specs = {f"resources:{klass}": "2"}
        cloud.by_id[name] = PresentFlavor(id=name, name=name, sizes=Sizes(vcpus=1, ram=1, disk=1), extra_specs=specs)
    shown = ("flavor", "list", "-f", "value", "-c", "Name", "-c", "Model", "-c", "GPUs")
    assert main([*shown]) == 0
    assert capsys.readouterr().out == "standard - 2\n"
    assert main([*shown, "--spec", "vgpu.yaml"]) == 0
    assert capsys.readouterr().out == "own k4200 2\nstandard - 2\n"


def test_alias_that_the_spec_lacks_is_warned_about(cloud: NovaModel, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["flavor", "create", "typo", "--alias", "K42OO", *SIZES, "--yes"]) == 0
    assert "warning: no model of the spec has the alias K42OO (aliases: K4200)" in capsys.readouterr().err
    assert main(["flavor", "set", "typo", "--alias", "K4200", "--yes"]) == 0
    assert "warning" not in capsys.readouterr().err
    Path("gpustack.yaml").write_text("version: 7\n")
    assert main(["flavor", "create", "unread", "--alias", "K42OO", *SIZES, "--yes"]) == 0, (
        "no spec is needed for an alias"
    )
    assert main(["flavor", "create", "read", "--model", "k4200", *SIZES]) != 0
