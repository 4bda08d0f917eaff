"""Options that keep requests for several GPUs possible: when they are needed, and where each tool has them."""

from __future__ import annotations

import functools
import math

import pytest
import yaml
from oslo_config import cfg

from gpustack.base.findings import Severity
from gpustack.configure.lint import lint
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.packing import CANDIDATES, MULTIPLIER, advised, requested
from gpustack.nova_options import releases
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Spec
from support import nova_rendered
from support.nova_rendered import SPEC, codes, written

FLAVORS = """\
flavors:
  "g-{count}": {model: k4200, count: COUNTS, vcpus: 1, ram: 512, disk: 1}
"""
DEPLOYMENTS = ("drop-in", "kolla", "kayobe", "openstack-ansible", "rhoso", "openstack-helm")
WEIGHT = "pci_weight_multiplier"
R2026 = releases.release("2026.2")  # Placement 14.0.0, that of 2025.2, lacks one of the options
rendered = functools.partial(nova_rendered.rendered, release="2026.2")


def with_flavors(counts: str) -> str:
    return SPEC + FLAVORS.replace("COUNTS", counts)


def spec(flavors: str, more: str = "") -> Spec:
    text = SPEC.replace("RELEASE", "2026.2").replace("PLACEMENT", "schedule").replace("hosts:", f"{more}hosts:", 1)
    return parse_spec(f"{text}flavors:\n{flavors}", "gpustack.yaml")


def flavor(name: str, gpus: str) -> str:
    return f"  {name}: {{{gpus}, vcpus: 1, ram: 512, disk: 1}}\n"


@pytest.mark.parametrize(
    ("flavors", "mixed"),
    [
        (flavor("a-{count}", "model: k4200, count: [1, 2]"), ("k4200",)),
        (flavor("a", "model: k4200, count: 2") + flavor("b", "model: k4200, count: 2"), ()),
        (flavor("a", "model: k4200") + flavor("b", "gpus: {k4200: 2, mi300x: 1}"), ("k4200",)),
        (flavor("a", "model: k4200") + flavor("b", "model: mi300x, count: 8"), ()),
    ],
)
def test_packing_is_for_models_of_several_counts(flavors, mixed):
    assert requested(spec(flavors)).mixed == mixed
    options = list(advised(requested(spec(flavors)), R2026, "off"))
    assert options == ([MULTIPLIER] if mixed else [])


def test_models_with_one_alias_are_counted_together():
    more = '  k4200b: {match: {vendor: "10de", product: "11b5"}, alias: k4200}\n'
    shared = spec(flavor("a", "model: k4200") + flavor("b", "gpus: {k4200: 1, k4200b: 1}"), more)
    assert requested(shared).mixed == ("k4200",)
    assert requested(shared).largest == 2


@pytest.mark.parametrize(
    ("count", "hosts", "explodes"),
    [
        (3, [8] * 59, False),
        (3, [8] * 60, True),
        (4, [8], True),
        (4, [], True),
        (3, [16] * 6, True),
        (2, [16] * 8, False),
    ],
)
def test_candidates_are_counted_as_placement_makes_them(count, hosts, explodes):
    free = [{"k4200": gpus} for gpus in hosts]
    counts = requested(spec(flavor("a", f"model: k4200, count: {count}")), free)
    assert counts.candidates == sum(math.perm(gpus, count) for gpus in hosts)
    assert counts.explodes is explodes
    expected = list(CANDIDATES) if explodes else []
    assert list(advised(counts, R2026, "schedule")) == expected
    assert list(advised(counts, R2026, "report")) == []
    assert list(advised(counts, releases.release("2023.1"), "schedule")) == []


def scheduler_text(root, deployment) -> str:
    """The text of the rendered files for Nova and for Placement."""
    rendering = rendered(root, deployment, placement="schedule", spec=with_flavors("[1, 4]"))
    assert not [f for f in rendering.findings if f.severity is Severity.ERROR]
    assert codes(rendering, "GPU392") == [("GPU392", "placement.conf")]
    written(root, rendering)
    return "\n".join(f"{file.target} {file.path}\n{file.text}" for file in rendering.files)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
def test_each_deployment_tool_has_the_options(tmp_path, deployment):
    text = scheduler_text(tmp_path, deployment)
    for advice in (MULTIPLIER, *CANDIDATES):
        name, value = advice.option.name, advice.value
        assert f"{name} = {value}" in text or f"{name}: {value}" in text, advice
    again = rendered(tmp_path, deployment, placement="schedule", spec=with_flavors("[1, 4]"))
    assert all(file.onto(file.text) == file.text for file in again.files)


@pytest.mark.parametrize("deployment", DEPLOYMENTS)
@pytest.mark.parametrize(("counts", "placement"), [("[1]", "schedule"), ("[2]", "off")])
def test_no_option_without_need(tmp_path, deployment, counts, placement):
    rendering = rendered(tmp_path, deployment, placement=placement, spec=with_flavors(counts))
    for file in rendering.files:
        assert WEIGHT not in file.text
        assert "candidates" not in file.text
        assert "placement.conf" not in file.path


@pytest.mark.parametrize(
    ("deployment", "path"),
    [
        ("drop-in", "control/etc/placement/placement.conf.d/300-gpustack.conf"),
        ("kolla", "etc/kolla/config/placement.conf"),
        ("kayobe", "etc/kayobe/kolla/config/placement.conf"),
    ],
)
def test_placement_reads_its_own_file(tmp_path, deployment, path):
    scheduler_text(tmp_path, deployment)
    conf = cfg.ConfigOpts()
    conf.register_opts([cfg.IntOpt("max_allocation_candidates"), cfg.StrOpt(CANDIDATES[1].option.name)], "placement")
    conf.register_opts([cfg.BoolOpt("optimize_for_wide_provider_trees")], "workarounds")
    conf([], default_config_files=[str(tmp_path / path)], default_config_dirs=[])
    assert conf.placement.max_allocation_candidates == 1000
    assert conf.placement.allocation_candidates_generation_strategy == "breadth-first"
    assert conf.workarounds.optimize_for_wide_provider_trees is True


def test_values_of_the_kubernetes_tools_and_of_ansible(tmp_path):
    expected = {
        "placement": {
            "max_allocation_candidates": 1000,
            "allocation_candidates_generation_strategy": "breadth-first",
        },
        "workarounds": {"optimize_for_wide_provider_trees": True},
    }
    for deployment in ("openstack-helm", "openstack-ansible"):
        scheduler_text(tmp_path, deployment)
    helm = yaml.safe_load((tmp_path / "openstack-helm/gpustack-placement.yaml").read_text())
    assert helm == {"conf": {"placement": expected}}
    nova = yaml.safe_load((tmp_path / "openstack-helm/gpustack-nova.yaml").read_text())
    assert nova["conf"]["nova"]["filter_scheduler"][WEIGHT] == 10
    group_vars = tmp_path / "etc/openstack_deploy/group_vars"
    variables = yaml.safe_load((group_vars / "placement_all/gpustack.yml").read_text())
    assert variables == {"placement_placement_conf_overrides": expected}
    variables = yaml.safe_load((group_vars / "nova_all/gpustack.yml").read_text())
    assert variables["nova_nova_conf_overrides"]["filter_scheduler"] == {"pci_in_placement": True, WEIGHT: 10}


def test_rhoso_keeps_the_operators_text_of_placement(tmp_path):
    own = "[DEFAULT]\ndebug = true\n"
    before = {"spec": {"placement": {"template": {"customServiceConfig": own}}}}
    (tmp_path / "before.yaml").write_text(yaml.safe_dump(before))
    rendering = rendered(
        tmp_path, "rhoso", str(tmp_path / "before.yaml"), placement="schedule", spec=with_flavors("[1, 4]")
    )
    (patch,) = (yaml.safe_load(file.text) for file in rendering.files if file.path.endswith("controlplane.yaml"))
    text = patch["spec"]["placement"]["template"]["customServiceConfig"]
    assert text.startswith(own)
    assert "max_allocation_candidates = 1000" in text
    (tmp_path / "after.yaml").write_text(yaml.safe_dump(patch))
    smaller = rendered(tmp_path, "rhoso", str(tmp_path / "after.yaml"), placement="schedule", spec=with_flavors("[1]"))
    (patch,) = (yaml.safe_load(file.text) for file in smaller.files if file.path.endswith("controlplane.yaml"))
    assert patch["spec"]["placement"]["template"]["customServiceConfig"] == own.rstrip()


def test_rhoso_warns_if_it_replaces_an_unknown_text_of_placement(tmp_path):
    """A Nova resource shows the templates of Nova's services, and not the one of Placement."""
    (tmp_path / "nova.yaml").write_text("{kind: Nova, spec: {apiServiceTemplate: {customServiceConfig: ''}}}\n")
    (tmp_path / "all.yaml").write_text("spec: {nova: {template: {cellTemplates: {}}}, placement: {template: {}}}\n")
    for name, expected in (("nova", 1), ("all", 0)):
        path = str(tmp_path / f"{name}.yaml")
        rendering = rendered(tmp_path, "rhoso", path, placement="schedule", spec=with_flavors("[1, 4]"))
        assert len(codes(rendering, "GPU383")) == expected


@pytest.mark.parametrize(
    ("deployment", "file", "text", "argument"),
    [
        ("drop-in", "nova.conf", "[filter_scheduler]\npci_weight_multiplier = 5\n", "scheduler={}"),
        ("kolla", "etc/kolla/config/nova.conf", "[filter_scheduler]\npci_weight_multiplier = 5\n", None),
        ("openstack-helm", "own.yaml", "conf: {nova: {filter_scheduler: {pci_weight_multiplier: 5}}}\n", "{}"),
        ("drop-in", "placement.conf", "[placement]\nmax_allocation_candidates = 5\n", "{}"),
        ("kolla", "etc/kolla/config/placement.conf", "[placement]\nmax_allocation_candidates = 5\n", None),
        ("kolla", "etc/kolla/config/placement/c1/placement.conf", "[placement]\nmax_allocation_candidates=5\n", None),
        ("openstack-helm", "own.yaml", "conf: {placement: {placement: {max_allocation_candidates: 5}}}\n", "{}"),
        (
            "rhoso",
            "own.yaml",
            'spec: {placement: {template: {customServiceConfig: "[placement]\\nmax_allocation_candidates = 5\\n"}}}\n',
            "{}",
        ),
    ],
)
def test_the_operators_value_is_kept_and_reported(tmp_path, deployment, file, text, argument):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    arguments = [argument.format(path)] if argument else []
    rendering = rendered(tmp_path, deployment, *arguments, placement="schedule", spec=with_flavors("[1, 4]"))
    (kept,) = (finding for finding in rendering.findings if finding.code == "GPU389")
    assert kept.severity is Severity.INFO
    assert " = 5 is kept" in kept.message
    name = WEIGHT if WEIGHT in text else "max_allocation_candidates"
    ours = "\n".join(f.text.replace(text, "") for f in rendering.files)
    assert f"{name} = 1" not in ours
    assert f"{name}: 1" not in ours


def test_a_value_that_gpustack_would_set_is_rendered_again(tmp_path):
    """Merged files contain the rendered lines without their markers."""
    merged = tmp_path / "nova.conf"
    merged.write_text("[filter_scheduler]\npci_weight_multiplier = 10.0\n")
    rendering = rendered(tmp_path, "kolla", f"scheduler={merged}", spec=with_flavors("[1, 2]"))
    assert codes(rendering, "GPU389") == []
    assert any(f"{WEIGHT} = 10" in file.text for file in rendering.files)


@pytest.mark.parametrize(("release", "code"), [("2023.1", "GPU394"), ("2024.2", "GPU392")])
def test_a_release_without_the_options_is_reported(tmp_path, release, code):
    rendering = rendered(tmp_path, "drop-in", release=release, placement="schedule", spec=with_flavors("[1, 4]"))
    assert codes(rendering, "GPU392", "GPU394") == [(code, "placement.conf")]


def linted(*paths: str, counts: str = "[1, 4]") -> list[tuple[str, str]]:
    text = with_flavors(counts).replace("RELEASE", "2026.2").replace("PLACEMENT", "schedule")
    advice = tuple(advised(requested(parse_spec(text, "gpustack.yaml")), R2026, "schedule"))
    report = lint(paths, LintSubject(release=R2026, advised=advice))
    return [(f.code, f.severity) for f in report.findings if f.code in ("GPU390", "GPU391", "GPU393")]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("", [("GPU390", "warning")]),
        ("pci_weight_multiplier = 1.0\n", [("GPU390", "warning")]),
        ("pci_weight_multiplier = many\n", [("GPU390", "warning")]),
        ("pci_weight_multiplier = 10\n", []),
        ("pci_weight_multiplier = 3.5\n", []),
    ],
)
def test_the_linter_reports_a_scheduler_that_spreads(tmp_path, line, expected):
    path = tmp_path / "nova-scheduler.conf"
    path.write_text(f"[filter_scheduler]\nenabled_filters = PciPassthroughFilter\n{line}")
    assert linted(str(path), counts="[1, 2]") == expected
    assert linted(str(path), counts="[2]") == []


LIMIT = "[placement]\nmax_allocation_candidates = 500\n"
BREADTH = "allocation_candidates_generation_strategy = breadth-first\n"
WIDE = "[workarounds]\noptimize_for_wide_provider_trees = yes\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", [("GPU391", "warning")]),
        (LIMIT, [("GPU391", "warning")]),
        (LIMIT.replace("500", "-1") + BREADTH + WIDE, [("GPU391", "warning")]),
        (LIMIT + BREADTH + WIDE, []),
    ],
)
def test_the_linter_reports_a_placement_without_limit(tmp_path, text, expected):
    path = tmp_path / "placement.conf"
    path.write_text(f"[DEFAULT]\n{text}")
    assert linted(str(path)) == expected
    assert linted(f"placement={path}") == expected
    assert linted(str(path), counts="[1, 3]") == []


@pytest.mark.parametrize("prefix", ["", "placement="])
def test_the_linter_reads_a_directory_of_placement(tmp_path, prefix):
    """As Placement does: ``placement.conf``, then its drop-ins. A nova.conf beside it belongs to Nova."""
    directory = tmp_path / "placement"
    (directory / "placement.conf.d").mkdir(parents=True)
    (directory / "placement.conf").write_text("[placement]\nmax_allocation_candidates = -1\n")
    (directory / "nova.conf").write_text("[DEFAULT]\n")
    assert linted(f"{prefix}{directory}") == [("GPU391", "warning")]
    (directory / "placement.conf.d/300-gpustack.conf").write_text(LIMIT + BREADTH + WIDE)
    assert linted(f"{prefix}{directory}") == []


def test_the_linter_reports_that_no_placement_is_named(tmp_path):
    path = tmp_path / "nova-api.conf"
    path.write_text("[DEFAULT]\n")
    assert linted(str(path)) == [("GPU393", "info")]


def test_a_rendered_tree_satisfies_the_linter(tmp_path):
    scheduler_text(tmp_path, "drop-in")
    assert linted(str(tmp_path)) == []


def test_options_of_placement_in_nova_conf_are_reported(tmp_path):
    path = tmp_path / "nova-api.conf"
    path.write_text(LIMIT)
    (found,) = (f for f in lint([str(path)], LintSubject(release=R2026)).findings if f.code == "GPU369")
    assert "has an effect only in placement-api" in found.message
