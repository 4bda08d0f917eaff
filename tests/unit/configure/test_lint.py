"""What the linter says of configurations, case by case, and how its report is read by other programs."""

import re

import pytest
import yaml

from gpustack.base.errors import UsageError
from gpustack.base.findings import Severity, definitions
from gpustack.configure.desired import wanted
from gpustack.configure.lint import lint
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.render import TOOLS, render
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import releases
from gpustack.spec.load import parse_spec
from support.nova_cases import cases
from support.nova_hosts import host, raw

CASES = list(cases())
LIST = "[filter_scheduler]\nenabled_filters = ComputeFilter"


def found(report, severities) -> list[tuple[str, str]]:
    return [(f.code, f.place) for f in report.findings if f.severity in severities]


def assert_expected(reported, expected, directory):
    """``CODE``, ``CODE:LINE`` or ``CODE:FILE:LINE``, in any order."""
    remaining = list(reported)
    for entry in expected:
        code, *fragments = entry.split(":")
        place = re.compile(".*" + "".join(f"[/:]{re.escape(part)}" for part in fragments) + ("$" if fragments else ""))
        match = next((candidate for candidate in remaining if candidate[0] == code and place.match(candidate[1])), None)
        assert match, f"{entry} is not among {reported}"
        remaining.remove(match)
    assert remaining == []


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_case(case, tmp_path):
    case.written(tmp_path)
    release = releases.release(case.data.get("release", "2025.2"))
    report = lint(case.words(tmp_path), LintSubject(release=release, hosts=case.hosts, shapes=case.shapes))
    grave = [Severity.ERROR, Severity.WARNING]
    assert_expected(found(report, grave), case.data["expect"], tmp_path)
    if "infos" in case.data:
        assert_expected(found(report, [Severity.INFO]), case.data["infos"], tmp_path)
    expected = {definitions()[code].severity for code, _ in found(report, grave)}
    if case.data.get("warnings_only"):
        assert not found(report, [Severity.ERROR])
    assert ({result.word for result in report.results} == {"Success"}) is (not expected)


def test_a_name_that_newer_releases_lack_leads_to_its_option(tmp_path):
    file = tmp_path / "nova-scheduler.conf"
    file.write_text("[DEFAULT]\nscheduler_default_filters = ComputeFilter,PciPassthroughFilter\n")
    report = lint([str(file)], LintSubject(release=releases.release("2025.2")))
    remedies = [f.remedy for f in report.findings if f.code == "GPU338"]
    assert remedies == ["write [filter_scheduler] enabled_filters instead"]


@pytest.mark.parametrize("same", [True, False])
def test_a_line_that_its_service_has_too_is_in_no_wrong_place(tmp_path, same):
    """kolla-ansible merges HOST/nova.conf into the configuration of each service on the host."""
    lines = dict.fromkeys(("nova-api.conf", "nova-compute.conf"), '[pci]\ndevice_spec = {"vendor_id": "10de"}\n')
    if not same:
        lines["nova-compute.conf"] = "[pci]\n"
    for name, text in lines.items():
        (tmp_path / name).write_text(text)
    report = lint([str(tmp_path / name) for name in lines], LintSubject(release=releases.release("2025.2")))
    assert ("GPU369" in {f.code for f in report.findings}) is not same


def test_every_code_of_the_linter_has_a_case():
    covered = {entry.split(":")[0] for case in CASES for entry in [*case.data["expect"], *case.data.get("infos", [])]}
    spans = (
        ("GPU330", "GPU379"),
        ("GPU530", "GPU533"),
        ("GPU537", "GPU543"),
        ("GPU545", "GPU549"),
        ("GPU810", "GPU816"),
    )
    linted = {code for code in definitions() if any(first <= code <= last for first, last in spans)}
    assert linted <= covered


def test_words_that_name_no_configuration(tmp_path):
    with pytest.raises(UsageError, match="does not name a configuration"):
        lint(["cpu=nova.conf"], LintSubject(release=releases.release("2025.2")))
    report = lint([str(tmp_path / "missing.conf")], LintSubject(release=releases.release("2025.2")))
    assert "Failure" in {result.word for result in report.results}
    assert found(report, list(Severity)) == [("GPU330", str(tmp_path / "missing.conf"))]
    assert [(result.title, result.word) for result in report.results] == [("Files", "Failure")]
    assert "check the path" in report.findings[0].remedy


def test_a_directory_without_a_file_for_the_service(tmp_path):
    (tmp_path / "nova-api.conf").write_text("[pci]\n")
    report = lint([f"compute={tmp_path}"], LintSubject(release=releases.release("2025.2")))
    assert found(report, list(Severity)) == [("GPU330", str(tmp_path))]
    assert "nova-compute" in report.findings[0].message


def test_json_that_is_nested_too_deeply(tmp_path):
    file = tmp_path / "nova.conf"
    file.write_text(f"[pci]\nalias = {'[' * 100_000}\n")
    assert ("GPU331", f"{file}:2") in found(
        lint([str(file)], LintSubject(release=releases.release("2025.2"))), [Severity.ERROR]
    )


def test_a_configuration_of_one_host_is_judged_by_that_host(tmp_path):
    """Its directory may be called by the host's full name, or by its short one."""
    file = tmp_path / "gpu01" / "nova-compute.conf"
    file.parent.mkdir()
    file.write_text('[pci]\ndevice_spec = {"address": "0000:01:00.0"}\n')
    hosts = [host("k4200-prepared", hostname=f"gpu0{n}.example.org") for n in (1, 2)]
    report = lint([str(file)], LintSubject(release=releases.release("2025.2"), hosts=hosts))
    assert [f.message.split(",")[0] for f in report.findings if f.code == "GPU350"] == ["on gpu01.example.org"]


@pytest.mark.parametrize("reason", ["out of service", "blocked"])
def test_no_device_spec_is_advised_for_cards_that_are_withheld(tmp_path, reason):
    """`nova render` leaves such cards out: the advice would offer them to instances."""
    of_host = 'version: 1\nmodels: {gpu: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {gpu01: [gpu]}\n'
    out = [{"host": "gpu01", "address": f"0000:{bus}:00.0", "reason": "sick"} for bus in (84, 88)]
    spec = parse_spec(of_host + (f"out_of_service: {out}\n" if reason == "out of service" else ""), "test")
    facts = raw("k4200-prepared")
    for function in facts["pci"]:
        function["responds"] = reason != "blocked"
    file = tmp_path / "gpu01" / "nova-compute.conf"
    file.parent.mkdir()
    alias = '{"name": "gpu", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}'
    file.write_text(f"[pci]\nalias = {alias}\n")
    subject = LintSubject(release=releases.release("2025.2"), hosts=[Host.model_validate(facts)], spec=spec)
    codes = {f.code for f in lint([str(file)], subject).findings}
    assert "GPU375" in codes
    assert "GPU348" not in codes


def test_cards_out_of_service_that_are_offered_are_reported(tmp_path):
    text = 'version: 1\nmodels: {gpu: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {gpu01: [gpu]}\n'
    spec = parse_spec(text + 'out_of_service: [{host: gpu01, address: "0000:88:00.0", reason: sick}]\n', "test")
    file = tmp_path / "gpu01" / "nova-compute.conf"
    file.parent.mkdir()
    file.write_text('[pci]\ndevice_spec = {"vendor_id": "10de", "product_id": "11b4"}\n')
    subject = LintSubject(release=releases.release("2025.2"), hosts=[host("k4200-prepared")], spec=spec)
    listed = [(f.place, f.message) for f in lint([str(file)], subject).findings if f.code == "GPU461"]
    assert [place for place, _message in listed] == ["gpu01 0000:88:00.0"]
    assert "(sick)" in listed[0][1]


def test_a_misspelled_filter_is_named_and_not_kept(tmp_path):
    file = tmp_path / "nova-scheduler.conf"
    file.write_text("[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassThroughFilter\n")
    (finding,) = (
        f for f in lint([str(file)], LintSubject(release=releases.release("2025.2"))).findings if f.code == "GPU355"
    )
    assert "PciPassThroughFilter" in finding.message
    assert finding.remedy.endswith(": ComputeFilter,PciPassthroughFilter")


@pytest.mark.parametrize("line", ["RetryFilter,ComputeFilter", '["ComputeFilter", "NUMATopologyFilter"]'])
def test_the_suggested_filters_all_exist(tmp_path, line):
    file = tmp_path / "nova-scheduler.conf"
    file.write_text(f"[filter_scheduler]\nenabled_filters = {line}\n")
    (finding,) = (
        f for f in lint([str(file)], LintSubject(release=releases.release("2025.2"))).findings if f.code == "GPU355"
    )
    suggested = finding.remedy.rpartition(": ")[2].split(",")
    assert suggested[-1] == "PciPassthroughFilter"
    assert set(suggested) <= set(releases.filters(releases.release("2025.2")))


def test_a_byte_order_mark_is_named(tmp_path):
    file = tmp_path / "nova.conf"
    file.write_text("\ufeff[pci]\n", encoding="utf-8")
    (finding,) = lint([str(file)], LintSubject(release=releases.release("2025.2"))).findings
    assert (finding.code, finding.message) == ("GPU330", "the file begins with a byte order mark (BOM)")


def test_values_of_openstack_helm_and_resources_of_rhoso(tmp_path):
    values, resource, other = (tmp_path / f"{name}.yaml" for name in ("values", "resource", "other"))
    alias = '{"name": "a", "vendor_id": "10de", "product_id": "x", "device_type": "type-PCI"}'
    nova = f"pci: {{alias: {{type: multistring, values: ['{alias}']}}}}, api: {{max_limit: x}}"
    values.write_text(f"conf: {{nova: {{{nova}}}}}\n")
    resource.write_text(
        "kind: OpenStackControlPlane\nspec:\n  nova:\n    template:\n      apiServiceTemplate:\n"
        f"        customServiceConfig: |\n          [pci]\n          alias = {alias}\n"
    )
    other.write_text("a: 1\n")
    subject = LintSubject(release=releases.release("2025.2"))
    codes = {f.place: f.code for f in lint([str(values)], subject).findings if f.code in ("GPU336", "GPU532")}
    assert codes == {f"{values}:conf.nova.pci.alias.values[0]": "GPU336", f"{values}:conf.nova.api.max_limit": "GPU532"}
    assert "GPU336" in {f.code for f in lint([str(resource)], subject).findings}
    assert [f.code for f in lint([str(other)], subject).findings] == ["GPU330"]


@pytest.mark.parametrize(("text", "codes"), [("[scheduler]\nworkers = 2", set()), (LIST, {"GPU355"})])
def test_the_list_of_nova_operator_has_the_pci_filter(tmp_path, text, codes):
    """Its default has PciPassthroughFilter, so only a list of the operator can lack it."""
    template = {"schedulerServiceTemplate": {"customServiceConfig": text}}
    file = tmp_path / "controlplane.yaml"
    file.write_text(yaml.safe_dump({"kind": "OpenStackControlPlane", "spec": {"nova": {"template": template}}}))
    report = lint([str(file)], LintSubject(release=releases.release("2025.2")))
    assert {f.code for f in report.findings} & {"GPU355"} == codes


@pytest.mark.parametrize("deployment", sorted(TOOLS))
def test_what_was_rendered_for_a_tool_is_read_as_a_directory(tmp_path, deployment):
    """`nova lint DIR` reads the devices of each host, and reports a line that is changed afterwards."""
    hosts = [host("k4200-prepared"), host("mi300x", hostname="gpu-amd01.example.org")]
    models = 'k4200: {match: {vendor: "10de", product: "11b4"}}, mi300x: {match: {vendor: "1002", product: "74a1"}}'
    of_hosts = "gpu01: [k4200], gpu-amd01.example.org: [mi300x]"
    spec = parse_spec(f"version: 1\nmodels: {{{models}}}\nhosts: {{{of_hosts}}}\n", "test")
    release = releases.release("2025.2")
    desired = wanted(spec, hosts, release=release)
    subject = LintSubject.of_spec(spec, release, hosts)
    for file in render(desired, deployment=deployment, hosts=hosts).files:
        path = tmp_path / file.target / file.path.lstrip("/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(file.text)
    report = lint([str(tmp_path)], subject)
    assert {f.code for f in report.findings if f.severity is not Severity.INFO} <= {"GPU019"}
    assert "GPU375" not in {f.code for f in report.findings}
    for path in (path for path in tmp_path.rglob("*") if path.is_file()):
        path.write_text(re.sub(r'("vendor_id": "1002".*)74a1', r"\1ffff", path.read_text()))
    spoiled = [f for f in lint([str(tmp_path)], subject).findings if f.code == "GPU366"]
    assert ["gpu-amd01.example.org" in f.message for f in spoiled] == [True]


def test_permitted_numbers_are_listed_without_their_python_type(tmp_path):
    file = tmp_path / "nova-compute.conf"
    file.write_text("[libvirt]\nrx_queue_size = 257\n")
    (finding,) = lint([str(file)], LintSubject(release=releases.release("2025.2"))).findings
    assert finding.message.endswith("'257': Valid values are [256, 512, 1024], but found 257")


def test_a_deprecated_name_adds_up_only_if_its_option_is_multi_valued(tmp_path):
    file = tmp_path / "nova-compute.conf"
    file.write_text("[devices]\nenabled_vgpu_types = nvidia-35\n[pci]\npassthrough_whitelist = {}\n")
    found = lint([str(file)], LintSubject(release=releases.release("2025.2"))).findings
    remedies = {f.place.rpartition(":")[2]: f.remedy for f in found if f.code == "GPU339"}
    assert remedies["2"].endswith("the old name; in one file, the new name wins")
    assert remedies["4"].endswith("[pci] device_spec before Nova removes the old name; lines under both names add up")
