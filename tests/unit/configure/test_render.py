"""The files of each kind of deployment: golden texts, and read back by oslo.config and by Ansible's YAML."""

import dataclasses
import json
import os
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from oslo_config import cfg

from gpustack.base.errors import NovaConfigError
from gpustack.base.findings import errors
from gpustack.configure.deployment.drop_in import DROP_IN
from gpustack.configure.desired import wanted
from gpustack.configure.lint import lint
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.render import render
from gpustack.configure.sources import Existing, read_sources
from gpustack.nova_options import releases
from gpustack.nova_options.markers import BEGIN, END, own_lines, without_block
from gpustack.spec.load import parse_spec
from support.nova_hosts import host
from support.nova_made import configurations, made

GOLDEN = Path(__file__).parent / "golden"
KAYOBE = "etc/kayobe/kolla/config/nova"
SPEC = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}, numa_policy: required}
  a100: {match: {vendor: "10de", product: "20b2", addresses: ["0000:07:00.0", "0000:0f:00.0"]}, alias: A100}
  mi300x: {match: {vendor: "1002", product: "74a1"}, resource_class: MI300X, traits: [CUSTOM_BIG]}
hosts: {gpu01: [k4200], gpu-nv01: [a100], gpu-amd01: [mi300x]}
options: {nvswitch: isolated}
nova: {release: "RELEASE", placement: PLACEMENT}
"""
HOSTS = [host("k4200-prepared"), host("nvswitch"), host("mi300x")]


def spec(release: str = "2025.2", placement: str = "schedule"):
    return parse_spec(SPEC.replace("RELEASE", release).replace("PLACEMENT", placement), "gpustack.yaml")


def rendered(deployment: str, release: str = "2025.2", placement: str = "schedule", **more):
    desired = wanted(spec(release, placement), HOSTS, release=releases.release(release))
    return render(desired, deployment=deployment, hosts=HOSTS, **more)


@pytest.mark.parametrize(
    ("name", "release", "placement"),
    [
        ("drop-in", "2025.2", "schedule"),
        ("kolla", "2025.2", "report"),
        ("kayobe", "2025.2", "off"),
        ("openstack-ansible", "2025.2", "schedule"),
        ("drop-in", "ocata", "off"),
        ("openstack-ansible", "yoga", "off"),
    ],
)
def test_golden(name, release, placement):
    """``GOLDEN=write pytest …`` writes the texts anew: read the difference before committing it."""
    text = SPEC.replace("RELEASE", release).replace("PLACEMENT", placement)
    if release == "ocata":
        text = text.replace(", numa_policy: required", "")
    desired = wanted(parse_spec(text, "gpustack.yaml"), HOSTS, release=releases.release(release))
    rendering = render(desired, deployment=name, hosts=HOSTS)
    output = "".join(f"##### {f.target or '-'} {f.path} ({', '.join(f.services)})\n{f.text}\n" for f in rendering.files)
    output += "\n".join(f"{f.severity} {f.code} {f.place}: {f.message}" for f in rendering.findings) + "\n"
    golden = GOLDEN / f"{name}-{release}-{placement}.txt"
    if os.environ.get("GOLDEN") == "write":
        golden.write_text(output, encoding="utf-8")
    assert output == golden.read_text(encoding="utf-8")


def oslo(files: list[Path]) -> cfg.ConfigOpts:
    """oslo.config with the definitions that Nova has of these options."""
    conf = cfg.ConfigOpts()
    multi = [cfg.MultiStrOpt(name, default=[]) for name in ("alias", "device_spec", "passthrough_whitelist")]
    conf.register_opts([*multi, cfg.BoolOpt("report_in_placement", default=False)], group="pci")
    filters = [cfg.ListOpt("enabled_filters", default=[]), cfg.BoolOpt("pci_in_placement", default=False)]
    conf.register_opts(filters, group="filter_scheduler")
    conf([], default_config_files=[str(file) for file in files], default_config_dirs=[])
    return conf


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(made())
def test_oslo_config_reads_back_what_was_wanted(tmp_path_factory, case):
    desired = wanted(case.spec, case.hosts, release=case.release)
    assume(not errors(desired.findings))
    rendering = render(desired, hosts=case.hosts, together=True)
    assert rendering == render(desired, hosts=case.hosts, together=True)
    directory = tmp_path_factory.mktemp("rendered")
    for file in configurations(rendering):
        path = directory / f"{file.target}.conf"
        path.write_text(file.text)
        conf = oslo([path])
        assert [json.loads(line) for line in conf.pci.alias] == [a.to_dict() for a in desired.aliases]
        lines = conf.pci[releases.device_spec_option(case.release).name]
        assert [json.loads(line) for line in lines] == [e.to_dict() for e in desired.computes[file.target]]
        assert conf.filter_scheduler.enabled_filters == [
            *releases.default_filters(case.release),
            "PciPassthroughFilter",
        ]
        assert conf.pci.report_in_placement is (desired.placement != "off")
        assert conf.filter_scheduler.pci_in_placement is (desired.placement == "schedule")


FLAVORS = {
    "numa: {nodes: 1}": True,
    "cpu_policy: dedicated": True,
    "mem_page_size: 1GB": True,
    'extra_specs: {"hw:cpu_policy": "mixed"}': True,
    "cpu_policy: shared": False,
    'extra_specs: {"hw:cpu_max_sockets": "2"}': False,
}


@pytest.mark.parametrize(("flavor", "has_nodes"), FLAVORS.items())
def test_flavors_with_numa_nodes_need_their_filter(flavor, has_nodes):
    text = SPEC.replace("RELEASE", "2025.2").replace("PLACEMENT", "off")
    text += f"flavors: {{gpu: {{model: k4200, vcpus: 2, ram: 2048, disk: 20, {flavor}}}}}\n"
    document = parse_spec(text, "gpustack.yaml")
    desired = wanted(document, HOSTS, release=releases.release("2025.2"))
    (control, *_) = render(desired, deployment="drop-in", hosts=HOSTS).files
    assert ("PciPassthroughFilter,NUMATopologyFilter\n" in control.text) is has_nodes
    assert ("PciPassthroughFilter\n" in control.text) is not has_nodes


def test_ansible_reads_back_what_was_wanted():
    rendering = rendered("openstack-ansible")
    common, *of_hosts = [yaml.safe_load(file.text) for file in rendering.files]
    assert [json.loads(line)["name"] for line in common["nova_pci_alias"]] == ["k4200", "A100", "mi300x"]
    assert common["nova_nova_conf_overrides"]["filter_scheduler"] == {"pci_in_placement": True}
    assert [json.loads(line) for line in of_hosts[2]["nova_device_spec"]] == [
        {"vendor_id": "10de", "product_id": "11b4"}
    ]


def sources(*arguments: object) -> Existing:
    return Existing(named=read_sources([str(argument) for argument in arguments]))


def test_the_filters_of_the_deployment_are_carried_over(tmp_path):
    file = tmp_path / "nova.conf"
    file.write_text("[filter_scheduler]\nenabled_filters = PciPassthroughFilter, NUMATopologyFilter\n")
    (control, *_) = rendered("drop-in", existing=sources(file)).files
    assert "\nenabled_filters = PciPassthroughFilter,NUMATopologyFilter\n" in control.text
    drop_in = tmp_path / "nova.conf.d" / DROP_IN
    drop_in.parent.mkdir()
    drop_in.write_text(control.text)
    file.write_text("[filter_scheduler]\nenabled_filters = ComputeFilter\n")
    (control, *_) = rendered("drop-in", existing=sources(tmp_path)).files
    assert "\nenabled_filters = ComputeFilter,PciPassthroughFilter\n" in control.text, "our own file is passed over"


@pytest.mark.parametrize(
    ("written", "names", "reported"),
    [
        ("ComputeFilter\n  NUMATopologyFilter", ["ComputeFilter NUMATopologyFilter"], True),
        ("ComputeFilter,\n  NUMATopologyFilter,", ["ComputeFilter", "NUMATopologyFilter"], False),
        ("ComputeFilter,,NUMATopologyFilter", ["ComputeFilter", "NUMATopologyFilter"], False),
        ("$mine,NUMATopologyFilter", ["$mine", "NUMATopologyFilter"], False),
    ],
)
def test_any_list_is_carried_over_into_a_readable_file(tmp_path, written, names, reported):
    file = tmp_path / "nova.conf"
    file.write_text(f"[filter_scheduler]\nenabled_filters = {written}\n")
    rendering = rendered("drop-in", existing=sources(file))
    path = tmp_path / "rendered.conf"
    path.write_text(rendering.files[0].text)
    oslo([path])
    text = next(line for line in path.read_text().splitlines() if line.startswith("enabled_filters"))
    assert text == f"enabled_filters = {','.join([*names, 'PciPassthroughFilter'])}"
    assert any(f.code == "GPU381" for f in rendering.findings) == reported


def test_the_remedy_leaves_out_filters_that_are_gone(tmp_path):
    file = tmp_path / "nova.conf"
    file.write_text("[filter_scheduler]\nenabled_filters = RetryFilter,ComputeFilter\n")
    remedies = {f.code: f.remedy for f in rendered("drop-in", existing=sources(file)).findings}
    assert remedies["GPU323"].endswith("set the line there to ComputeFilter,PciPassthroughFilter")


def codes(rendering) -> list[tuple[str, str]]:
    relevant = {"GPU312", "GPU313", "GPU314", "GPU318", "GPU323", "GPU331", "GPU332", "GPU336"}
    return [(f.code, f.place.rpartition("/")[2]) for f in rendering.findings if f.code in relevant]


ALIAS = (
    '{"name": "k4200", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI", "numa_policy": "required"}'
)


@pytest.mark.parametrize(
    ("text", "placement", "expected"),
    [
        (f"[pci]\nalias = {ALIAS}\n", "off", [("GPU312", "nova.conf:2")]),
        (f"[pci]\nalias = {ALIAS}\n", "schedule", [("GPU313", "nova.conf:2")]),
        (f"[DEFAULT]\npci_alias = {ALIAS.replace('11b4', '11b5')}\n", "off", [("GPU313", "nova.conf:2")]),
        ('[pci]\nalias = {"name": "other", "vendor_id": "8086", "product_id": "0443"}\n', "schedule", []),
        ("[pci]\nalias = {'name': 'other'}\n", "off", [("GPU331", "nova.conf:2")]),
        ('[pci]\npassthrough_whitelist = {"vendor_id": "10de"}\n', "off", [("GPU312", "nova.conf:2")] * 2),
        ('[pci]\ndevice_spec = {"vendor_id": "15b3", "physical_network": "a"}\n', "off", []),
        ("[filter_scheduler]\navailable_filters = mine.Filter\n", "off", [("GPU318", "nova.conf:2")]),
        ("[filter_scheduler]\nenabled_filters = ComputeFilter\n", "off", [("GPU323", "nova.conf:2")]),
        ("[filter_scheduler]\nenabled_filters = ComputeFilter,PciPassthroughFilter\n", "off", []),
        ("[pci]\nreport_in_placement = false\n", "report", [("GPU323", "nova.conf:2")]),
        ("[pci]\nreport_in_placement = false\n", "off", []),
    ],
)
def test_what_stands_in_the_way_is_named_with_its_line(tmp_path, text, placement, expected):
    file = tmp_path / "nova.conf"
    file.write_text(text)
    assert codes(rendered("drop-in", placement=placement, existing=sources(file))) == expected


def test_a_line_in_force_on_equal_hosts_is_one_finding(tmp_path):
    hosts = [host("k4200-prepared", hostname=f"gpu0{number}") for number in (1, 2, 3)]
    text = SPEC.replace("gpu01", "gpu0*").replace("RELEASE", "2025.2").replace("PLACEMENT", "off")
    (tmp_path / "nova.conf").write_text('[pci]\ndevice_spec = {"vendor_id": "10de"}\n')
    desired = wanted(parse_spec(text, "gpustack.yaml"), hosts, release=releases.release("2025.2"))
    findings = render(desired, deployment="drop-in", hosts=hosts, existing=sources(tmp_path / "nova.conf")).findings
    (finding,) = (f for f in findings if f.code == "GPU312")
    assert "0000:84:00.0, 0000:88:00.0 on gpu[01:03] too" in finding.message


def test_a_later_file_that_decides_is_an_error(tmp_path):
    (tmp_path / "nova.conf").write_text("[DEFAULT]\n")
    (tmp_path / "nova.conf.d").mkdir()
    for name, expected in (("100-old.conf", []), ("900-late.conf", [("GPU314", "900-late.conf:2")])):
        late = tmp_path / "nova.conf.d" / name
        late.write_text("[filter_scheduler]\nenabled_filters = ComputeFilter\n")
        assert codes(rendered("drop-in", existing=sources(f"scheduler={tmp_path}"))) == expected
        late.unlink()


def test_what_decides_where_files_are_named_on_a_command_line(tmp_path):
    """oslo.config reads drop-ins before them: Debian's and Ubuntu's services name nova.conf, those of RHEL don't."""
    main, drop_in = tmp_path / "nova.conf", tmp_path / "nova.conf.d" / DROP_IN
    drop_in.parent.mkdir()
    main.write_text("[filter_scheduler]\nenabled_filters = ComputeFilter\n")
    rendering = rendered("drop-in", placement="off", existing=sources(f"scheduler={tmp_path}"))
    (finding,) = (f for f in rendering.findings if f.code == "GPU323")
    drop_in.write_text(rendering.files[0].text)

    def filters(arguments: list[str], files: list[str]) -> list[str]:
        conf = cfg.ConfigOpts()
        conf.register_opts([cfg.ListOpt("enabled_filters")], group="filter_scheduler")
        conf(arguments, default_config_files=files, default_config_dirs=[str(drop_in.parent)])
        return conf.filter_scheduler.enabled_filters

    assert "PciPassthroughFilter" in filters([], [str(main)])
    assert "PciPassthroughFilter" not in filters([f"--config-file={main}"], [])
    main.write_text(f"[filter_scheduler]\nenabled_filters = {finding.remedy.rpartition(' ')[2]}\n")
    assert "PciPassthroughFilter" in filters([f"--config-file={main}"], [])
    assert codes(rendered("drop-in", placement="off", existing=sources(f"scheduler={tmp_path}"))) == []


def test_where_it_is_known_how_a_service_is_started(tmp_path):
    (tmp_path / "nova.conf").write_text("[filter_scheduler]\nenabled_filters = ComputeFilter\n")
    (source,) = sources(f"scheduler={tmp_path}").sources

    def order_findings(with_files: bool | None) -> list[tuple[str, str]]:
        existing = Existing(named=(dataclasses.replace(source, with_files=with_files),))
        findings = rendered("drop-in", placement="off", existing=existing).findings
        return [(f.code, f.severity.value) for f in findings if f.code == "GPU323"]

    assert order_findings(None) == [("GPU323", "warning")]
    assert order_findings(True) == [("GPU323", "error")]
    assert order_findings(False) == []


def test_a_line_that_is_replaced_where_ours_is_appended_decides_nothing(tmp_path):
    file = tmp_path / "nova.conf"
    file.write_text("[filter_scheduler]\nenabled_filters = ComputeFilter\n")
    assert codes(rendered("drop-in", placement="off", existing=sources(file), appended=True)) == []


def test_kolla_keeps_what_it_would_replace(tmp_path):
    file = tmp_path / "gpu01" / "nova.conf"
    file.parent.mkdir()
    nic = '{"vendor_id": "8086", "product_id": "1521", "physical_network": "a"}'
    qat = '{"name": "qat", "vendor_id": "8086", "product_id": "0443", "device_type": "type-PCI"}'
    stale = '{"vendor_id": "10de", "product_id": "11b4", "address": "0000:88:00.0"}'
    file.write_text(f"[pci]\nalias = {qat}\nalias = {ALIAS}\ndevice_spec = {nic}\ndevice_spec = {stale}\n")
    rendering = rendered("kolla", placement="off", existing=sources(f"compute,api={file}"))
    texts = {file.path.partition("nova/")[2]: file.text for file in rendering.files}
    for name in ("nova-api.conf", "nova-compute.conf"):
        assert f"alias = {qat}\n" in texts[name]
        assert texts[name].count('"k4200"') == 1, "ours stands for the old line"
    assert f"device_spec = {nic}\n" in texts["gpu01/nova.conf"]
    assert stale not in texts["gpu01/nova.conf"], "it matches nothing but what our own entry gives out"
    assert nic not in texts["gpu-nv01/nova.conf"]
    assert codes(rendering) == []


OTHER = '{"name": "fpga", "vendor_id": "1172", "product_id": "09c4", "device_type": "type-PCI"}'


@pytest.mark.parametrize(("deployment", "directory"), [("kolla", "etc/kolla/config/nova"), ("kayobe", KAYOBE)])
def test_what_stands_in_the_very_file_is_not_written_twice(tmp_path, deployment, directory):
    """kolla-ansible adds up what one file says, and replaces only what an earlier file says."""
    nic = '{"vendor_id": "8086", "product_id": "1521", "physical_network": "a"}'
    api, gpu01 = tmp_path / directory / "nova-api.conf", tmp_path / directory / "gpu01" / "nova.conf"
    gpu01.parent.mkdir(parents=True)
    api.write_text(f"[pci]\nalias = {OTHER}\n")
    gpu01.write_text(f"[pci]\ndevice_spec = {nic}\n")
    for _ in range(2):
        existing = sources(f"api={api}", f"compute={gpu01}")
        rendering = rendered(deployment, placement="off", existing=existing, root=tmp_path)
        assert codes(rendering) == []
        for file in rendering.files:
            path = tmp_path / file.path.lstrip("/")
            path.parent.mkdir(exist_ok=True)
            path.write_text(file.onto(path.read_text() if path.exists() else None))
        assert api.read_text().count('"fpga"') == gpu01.read_text().count(nic) == 1
        assert api.read_text().count('"k4200"') == 1
    elsewhere = rendered(deployment, placement="off", existing=sources(f"api={api}"), root=tmp_path / "other")
    assert next(f for f in elsewhere.files if f.path.endswith("nova-api.conf")).text.count('"fpga"') == 1


@pytest.mark.parametrize(
    ("service", "name", "alias", "expected"),
    [
        ("api", "nova-api.conf", ALIAS.replace("11b4", "11b5"), ("GPU313", "nova-api.conf:2")),  # ours, in this file
        ("compute", "cpu01/nova.conf", OTHER, ("GPU314", "nova.conf:2")),  # of one host: it replaces all of ours
    ],
)
def test_aliases_among_the_overrides_that_are_in_the_way(tmp_path, service, name, alias, expected):
    file = tmp_path / "etc/kolla/config/nova" / name
    file.parent.mkdir(parents=True)
    file.write_text(f"[pci]\nalias = {alias}\n")
    assert codes(rendered("kolla", existing=sources(f"{service}={file}"), root=tmp_path)) == [expected]


@pytest.mark.parametrize("deployment", ["kolla", "kayobe", "openstack-ansible", "drop-in"])
@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("device_spec = {'vendor_id': '10de'}", "GPU331"),
        ('device_spec = {"vendor_id": 5}', "GPU336"),
        ("alias = 5", "GPU332"),
    ],
)
def test_what_nova_would_refuse_is_named_and_not_carried_over(tmp_path, deployment, line, code):
    file = tmp_path / "nova-compute.conf"
    file.write_text(f"[pci]\n{line}\n")
    rendering = rendered(deployment, placement="off", existing=sources(file))
    assert set(codes(rendering)) == {(code, "nova-compute.conf:2")}


def test_a_value_that_names_an_option_is_carried_over_as_it_is_written(tmp_path):
    file = tmp_path / "nova-api.conf"
    file.write_text(f"[DEFAULT]\nmy_vendor = 1172\n[pci]\nalias = {OTHER.replace('1172', '$my_vendor')}\n")
    rendering = rendered("kolla", placement="off", existing=sources(file))
    assert '"$my_vendor"' in next(f for f in rendering.files if f.path.endswith("nova-api.conf")).text


def test_replaced_options_are_reported_without_existing_files(tmp_path):
    file = tmp_path / "nova-api.conf"
    file.write_text("[DEFAULT]\n")
    assert "GPU322" in {f.code for f in rendered("kolla").findings}
    assert "GPU322" not in {f.code for f in rendered("kolla", existing=sources(file)).findings}
    assert "GPU322" not in {f.code for f in rendered("drop-in").findings}


def test_a_shared_file_keeps_what_others_wrote():
    file = next(f for f in rendered("kolla").files if f.path.endswith("nova-scheduler.conf"))
    foreign = "[DEFAULT]\ndebug = true\n"
    once = file.onto(foreign)
    assert once.startswith(foreign)
    assert file.onto(once) == once
    assert without_block(once, "").strip() == foreign.strip()
    assert file.onto(None) == file.text


@pytest.mark.parametrize("marker", [BEGIN, END])
def test_a_shared_file_without_one_of_the_markers_is_refused(marker):
    file = next(f for f in rendered("kolla").files if f.path.endswith("nova-scheduler.conf"))
    damaged = file.onto("[DEFAULT]\ndebug = true\n").replace(marker, "") + "[database]\nconnection = theirs\n"
    with pytest.raises(NovaConfigError, match="one of the two lines is missing"):
        file.onto(damaged)
    assert not any(own_lines(damaged))


def test_only_what_was_asked_for():
    files = rendered("drop-in", services=("compute",), only=["gpu01"]).files
    assert [(f.target, f.services) for f in files] == [("gpu01", ("compute",))]
    files = rendered("drop-in", services=("scheduler",)).files
    assert [(f.target, f.services) for f in files] == [("control", ("scheduler",))]
    assert "alias" not in files[0].text


def test_each_line_of_a_shared_alias_may_be_the_equal_one(tmp_path):
    """Two models have one alias: a line of the operator that equals the second one was said to differ."""
    text = SPEC.replace("alias: A100", "alias: gpu").replace("numa_policy: required", "alias: gpu")
    text = text.replace("RELEASE", "2025.2").replace("PLACEMENT", "off")
    desired = wanted(parse_spec(text, "gpustack.yaml"), HOSTS, release=releases.release("2025.2"))
    lines = [line for line in desired.alias_lines if '"gpu"' in line]
    assert len(lines) == 2
    for line, code in ((lines[0], "GPU312"), (lines[1], "GPU312"), (lines[1].replace("type-", "TYPE-"), "GPU313")):
        (tmp_path / "nova-api.conf").write_text(f"[pci]\nalias = {line}\n", encoding="utf-8")
        existing = Existing(named=read_sources([str(tmp_path / "nova-api.conf")]))
        found = render(desired, existing=existing, hosts=HOSTS).findings
        assert [f.code for f in found if f.code in ("GPU312", "GPU313")] == [code]


@pytest.mark.parametrize(("placement", "lines"), [("off", [2, 4]), ("report", [4]), ("schedule", [])])
def test_a_stage_beyond_that_of_the_spec_is_reported(tmp_path, placement, lines):
    """A first spec for a cloud with PCI in Placement: nova-compute would report other resource classes."""
    file = tmp_path / "nova.conf"
    file.write_text("[pci]\nreport_in_placement = true\n[filter_scheduler]\npci_in_placement = True\n")
    desired = wanted(spec(placement=placement), HOSTS, release=releases.release("2025.2"))
    found = render(desired, existing=Existing(named=read_sources([str(file)])), hosts=HOSTS).findings
    assert [f.place for f in found if f.code == "GPU395"] == [f"{file}:{line}" for line in lines]
    subject = LintSubject.of_spec(spec(placement=placement), releases.release("2025.2"), HOSTS)
    checked = lint([str(file)], subject).findings
    assert [f for f in checked if f.code == "GPU395"] == [f for f in found if f.code == "GPU395"]


@pytest.mark.parametrize(("placement", "codes"), [("off", []), ("report", ["GPU540"]), ("schedule", ["GPU540"])])
def test_an_interface_beside_the_devices_blocks_their_report(tmp_path, placement, codes):
    """nova-compute raises with report_in_placement and devname; lint reported what rendering had written."""
    file = tmp_path / "nova-compute.conf"
    file.write_text('[pci]\npassthrough_whitelist = [{"devname": "enp5s0f0", "physical_network": "physnet2"}]\n')
    desired = wanted(spec(placement=placement), HOSTS, release=releases.release("2025.2"))
    for deployment in ("drop-in", "kolla"):
        existing = Existing(named=read_sources([str(file)]))
        found = errors(render(desired, deployment=deployment, existing=existing, hosts=HOSTS).findings)
        assert [(f.code, f.place) for f in found] == [(code, f"{file}:2") for code in codes]
