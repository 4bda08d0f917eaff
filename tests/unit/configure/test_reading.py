"""Which files of a command line are those of a deployment tool, and what is reported of the others."""

from pathlib import Path

import pytest
import yaml

from gpustack.base.findings import Severity
from gpustack.configure.installed.verdicts import job
from gpustack.configure.lint import lint
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.reading import read
from gpustack.configure.render import TOOLS
from gpustack.configure.sources import HostNames
from gpustack.nova_options import releases
from gpustack.spec.load import parse_spec
from support.nova_rendered import FPGA, HOSTS, SPEC, rendered, written

EVERYTHING = f"""\
{SPEC}flavors: {{"g{{count}}": {{model: mi300x, count: [1, 4, 8], vcpus: 8, ram: 16GiB, disk: 20GiB}}}}
quotas: {{default: {{k4200: 1}}}}
tenancy: {{aggregates: {{research: {{projects: [research]}}}}}}
"""
RELEASES = [str(release) for release in releases.releases() if release.major >= releases.release("2023.1").major]


def findings(release: str, placement: str, *arguments: object) -> list[str]:
    """What lint finds in the rendering of a spec with everything."""
    text = EVERYTHING.replace("RELEASE", release).replace("PLACEMENT", placement)
    subject = LintSubject.of_spec(parse_spec(text, "gpustack.yaml"), releases.release(release), HOSTS)
    return [str(found) for found in lint([*map(str, arguments)], subject).findings]


@pytest.mark.parametrize("placement", ["off", "report", "schedule"])
@pytest.mark.parametrize("tool", TOOLS)
def test_a_rendered_directory_has_no_findings(tmp_path, tool, placement):
    """The quota driver is the operator's: GPU750 was reported for each tool but drop-ins."""
    for release in RELEASES:
        written(tmp_path / release, rendered(tmp_path, tool, release=release, placement=placement, spec=EVERYTHING))
        assert findings(release, placement, tmp_path / release) == []


@pytest.mark.parametrize("tool", [tool for tool in TOOLS if tool != "drop-in"])
@pytest.mark.parametrize("directory", ["/srv/cfg/nova", "mine"])
def test_a_directory_of_its_own_can_be_named(tmp_path, tool, directory):
    """``--path`` of ``nova render``: only that of kolla-ansible was read."""
    written(tmp_path, rendered(tmp_path, tool, placement="schedule", spec=EVERYTHING, directory=directory))
    named = tmp_path / directory.lstrip("/")
    services = {service for source in read([str(named)]).sources for service in source.services}
    assert {"api", "compute", "placement"} <= services
    assert findings("2025.2", "schedule", named) == []
    if (tool, directory) == ("kolla", "mine"):
        assert read([str(tmp_path)]).sources == read([str(named)]).sources


@pytest.mark.parametrize("service", ["api", "compute", "scheduler"])
def test_overrides_of_one_service_show_no_other(tmp_path, service):
    """HOST/nova.conf with a device_spec alone was also one of nova-api and nova-scheduler on the host."""
    written(tmp_path, rendered(tmp_path, "kolla", services=[service]))
    sources = read([str(tmp_path)]).sources
    assert {of for source in sources for of in source.services} == {service}
    report = lint([str(tmp_path)], LintSubject(release=releases.release("2025.2")))
    assert [f for f in report.findings if f.severity is not Severity.INFO] == []


def test_the_directory_of_a_deployment_tool_is_read_itself(tmp_path):
    for tool in ("openstack-ansible", "rhoso", "openstack-helm"):
        written(tmp_path, rendered(tmp_path, tool))
    for name in ("etc/openstack_deploy", "rhoso", "openstack-helm"):
        assert {"api", "compute"} <= {service for s in read([str(tmp_path / name)]).sources for service in s.services}


def config_map(path: Path, **texts: str) -> Path:
    """A ConfigMap for nova-compute with drop-ins by their names."""
    data = {f"{name.replace('_', '-')}-nova.conf": text for name, text in texts.items()}
    path.write_text(yaml.safe_dump({"kind": "ConfigMap", "metadata": {"name": "nova-extra-config"}, "data": data}))
    return path


def test_an_alias_of_another_resource_is_not_missing_beside_rendered_ones(tmp_path):
    """The control plane's patch repeats the operator's alias; gpustack's ConfigMap leaves it in the operator's."""
    alias = f"[pci]\nalias = {FPGA}\n"
    api = {"nova": {"template": {"apiServiceTemplate": {"customServiceConfig": alias}}}}
    control = tmp_path / "control.yaml"
    control.write_text(yaml.safe_dump({"kind": "OpenStackControlPlane", "spec": api}))
    extra = config_map(tmp_path / "extra.yaml", a30=alias)
    out = tmp_path / "out"
    written(out, rendered(out, "rhoso", str(control), str(extra)))
    assert FPGA in (out / "rhoso/controlplane.yaml").read_text()
    found = lint([str(out)], LintSubject(release=releases.release("2025.2"))).findings
    assert [f.code for f in found if f.severity is not Severity.INFO] == []
    config_map(extra, a30="[pci]\nreport_in_placement = false\n")
    missing = lint([str(control), str(extra)], LintSubject(release=releases.release("2025.2"))).findings
    assert "GPU342" in {found.code for found in missing}


def test_the_keys_of_a_resource_are_one_configuration(tmp_path):
    """Each was one of its own: the alias in one of them was missing from the others."""
    texts = {"b26": f"[pci]\nalias = {FPGA}\n", "a25": "[compute]\ncpu_shared_set = 0-3\n"}
    file = config_map(tmp_path / "extra.yaml", **texts)
    (source,) = read([str(file)]).sources
    assert source.configuration.files == (f"{file}:a25-nova.conf", f"{file}:b26-nova.conf")
    assert [setting.place for setting in source.configuration.settings] == [
        f"{file}:a25-nova.conf:2",
        f"{file}:b26-nova.conf:2",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\n", "no settings of Nova for RHOSO, OpenStack-Helm or OpenStack-Ansible"),
        ("a: [\n", "the file is no YAML: line 2: "),
        ("a: !other b\n", "could not determine a constructor for the tag"),
        ("$ANSIBLE_VAULT;1.1;AES256\n6162\n", "the file is encrypted"),
    ],
)
def test_a_file_without_settings_is_reported(tmp_path, text, message):
    file = tmp_path / "other.yaml"
    file.write_text(text)
    found = read([str(file)])
    assert found.sources == ()
    ((finding),) = found.unread
    assert (finding.code, finding.place) == ("GPU330", str(file))
    assert message in finding.message
    assert "\n" not in finding.message


def test_one_yaml_file_among_others_is_read_as_nova_does(tmp_path):
    """nova.conf may have any name."""
    (tmp_path / "a.yml").write_text("[pci]\nreport_in_placement = true\n")
    (tmp_path / "b.conf").write_text("[DEFAULT]\n")
    found = read([f"compute={tmp_path}/a.yml:{tmp_path}/b.conf"])
    (source,) = found.sources
    assert [setting.path for setting in source.configuration.settings] == ["pci/report_in_placement"]


def test_the_conductor_above_the_cells_reads_what_a_conductor_reads(tmp_path):
    file = tmp_path / "user_variables.yml"
    file.write_text("nova_pci_alias: [x]\n")
    (source,) = read([f"super-conductor={file}"]).sources
    assert (source.services, source.readers) == (("conductor",), ("super-conductor",))


def test_a_text_that_aliases_repeat_is_refused_before_it_is_made(tmp_path):
    file = tmp_path / "user_variables.yml"
    rows = "\n".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 6))
    file.write_text(f"a0: &a0 {'x' * 4000}\n{rows}\nnova_pci_alias: *a5\n")
    (found,) = read([str(file)]).unread
    assert "with aliases expanded" in found.message


def test_an_installed_nova_gets_overrides_as_kolla_ansible_merges_them(tmp_path):
    """The last file that has an option replaces all of its lines, where Nova itself would add them up."""
    (tmp_path / "gpu01").mkdir()
    (tmp_path / "nova-compute.conf").write_text("[pci]\nalias = {}\ndevice_spec = {}\n")
    (tmp_path / "gpu01/nova.conf").write_text('[pci]\ndevice_spec = {"vendor_id": "10de"}\n')
    sources = {source.hosts: source for source in read([str(tmp_path)]).sources if "compute" in source.services}
    texts = job(sources["gpu01",], HostNames(()))["files"]
    assert texts[str(tmp_path / "nova-compute.conf")] == "[pci]\nalias = {}\n"
    assert texts[str(tmp_path / "gpu01/nova.conf")] == '[pci]\ndevice_spec = {"vendor_id": "10de"}\n'


@pytest.mark.parametrize(
    ("path", "services"),
    [
        ("placement/nova.conf", ("api", "compute", "scheduler", "conductor")),
        ("placement-api/placement.conf", ("placement",)),
        ("nova_api/nova.conf", ("api",)),
        ("nova_libvirt/etc/nova/nova.conf", ("compute",)),
        ("nova/etc/nova/nova.conf", ("api", "compute", "scheduler", "conductor")),
    ],
)
def test_a_directory_names_the_service_of_its_files_but_no_other_than_their_names(tmp_path, path, services):
    file = tmp_path / path
    file.parent.mkdir(parents=True)
    file.write_text("[DEFAULT]\ndebug = true\n")
    (source,) = read([str(file)]).sources
    assert source.services == services


def test_a_tree_of_all_services_is_read_for_nova_and_placement(tmp_path):
    """As /etc/kolla has it: files of other services are none of Nova, and none of INI."""
    files = {
        "keystone/keystone.conf": "[token]\nprovider = fernet\n",
        "rabbitmq/rabbitmq.conf": "listeners.tcp.1 = 1\n",
        "nova-libvirt/libvirtd.conf": "listen_tls = 0\n",
        "nova-novncproxy/nova.conf": "[DEFAULT]\ndebug = true\n",
        "nova-api-bootstrap/nova.conf": "[DEFAULT]\ndebug = true\n",
        "nova-cell-bootstrap/nova.conf": "[DEFAULT]\ndebug = true\n",
        "nova-compute-ironic-0/nova.conf": "[DEFAULT]\ndebug = true\n",
        "nova-api/nova.conf": "[DEFAULT]\ndebug = true\n",
        "placement-api/placement.conf": "[DEFAULT]\ndebug = true\n",
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir()
        (tmp_path / name).write_text(text)
    found = read([str(tmp_path)])
    assert [source.services for source in found.sources] == [("api",), ("placement",)]
    assert not found.unread


def test_devstack_starts_nova_compute_with_a_file_of_its_own(tmp_path):
    for name in ("nova.conf", "nova-cpu.conf", "nova_cell1.conf", "rootwrap.conf"):
        (tmp_path / name).write_text("[DEFAULT]\n")
    files = {
        reader: source.configuration.files for source in read([str(tmp_path)]).sources for reader in source.readers
    }
    assert files["conductor"] == (str(tmp_path / "nova_cell1.conf"),)
    assert files["super-conductor"] == (str(tmp_path / "nova.conf"),)
    assert files["compute"] == (str(tmp_path / "nova-cpu.conf"),)
    assert files["api"] == (str(tmp_path / "nova.conf"),)


@pytest.mark.parametrize("prefix", ["", "conductor="])
def test_devstack_starts_a_conductor_for_each_cell(tmp_path, prefix):
    for name in ("nova.conf", "nova_cell1.conf", "nova_cell2.conf"):
        (tmp_path / name).write_text("[DEFAULT]\n")
    conductors = [s for s in read([f"{prefix}{tmp_path}"]).sources if "conductor" in s.readers]
    cells = [str(tmp_path / f"nova_cell{number}.conf") for number in (1, 2)]
    assert [s.configuration.files for s in conductors] == [(cell,) for cell in cells]


def test_overrides_of_kolla_ansible_are_read_by_their_parent(tmp_path):
    """The directory node_custom_config, which also has overrides for all services."""
    texts = {"nova.conf": "[pci]\nalias = {}\n", "nova/nova-api.conf": "[DEFAULT]\n", "nova/gpu01/nova.conf": "[pci]\n"}
    (tmp_path / "nova/gpu01").mkdir(parents=True)
    for name, text in texts.items():
        (tmp_path / name).write_text(text)
    sources = read([str(tmp_path)]).sources
    assert any(str(tmp_path / "nova/nova-api.conf") in source.configuration.files for source in sources)
    assert sources == read([str(tmp_path / "nova")]).sources


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("values.yaml", "conf: {nova: {mdev_nvidia-700: {device_addresses: 0000:17:00.4}}}\n", "0000:17:00.4"),
        ("user_variables.yml", "nova_enabled_mdev_types: [{type: nvidia-700, address: 0000:17:00.4}]\n", "1020.4"),
    ],
)
def test_an_address_without_quotes_is_what_the_tool_reads(tmp_path, name, text, value):
    """YAML 1.1 has numbers of base 60; Ansible reads them, Helm and Kubernetes do not."""
    (tmp_path / name).write_text(text)
    settings = {s.value for source in read([str(tmp_path / name)]).sources for s in source.configuration.settings}
    assert value in settings


def test_a_number_in_place_of_an_address_is_explained(tmp_path):
    file = tmp_path / "user_variables.yml"
    file.write_text("nova_enabled_mdev_types: [{type: nvidia-700, address: 0000:17:00.4}]\n")
    found = [f.message for f in lint([str(file)], LintSubject(release=releases.release("2025.2"))).findings]
    assert any(message.endswith("YAML reads an address without quotes as a number") for message in found)
