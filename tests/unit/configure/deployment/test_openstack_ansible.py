"""Variables for OpenStack-Ansible beside those of the operator, read by Ansible's own loader."""

import json
import subprocess

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader

from support.nova_rendered import codes, rendered, written

DEPLOY = "etc/openstack_deploy"


def read(directory, name) -> dict:
    """The variables that Ansible reads for a group or a host."""
    variables = {}
    for path in DataLoader().find_vars_files(str(directory), name):
        with open(path) as stream:
            variables.update(yaml.safe_load(stream))
    return variables


def test_a_rendering_for_one_service_keeps_the_overrides_of_all(tmp_path):
    """The group's variables are those of every service; nova-compute does not start if its report is off again."""
    overrides = []
    for services in ((), ("api",)):
        rendering = rendered(tmp_path, "openstack-ansible", placement="schedule", services=services)
        (file,) = (file for file in rendering.files if file.path.endswith("nova_all/gpustack.yml"))
        overrides.append(yaml.safe_load(file.text)["nova_nova_conf_overrides"])
    assert overrides[0] == overrides[1]
    assert overrides[0]["pci"] == {"report_in_placement": True}


@pytest.mark.parametrize("ending", ["", ".yml", ".yaml", ".json"])
@pytest.mark.parametrize(("kind", "name"), [("group_vars", "nova_all"), ("host_vars", "gpu01")])
def test_no_directory_hides_the_operators_variables(tmp_path, kind, name, ending):
    tmp_path /= "my deployment"
    directory = tmp_path / DEPLOY / kind
    directory.mkdir(parents=True)
    (directory / f"{name}{ending}").write_text('{"nova_cpu_allocation_ratio": 1}\n')
    rendering = rendered(tmp_path, "openstack-ansible")
    (hidden,) = (f for f in rendering.findings if f.code == "GPU325")
    assert hidden.severity == "error"
    subprocess.run(["sh", "-ec", hidden.remedy.partition(": ")[2]], check=True)
    rendering = rendered(tmp_path, "openstack-ansible")
    assert codes(rendering, "GPU325") == []
    written(tmp_path, rendering)
    variables = read(directory, name)
    assert variables["nova_cpu_allocation_ratio"] == 1
    assert {"nova_pci_alias", "nova_device_spec"} & variables.keys()


def test_a_hidden_file_of_an_earlier_rendering_is_reported(tmp_path):
    written(tmp_path, rendered(tmp_path, "openstack-ansible"))
    assert codes(rendered(tmp_path, "openstack-ansible"), "GPU325") == []
    (tmp_path / DEPLOY / "group_vars/nova_all.yml").write_text("nova_cpu_allocation_ratio: 1\n")
    assert codes(rendered(tmp_path, "openstack-ansible"), "GPU325") == [("GPU325", "nova_all.yml")]


@pytest.mark.parametrize(
    ("file", "variable", "winner"),
    [
        ("user_variables.yml", "nova_pci_alias: []", "the value of this file"),
        ("group_vars/nova_all/a.yml", "nova_pci_alias: []", "gpustack's value, and this one is lost"),
        ("group_vars/nova_all/z.yml", "nova_pci_alias: []", "the value of this file"),
        ("group_vars/nova_compute.yml", "nova_pci_alias: []", "the value of the more specific group"),
        ("host_vars/ctl01.yml", "nova_pci_alias: []", "the value of this file on that host"),
        ("group_vars/all.yml", "nova_device_spec: []", "gpustack's value, and this one is lost on that host"),
        ("user_secrets.yml", "nova_password: !vault x", None),
        ("host_vars/ctl01.yml", "nova_device_spec: []", None),
    ],
)
def test_a_variable_that_is_set_twice_is_reported(tmp_path, file, variable, winner):
    path = tmp_path / DEPLOY / file
    path.parent.mkdir(parents=True)
    path.write_text(f"{variable}\n")
    findings = [f for f in rendered(tmp_path, "openstack-ansible").findings if f.code == "GPU326"]
    assert {f.message.partition("Ansible uses ")[2] for f in findings} == ({winner} if winner else set())


@pytest.mark.parametrize(
    ("filters", "reported"),
    [("ComputeFilter", True), ("[ComputeFilter]", True), ("ComputeFilter, PciPassthroughFilter", False)],
)
def test_overrides_that_replace_the_filters_are_reported(tmp_path, filters, reported):
    file = tmp_path / DEPLOY / "user_variables.yml"
    file.parent.mkdir(parents=True)
    section = {"enabled_filters": yaml.safe_load(filters)}
    file.write_text(yaml.safe_dump({"nova_nova_conf_overrides": {"filter_scheduler": section}}))
    findings = [f for f in rendered(tmp_path, "openstack-ansible").findings if f.code == "GPU326"]
    assert [f.place for f in findings] == [str(file)] * reported


@pytest.mark.parametrize(
    ("section", "names"),
    [
        ({"pci": {"alias": '{"name": "fpga"}'}}, ["[pci] alias (nova_pci_alias, nova_nova_conf_overrides)"]),
        ({"pci": {"device_spec": "{}"}}, ["[pci] device_spec (nova_device_spec, nova_nova_conf_overrides)"] * 2),
        ({"pci": {"report_in_placement": True}, "libvirt": {"alias": "x"}}, []),
        ("no mapping", []),
    ],
)
def test_overrides_that_replace_aliases_or_devices_are_reported(tmp_path, section, names):
    """config_template 2.1.1 removes an option before it writes the value of an override (``_option_write``)."""
    file = tmp_path / DEPLOY / "user_variables.yml"
    file.parent.mkdir(parents=True)
    file.write_text(yaml.safe_dump({"nova_nova_conf_overrides": section}))
    findings = [f for f in rendered(tmp_path, "openstack-ansible").findings if f.code == "GPU326"]
    assert {f.message.partition(": set here")[0] for f in findings} == set(names)


@pytest.mark.parametrize(
    ("file", "text", "severity"),
    [
        ("user_variables.yml", "nova_pci_alias: [\n", "error"),
        ("user_variables.yml", "a: {{ b }}\n", "error"),
        ("user_variables.yml", b"\xff\xfe", "error"),
        ("user_variables.yml", "[" * 100_000, "error"),
        ("group_vars/nova_all/x/y.yml", "a: b: c\n", "error"),
        ("user_secrets.yml", "$ANSIBLE_VAULT;1.1;AES256\n6162\n", "info"),
        ("user_variables.yml.bak", "nova_pci_alias: [\n", None),
        ("group_vars/nova_all/main.yml~", "nova_pci_alias: [\n", None),
        ("group_vars/nova_all/README.md", "- a: [\n", None),
        ("group_vars/glance_all.yml", "", None),
        ("user_variables.yml", "", None),
    ],
)
def test_variables_that_can_not_be_read_are_reported(tmp_path, file, text, severity):
    path = tmp_path / DEPLOY / file
    path.parent.mkdir(parents=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    reported = {
        (f.place, str(f.severity)) for f in rendered(tmp_path, "openstack-ansible").findings if f.code == "GPU329"
    }
    assert reported == ({(str(path), severity)} if severity else set())


@pytest.mark.parametrize(("release", "kind"), [("2023.1", list), ("zed", str), ("yoga", str)])
def test_device_specs_have_the_type_that_the_role_takes(tmp_path, release, kind):
    """Before 2023.1 the role writes the variable into one line as it is: a list would become Python's text of it."""
    written(tmp_path, rendered(tmp_path, "openstack-ansible", release=release))
    variables = yaml.safe_load((tmp_path / DEPLOY / "host_vars/gpu01/gpustack.yml").read_text())
    (value,) = variables.values()
    assert isinstance(value, kind)
    assert (json.loads(value) if kind is str else [json.loads(line) for line in value]) == [
        {"vendor_id": "10de", "product_id": "11b4"}
    ]
