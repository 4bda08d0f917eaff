"""Variables for OpenStack-Ansible beside those of the operator, read by Ansible's own loader."""

import json
import subprocess

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader

from gpustack.base.errors import NovaConfigError
from gpustack.configure.lint import lint
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.reading import read as read_configurations
from gpustack.nova_options import releases
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


def test_a_line_of_the_operator_that_is_an_expression_is_kept(tmp_path):
    """Only older roles need it parsed, to make one line of several."""
    file = tmp_path / "nova-compute.conf"
    file.write_text("[pci]\ndevice_spec = {{ mine }}\n")
    rendering = rendered(tmp_path, "openstack-ansible", f"compute={file}")
    (host,) = (file for file in rendering.files if "host_vars/gpu01/" in file.path)
    assert yaml.safe_load(host.text)["nova_device_spec"][0] == "{{ mine }}"
    with pytest.raises(NovaConfigError, match="join expressions"):
        rendered(tmp_path, "openstack-ansible", f"compute={file}", release="zed")


# --- reading ---------------------------------------------------------------------------------------------------------


def settings(directory, **files: str) -> dict[str, dict[str, list[str]]]:
    """The values that nova.conf gets, by services and option."""
    paths = []
    for name, text in files.items():
        paths.append(directory / f"{name}.yml")
        paths[-1].write_text(text)
    found: dict[str, dict[str, list[str]]] = {}
    for source in read_configurations([":".join(map(str, paths))]).sources:
        for setting in source.configuration.settings:
            found.setdefault(",".join(source.services), {}).setdefault(setting.path, []).append(setting.value)
    return found


ALL = "api,compute,scheduler,conductor"
ALIAS = '{"name": "a", "vendor_id": "10de", "product_id": "20b0"}'


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (f"nova_pci_alias: ['{ALIAS}']", {"pci/alias": [ALIAS]}),
        ("nova_pci_alias: [{name: a}, 5]", {"pci/alias": ["{'name': 'a'}", "5"]}),
        ('nova_pci_alias: \'{"name": "a"}\'', {"pci/alias": ["{"]}),
        ("nova_pci_alias: '{{ mine }}'", {"pci/alias": ["{{ mine }}"]}),
        ("nova_pci_alias: !vault |\n  $ANSIBLE_VAULT;1.1;AES256\n  00\n", {"pci/alias": ["{{ vault }}"]}),
        (
            f"nova_pci_alias: ['{ALIAS}']\nnova_nova_conf_overrides: {{pci: {{alias: [a, b]}}, api: {{max_limit: 5}}}}",
            {"pci/alias": ["a,b"], "api/max_limit": ["5"]},
        ),
        (
            "nova_nova_conf_overrides: {api: {vendordata_providers: {a: , b: }}}",
            {"api/vendordata_providers": ["a", "b"]},
        ),
        (
            "nova_scheduler_extra_filters: [PciPassthroughFilter]\nnova_scheduler_default_filters: [ComputeFilter]",
            {"scheduler": {"filter_scheduler/enabled_filters": ["ComputeFilter,PciPassthroughFilter"]}},
        ),
        (
            "nova_enabled_vgpu_types: [{type: nvidia-35, address: [a, b]}, {type: nvidia-36}]",
            {
                "compute": {
                    "devices/enabled_mdev_types": ["nvidia-35,nvidia-36"],
                    "mdev_nvidia-35/device_addresses": ["a,b"],
                }
            },
        ),
        (
            "nova_scheduler_default_filters: '{{ mine }}'",
            {"scheduler": {"filter_scheduler/enabled_filters": ["{{ … }}"]}},
        ),
        (
            "nova_nova_conf_overrides: {'a b': {c: d}, my_ip: 5, DEFAULT: {'x\\n[y]': z, ok: w}}",
            {"DEFAULT/my_ip": ["5"], "DEFAULT/ok": ["w"]},
        ),
        (
            f"nova_pci_alias: ['{ALIAS}']\nnova_nova_conf_overrides: {{pci: {{alias: {{}}}}, a: {{b: c}}}}",
            {"a/b": ["c"]},
        ),
        ("nova_pci_alias: !unsafe [a, '{{ b }}']", {"pci/alias": ["a", "{{ b }}"]}),
        ("nova_pci_alias: ['{% if x %}a{% endif %}', b]", {"pci/alias": ["{{ … }}", "b"]}),
        (
            "nova_device_spec: [{product_id: 2020-01-01}]\nnova_pci_alias: []",
            {"pci/device_spec": ['{"product_id": "2020-01-01"}']},
        ),
        (
            "nova_device_spec: ['{}']\nnova_pci_passthrough_whitelist: [x]\nnova_pci_alias: []",
            {"pci/device_spec": ["{}"]},
        ),
        (
            'nova_pci_alias: [x]\nnova_device_spec: |\n  {"vendor_id":\n   "product_id": 5}',
            {"pci/alias": ["x"], "pci/device_spec": ['{"vendor_id":'], 'pci/"product_id"': ["5}"]},
        ),
    ],
)
def test_variables_become_the_lines_that_the_role_writes(tmp_path, text, expected):
    of_all = any("/" in name for name in expected)
    assert settings(tmp_path, user_variables=text) == ({ALL: expected} if of_all else expected)


@pytest.mark.parametrize("name", ["nova_scheduler_extra_filters", "nova_scheduler_default_filters"])
@pytest.mark.parametrize(
    ("value", "expected"), [("A,PciPassthroughFilter", ["GPU378"]), ("'{{ mine }}'", ["GPU372"]), ("[A]", [])]
)
def test_text_in_place_of_a_list_of_filters(tmp_path, name, value, expected):
    """os_nova adds the two lists: a playbook with text fails. It was reported as an expression of Jinja."""
    file = tmp_path / "user_variables.yml"
    file.write_text(f"{name}: {value}\n")
    found = lint([f"scheduler={file}"], LintSubject(release=releases.release("2025.2"))).findings
    by_code = {f.code: f.remedy for f in found}
    assert [code for code in ("GPU372", "GPU378") if code in by_code] == expected
    if "GPU378" in expected:
        assert by_code["GPU378"] == f"write {name}: [A,PciPassthroughFilter]"
        assert yaml.safe_load(by_code["GPU378"].removeprefix("write ")) == {name: ["A", "PciPassthroughFilter"]}


@pytest.mark.parametrize("value", ["'{{ mine }}'", "{pci: '{{ mine }}', api: {max_limit: 5}}"])
def test_overrides_that_are_expressions_are_reported(tmp_path, value):
    file = tmp_path / "user_variables.yml"
    file.write_text(f"nova_nova_conf_overrides: {value}\n")
    (found,) = read_configurations([str(file)]).unread
    assert (found.code, found.place) == ("GPU372", f"{file}:nova_nova_conf_overrides")
    results = lint([str(file)], LintSubject(release=releases.release("2025.2"))).results
    assert {result.word for result in results} - {"Success"} == {"Warning"}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ('\'{"vendor_id": "10de"}\'', ['{"vendor_id": "10de"}']),
        ("{vendor_id: 10de}", ['{"vendor_id": "10de"}']),
        ("['{}', {address: '0000:01:00.0'}]", ["{}", '{"address": "0000:01:00.0"}']),
    ],
)
def test_devices_alone_are_those_of_nova_compute(tmp_path, value, expected):
    assert settings(tmp_path, host=f"nova_device_spec: {value}") == {"compute": {"pci/device_spec": expected}}


def test_a_later_file_replaces_the_variables_of_an_earlier_one(tmp_path):
    found = settings(
        tmp_path, group=f"nova_pci_alias: ['{ALIAS}']", host="nova_device_spec: ['{}']", user="nova_pci_alias: [b]"
    )
    assert found == {ALL: {"pci/alias": ["b"], "pci/device_spec": ["{}"]}}


def test_placement_has_a_configuration_of_its_own(tmp_path):
    text = "placement_placement_conf_overrides: {placement: {max_allocation_candidates: 100}}"
    assert settings(tmp_path, group=text) == {"placement": {"placement/max_allocation_candidates": ["100"]}}


def test_what_the_renderer_writes_is_read_again(tmp_path):
    rendering = rendered(tmp_path, "openstack-ansible", placement="schedule")
    paths = []
    for file in rendering.files:
        paths.append(tmp_path / file.path.lstrip("/"))
        paths[-1].parent.mkdir(parents=True, exist_ok=True)
        paths[-1].write_text(file.text)
    report = lint([":".join(map(str, paths))], LintSubject(release=releases.release("2025.2")))
    assert [f for f in report.findings if f.severity.name == "ERROR"] == []
    read_again = read_configurations([":".join(map(str, paths))]).sources
    assert {"pci/alias", "pci/device_spec", "filter_scheduler/enabled_filters"} <= {
        setting.path for source in read_again for setting in source.configuration.settings
    }


def test_a_finding_names_the_variable(tmp_path):
    file = tmp_path / "user_variables.yml"
    file.write_text(f"nova_pci_alias: ['{ALIAS}', {{name: b}}]\n")
    report = lint([f"api={file}"], LintSubject(release=releases.release("2025.2")))
    (found,) = (f for f in report.findings if f.code == "GPU331")
    assert found.place == f"{file}:nova_pci_alias[1]"
    assert "a dict of Python as text" in found.message
