"""Resources for RHOSO and values for openstack-helm: what their own rules make of them."""

import base64
import fnmatch
import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from oslo_config import cfg

from gpustack.base.errors import NovaConfigError
from gpustack.base.findings import Severity
from gpustack.configure.desired import wanted
from gpustack.configure.inspection import existing_for
from gpustack.configure.lint import lint
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.reading import read as read_configurations
from gpustack.configure.render import render
from gpustack.configure.sources import SERVICES, Existing
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import releases
from gpustack.spec.load import parse_spec
from support.nova_hosts import raw
from support.nova_rendered import FPGA, HOSTS, NIC, SPEC, codes, rendered, written

SCHEMAS = yaml.safe_load((Path(__file__).parent / "schemas/rhoso.yaml").read_text())
GPU01 = [{"vendor_id": "10de", "product_id": "11b4"}]
AMD01 = [{"vendor_id": "1002", "product_id": "74a1"}]
OURS = ["k4200", "mi300x"]
KEY = "35-gpustack-nova.conf"
COPIED = "*nova*.conf"
"""The files that edpm-ansible has nova-compute's container read (roles/edpm_nova, kolla_config/nova_compute.yaml)."""


def conf_of(*texts: str) -> cfg.ConfigOpts:
    """What oslo.config reads of the texts of files."""
    conf = cfg.ConfigOpts()
    conf.register_opts([cfg.MultiStrOpt(name, default=[]) for name in ("alias", "device_spec")], group="pci")
    conf.register_opts([cfg.BoolOpt("report_in_placement", default=False)], group="pci")
    conf.register_opts([cfg.ListOpt("enabled_filters"), cfg.BoolOpt("pci_in_placement")], group="filter_scheduler")
    conf([], default_config_files=list(texts), default_config_dirs=[])
    return conf


def names(conf) -> list[str]:
    return [json.loads(line)["name"] for line in conf.pci.alias]


def read(tmp_path, *texts: str) -> cfg.ConfigOpts:
    paths = []
    for number, text in enumerate(texts):
        paths.append(tmp_path / f"{number}.conf")
        paths[-1].write_text(text)
    return conf_of(*map(str, paths))


def documents(rendering, name) -> list[dict]:
    return [d for f in rendering.files if f.path.endswith(name) for d in yaml.safe_load_all(f.text)]


@pytest.mark.parametrize("placement", ["off", "report", "schedule"])
def test_rhoso_takes_the_resources(tmp_path, placement):
    rendering = rendered(tmp_path, "rhoso", placement=placement)
    maps, services = documents(rendering, "dataplane.yaml")[::2], documents(rendering, "dataplane.yaml")[1::2]
    for config_map, service in zip(maps, services, strict=True):
        jsonschema.validate(config_map, SCHEMAS["configmap"])
        jsonschema.validate(service, SCHEMAS["service"])
        assert service["spec"]["dataSources"][-1] == {"configMapRef": {"name": config_map["metadata"]["name"]}}
    assert fnmatch.fnmatch(KEY, COPIED)
    texts = {config_map["metadata"]["name"]: config_map["data"][KEY] for config_map in maps}
    devices = {"nova-gpu-none": [], "nova-gpu-10de-11b4": GPU01, "nova-gpu-1002-74a1": AMD01}
    for name, expected in devices.items():
        conf = read(tmp_path, texts[name])
        assert [json.loads(line) for line in conf.pci.device_spec] == expected
        assert names(conf) == OURS
        assert conf.pci.report_in_placement is (placement != "off")
    (patch,) = documents(rendering, "controlplane.yaml")
    jsonschema.validate(patch, SCHEMAS["controlplane"])
    template = patch["spec"]["nova"]["template"]
    assert names(read(tmp_path, template["apiServiceTemplate"]["customServiceConfig"])) == OURS
    assert (
        set(template)
        == {
            "off": {"apiServiceTemplate"},
            "report": {"apiServiceTemplate"},
            "schedule": {"apiServiceTemplate", "schedulerServiceTemplate", "cellTemplates"},
        }[placement]
    )
    assert "enabled_filters" not in json.dumps(template), "nova-operator's own list has the filters"


CONTROL_PLANE = f"""\
kind: OpenStackControlPlane
spec:
  nova:
    template:
      apiServiceTemplate:
        customServiceConfig: |
          [pci]
          alias = {FPGA}
      schedulerServiceTemplate:
        customServiceConfig: |
          [filter_scheduler]
          enabled_filters = ComputeFilter
      cellTemplates:
        cell0: {{}}
        cell7: {{}}
"""


def test_rhoso_names_each_set_of_devices_differently():
    """Resources of one name would replace each other: long names are cut, and a host may be called none."""
    long = "rack-12-of-the-datacenter-in-frankfurt-compute-with-gpu-"
    called = ["first", "none", *(f"{long}{number}" for number in range(3))]
    facts = raw("k4200-prepared")
    hosts = [Host.model_validate({**facts, "hostname": name}) for name in called]
    out = [{"host": name, "address": "0000:84:00.0", "reason": str(n)} for n, name in enumerate(called)]
    for number, host in enumerate(hosts):  # each has its GPUs at other addresses
        moved = json.loads(host.model_dump_json().replace("0000:88:", f"0000:9{number}:"))
        hosts[number] = Host.model_validate({**moved, "hostname": host.hostname})
    model = 'models: {k4200: {match: {vendor: "10de", product: "11b4"}}}'
    of_hosts = ", ".join(f"{name}: [k4200]" for name in called)
    spec = parse_spec(f"version: 1\n{model}\nhosts: {{{of_hosts}}}\nout_of_service: {out}\n", "test")
    desired = wanted(spec, hosts, release=releases.release("2025.2"))
    maps = documents(render(desired, deployment="rhoso", hosts=hosts), "dataplane.yaml")[::2]
    names = [config_map["metadata"]["name"] for config_map in maps]
    assert len(names) == len(set(names)) == 6
    assert all(len(name) <= 63 for name in names)


def test_rhoso_keeps_the_operators_service_config(tmp_path):
    existing = tmp_path / "there.yaml"
    existing.write_text(CONTROL_PLANE)
    for _ in range(2):
        rendering = rendered(tmp_path, "rhoso", str(existing), placement="schedule")
        assert codes(rendering, "GPU312", "GPU313", "GPU383") == []
        (patch,) = documents(rendering, "controlplane.yaml")
        template = patch["spec"]["nova"]["template"]
        api, scheduler = (
            read(tmp_path, template[f"{name}ServiceTemplate"]["customServiceConfig"]) for name in ("api", "scheduler")
        )
        assert names(api) == ["fpga", *OURS]
        assert scheduler.filter_scheduler.enabled_filters == ["ComputeFilter", "PciPassthroughFilter"]
        assert set(template["cellTemplates"]) == {"cell0", "cell7"}
        existing.write_text(yaml.safe_dump(patch))  # as it is once it was applied
    assert codes(rendered(tmp_path, "rhoso"), "GPU383") == [("GPU383", "rhoso")]


CONDUCTOR = """\
kind: OpenStackControlPlane
spec:
  nova:
    template:
      cellTemplates:
        cell0: {}
        cell1:
          conductorServiceTemplate: {customServiceConfig: TEXT}
          metadataServiceTemplate: {customServiceConfig: TEXT}
          noVNCProxyServiceTemplate: {customServiceConfig: TEXT}
          novaComputeTemplates:
            ironic: {computeDriver: ironic.IronicDriver, customServiceConfig: TEXT}
"""


def test_rhoso_reads_the_conductors_of_cells(tmp_path):
    path = tmp_path / "there.yaml"
    path.write_text(CONDUCTOR.replace("TEXT", '"[filter_scheduler]\\npci_in_placement = false"'))
    (source,) = existing_for("rhoso", arguments=[str(path)], root=tmp_path).sources
    assert source.services == ("conductor",)
    assert source.label == f"{path}:cellTemplates.cell1.conductorServiceTemplate"
    (patch,) = documents(rendered(tmp_path, "rhoso", str(path), placement="schedule"), "controlplane.yaml")
    for cell in patch["spec"]["nova"]["template"]["cellTemplates"].values():
        text = cell["conductorServiceTemplate"]["customServiceConfig"]
        assert read(tmp_path, text).filter_scheduler.pci_in_placement is True


def test_rhoso_refuses_a_conductors_text_that_is_no_ini_file(tmp_path):
    path = tmp_path / "there.yaml"
    path.write_text(CONDUCTOR.replace("TEXT", '"pci_in_placement: [false"'))
    with pytest.raises(NovaConfigError, match=r"cellTemplates\.cell1\.conductorServiceTemplate"):
        rendered(tmp_path, "rhoso", str(path))


@pytest.mark.parametrize("form", ["OpenStackControlPlane", "Nova", "List"])
def test_rhoso_reads_each_form_of_the_resource(tmp_path, form):
    control_plane = yaml.safe_load(CONTROL_PLANE)
    forms = {
        "OpenStackControlPlane": control_plane,
        "Nova": {"kind": "Nova", "spec": control_plane["spec"]["nova"]["template"]},
        "List": {"kind": "List", "items": [control_plane]},  # oc get openstackcontrolplane -o yaml
    }
    path = tmp_path / "there.yaml"
    path.write_text(yaml.safe_dump(forms[form]))
    rendering = rendered(tmp_path, "rhoso", str(path), placement="schedule")
    assert codes(rendering, "GPU383") == []
    (patch,) = documents(rendering, "controlplane.yaml")
    template = patch["spec"]["nova"]["template"]
    assert names(read(tmp_path, template["apiServiceTemplate"]["customServiceConfig"])) == ["fpga", *OURS]
    assert set(template["cellTemplates"]) == {"cell0", "cell7"}


def test_rhoso_removes_settings_of_an_earlier_placement(tmp_path):
    """A merge patch keeps each text that it does not name: settings for `schedule` must not stay with `report`."""
    existing = tmp_path / "there.yaml"
    existing.write_text(CONTROL_PLANE)
    for placement in ("schedule", "report"):
        (patch,) = documents(rendered(tmp_path, "rhoso", str(existing), placement=placement), "controlplane.yaml")
        existing.write_text(yaml.safe_dump(patch))
    jsonschema.validate(patch, SCHEMAS["controlplane"])
    template = patch["spec"]["nova"]["template"]
    assert set(template["cellTemplates"]) == {"cell0", "cell7"}
    assert "pci_in_placement" not in json.dumps(template)
    assert names(read(tmp_path, template["apiServiceTemplate"]["customServiceConfig"])) == ["fpga", *OURS]


CONFIG_MAP = f"""\
kind: ConfigMap
metadata: {{name: nova-extra-config}}
data:
  25-nova-extra.conf: |
    [pci]
    device_spec = {json.dumps(GPU01[0])}
  {KEY}: |
    [pci]
    device_spec = {json.dumps(GPU01[0])}
  notes.txt: no INI file
"""


def test_rhoso_reports_devices_of_other_config_maps(tmp_path):
    existing = tmp_path / "there.yaml"
    existing.write_text(CONFIG_MAP)
    reported = codes(rendered(tmp_path, "rhoso", str(existing)), "GPU312", "GPU383")
    assert sorted(set(reported)) == [("GPU312", "there.yaml:25-nova-extra.conf:2"), ("GPU383", "rhoso")]


def test_rhoso_reports_devices_in_secrets(tmp_path):
    text = '[pci]\ndevice_spec = {"vendor_id": "10de"}\n'
    encoded = base64.b64encode(text.encode()).decode()
    secret = {"kind": "Secret", "stringData": {"25-nova-a.conf": text}, "data": {"25-nova-b.conf": encoded}}
    path = tmp_path / "there.yaml"
    path.write_text(yaml.safe_dump(secret))
    reported = codes(rendered(tmp_path, "rhoso", str(path)), "GPU312")
    assert sorted(reported) == [("GPU312", f"there.yaml:25-nova-{name}.conf:2") for name in "ab"]


@pytest.mark.parametrize("kind", ["Secret", "ConfigMap"])
def test_binary_data_of_other_keys_is_skipped(tmp_path, kind):
    """`oc get secret -o yaml` prints key stores too."""
    path, field = tmp_path / "there.yaml", {"Secret": "data", "ConfigMap": "binaryData"}[kind]
    text = base64.b64encode(f"[pci]\ndevice_spec = {json.dumps(GPU01[0])}\n".encode()).decode()
    path.write_text(yaml.safe_dump({"kind": kind, field: {"store.p12": "/w==", "25-nova.conf": text}}))
    assert codes(rendered(tmp_path, "rhoso", str(path)), "GPU312") == [("GPU312", "there.yaml:25-nova.conf:2")]


def test_rhoso_refuses_a_secret_that_is_not_encoded(tmp_path):
    path = tmp_path / "there.yaml"
    path.write_text(yaml.safe_dump({"kind": "Secret", "data": {"25-nova.conf": "/w=="}}))
    with pytest.raises(NovaConfigError, match=r"there.yaml:25-nova.conf: the value is not text in Base64"):
        rendered(tmp_path, "rhoso", str(path))


@pytest.mark.parametrize(("key", "value", "expected"), [("99", "false", 1), ("99", "true", 0), ("25", "false", 0)])
def test_rhoso_refuses_keys_that_override_ours(tmp_path, key, value, expected):
    data = {f"{key}-nova.conf": f"[pci]\nreport_in_placement = {value}\n"}
    path = tmp_path / "there.yaml"
    path.write_text(yaml.safe_dump({"kind": "ConfigMap", "data": data}))
    reported = codes(rendered(tmp_path, "rhoso", str(path), placement="report"), "GPU314")
    assert reported == [("GPU314", "there.yaml:99-nova.conf:2")] * expected


def test_rhoso_allows_switches_in_a_main_file(tmp_path):
    """A drop-in overrides it."""
    path = tmp_path / "nova.conf"
    path.write_text("[pci]\nreport_in_placement = false\n")
    assert codes(rendered(tmp_path, "rhoso", f"compute={path}", placement="report"), "GPU314") == []


def oslo_conf(values: dict) -> str:
    """In place of helm-toolkit's ``to_oslo_conf``, which only Helm runs: lists are joined, a multistring is lines."""
    lines = []
    for section, options in values.items():
        lines.append(f"[{section}]")
        for key, value in options.items():
            if isinstance(value, list):
                lines.append(f"{key} = {','.join(value)}")
            elif isinstance(value, dict):
                assert value["type"] == "multistring"
                lines += [f"{key} = {item}" for item in value["values"]]
            else:
                lines.append(f"{key} = {str(value).lower()}")
    return "\n".join(lines)


def merged(below: dict, above: dict) -> dict:
    """As Helm merges values: maps are merged, anything else is replaced."""
    result = dict(below)
    for key, value in above.items():
        old = result.get(key)
        result[key] = merged(old, value) if isinstance(old, dict) and isinstance(value, dict) else value
    return result


def confs(tmp_path, *values: dict) -> dict[str, cfg.ConfigOpts]:
    """The configuration of all services, and of nova-compute on each host that has overrides (stands in for Helm)."""
    conf = {}
    for document in values:
        conf = merged(conf, document["conf"])
    hosts = conf.pop("overrides", {}).get("nova_compute", {}).get("hosts", [])
    by_host = {"": read(tmp_path, oslo_conf(conf["nova"]))}
    for host in hosts:
        by_host[host["name"]] = read(tmp_path, oslo_conf(merged(conf, host["conf"])["nova"]))
    return by_host


@pytest.mark.parametrize("placement", ["off", "report", "schedule"])
def test_helm_makes_every_services_configuration(tmp_path, placement):
    rendering = rendered(tmp_path, "openstack-helm", placement=placement)
    assert [(f.path, f.services) for f in rendering.files] == [("openstack-helm/gpustack-nova.yaml", SERVICES)]
    by_host = confs(tmp_path, *documents(rendering, ".yaml"))
    assert {name: [json.loads(line) for line in conf.pci.device_spec] for name, conf in by_host.items()} == {
        "": [],
        "gpu01": GPU01,
        "gpu-amd01": AMD01,
    }
    for conf in by_host.values():
        assert names(conf) == OURS
        assert conf.filter_scheduler.enabled_filters[-1] == "PciPassthroughFilter"
        assert conf.pci.report_in_placement is (placement != "off")
        assert bool(conf.filter_scheduler.pci_in_placement) is (placement == "schedule")


def test_helm_overrides_for_labels_are_checked(tmp_path):
    """Which hosts have a label is not known, so nothing is compared with the facts of one."""
    label = {"key": "openstack-compute-cpu-type", "values": ["amd-3900", "amd-3950"]}
    entry = {"label": label, "conf": {"nova": {"pci": {"device_spec": NIC}}}}
    for common in ({"nova": {"pci": {"alias": FPGA}}}, {}):
        file = tmp_path / "values.yaml"
        file.write_text(yaml.safe_dump({"conf": {**common, "overrides": {"nova_compute": {"labels": [entry, 5]}}}}))
        (source,) = (source for source in read_configurations([str(file)]).sources if "labels[" in source.label)
        place = "conf.overrides.nova_compute.labels[openstack-compute-cpu-type=amd-3900,amd-3950].conf.nova"
        assert (source.label, source.services, source.hosts) == (f"{file}:{place}", ("compute",), ())
        expected = [*(["conf.nova.pci.alias"] if common else []), f"{place}.pci.device_spec"]
        assert [setting.key for setting in source.configuration.settings] == expected


def test_helm_keeps_the_operators_values(tmp_path):
    """Helm replaces lists: aliases, devices, filters and the overrides of other hosts are written along."""
    pci = {"alias": {"type": "multistring", "values": [FPGA]}, "device_spec": {"type": "multistring", "values": [NIC]}}
    cpu_host = {"name": "cpu01", "conf": {"nova": {"DEFAULT": {"cpu_allocation_ratio": 1}}}}
    gpu_host = {"name": "gpu01", "conf": {"nova": {"DEFAULT": {"reserved_host_memory_mb": 4096}, "pci": None}}}
    empty = {"name": "gpu-amd01", "conf": None}
    filters = {"enabled_filters": ["ComputeFilter", "RetryFilter"]}
    labels = [{"label": {"key": "a"}, "conf": {}}]
    values = {
        "conf": {
            "nova": {"pci": pci, "filter_scheduler": filters, "DEFAULT": {"note": "a\n [b\n c"}},
            "overrides": {"nova_compute": {"hosts": [cpu_host, gpu_host, empty], "labels": labels}},
        }
    }
    existing = tmp_path / "values.yaml"
    existing.write_text(yaml.safe_dump(values))
    rendering = rendered(tmp_path, "openstack-helm", str(existing))
    assert codes(rendering, "GPU312", "GPU380", "GPU383", "GPU384") == [
        ("GPU380", "values.yaml:conf.nova.filter_scheduler.enabled_filters"),
        ("GPU384", "conf.overrides.nova_compute.labels"),
    ]
    (generated,) = documents(rendering, ".yaml")
    del values["conf"]["nova"]["DEFAULT"]  # no text for the stand-in of the chart's function
    by_host = confs(tmp_path, values, generated)
    assert by_host[""].filter_scheduler.enabled_filters == ["ComputeFilter", "PciPassthroughFilter"]
    assert set(by_host) == {"", "cpu01", "gpu01", "gpu-amd01"}
    assert all(names(conf) == ["fpga", *OURS] for conf in by_host.values())
    assert [json.loads(line) for line in by_host["gpu01"].pci.device_spec] == [json.loads(NIC), *GPU01]
    assert [json.loads(line) for line in by_host["cpu01"].pci.device_spec] == [json.loads(NIC)]
    hosts = {host["name"]: host["conf"]["nova"] for host in generated["conf"]["overrides"]["nova_compute"]["hosts"]}
    assert hosts["gpu01"]["DEFAULT"] == {"reserved_host_memory_mb": 4096}


@pytest.mark.parametrize("conf", [["a"], {"nova": ["a"]}, {"nova": {"pci": "a"}}, {"nova": {"pci": ["a"]}}])
def test_helm_replaces_overrides_that_are_no_mappings(tmp_path, conf):
    values = tmp_path / "values.yaml"
    hosts = [{"name": "gpu01", "conf": conf}]
    values.write_text(yaml.safe_dump({"conf": {"overrides": {"nova_compute": {"hosts": hosts}}}}))
    (document,) = documents(rendered(tmp_path, "openstack-helm", str(values)), "gpustack-nova.yaml")
    by_name = {entry["name"]: entry["conf"] for entry in document["conf"]["overrides"]["nova_compute"]["hosts"]}
    assert by_name["gpu01"]["nova"]["pci"]["device_spec"]["values"] == [json.dumps(entry) for entry in GPU01]


@pytest.mark.parametrize(
    ("lines", "code", "place"),
    [
        (['[{"vendor_id": "10de"},', ' {"vendor_id": "1002"}', " ]"], None, ""),
        (['[{"vendor_id": "10de"},', ' {"vendor_id": "1002"}', "]"], "GPU330", "conf.nova.pci.device_spec"),
        (['[{"vendor_id": "10de"},', '{"vendor_id": "1002"}]'], "GPU331", "conf.nova.pci.device_spec"),
    ],
)
def test_helm_writes_the_lines_of_a_value_as_they_are(tmp_path, lines, code, place):
    """The chart does not indent them, and only an indented line continues a value."""
    values = tmp_path / "values.yaml"
    values.write_text(yaml.safe_dump({"conf": {"nova": {"pci": {"device_spec": "\n".join(lines)}}}}))
    report = lint([f"{values}"], LintSubject(release=releases.release("2025.2")))
    found = {(f.code, f.place) for f in report.findings if f.severity is Severity.ERROR}
    assert found & {("GPU330", f"{values}:{place}"), ("GPU331", f"{values}:{place}")} == (
        {(code, f"{values}:{place}")} if code else set()
    )
    texts = [f"[pci]\ndevice_spec = {chr(10).join(lines)}\n"]
    if code == "GPU330":
        with pytest.raises(cfg.ConfigFileParseError):
            read(tmp_path, *texts)
    else:
        (value,) = read(tmp_path, *texts).pci.device_spec
        assert (code is None) == value.endswith("]")


def test_places_in_values_are_named_by_their_path(tmp_path):
    alias = json.dumps({"name": "k4200", "vendor_id": "10de", "product_id": "11b4"})
    devices = {"type": "multistring", "values": [NIC, '{"vendor_id": "10de"}']}
    gpu_host = {"name": "gpu01", "conf": {"nova": {"pci": {"passthrough_whitelist": devices}}}}
    common = {"alias": {"type": "multistring", "values": [FPGA]}, "report_in_placement": "false"}
    values = {
        "conf": {
            "nova": {"pci": common, "DEFAULT": {"pci_alias": alias}},
            "overrides": {"nova_compute": {"hosts": [gpu_host]}},
        }
    }
    existing = tmp_path / "values.yaml"
    existing.write_text(yaml.safe_dump(values))
    assert set(codes(rendered(tmp_path, "openstack-helm", str(existing)), "GPU312", "GPU313")) == {
        ("GPU313", "values.yaml:conf.nova.DEFAULT.pci_alias"),
        (
            "GPU312",
            "values.yaml:conf.overrides.nova_compute.hosts[gpu01].conf.nova.pci.passthrough_whitelist.values[1]",
        ),
    }


@pytest.mark.parametrize(("release", "refused"), [("zed", True), ("2023.1", False), ("2025.2", False)])
def test_rhoso_is_refused_with_releases_that_it_does_not_run(tmp_path, release, refused):
    reported = codes(rendered(tmp_path, "rhoso", release=release), "GPU305")
    assert reported == [("GPU305", "nova.release")] * refused


def test_hosts_with_the_same_devices_share_a_service(tmp_path):
    spec = SPEC.replace("gpu01: [k4200], gpu-amd01: [mi300x]", '"gpu*": [k4200, mi300x]')
    names_of = [d["metadata"]["name"] for d in documents(rendered(tmp_path, "rhoso", spec=spec), "dataplane.yaml")]
    assert sorted(set(names_of)) == ["nova-gpu-1002-74a1", "nova-gpu-10de-11b4", "nova-gpu-none"]
    written(tmp_path, rendered(tmp_path, "rhoso", spec=spec))
    assert (tmp_path / "rhoso/controlplane.yaml").exists()


@pytest.mark.parametrize("key", ["gpu.conf", "nova.cfg", "35-GPU.conf"])
def test_keys_that_edpm_ansible_does_not_copy_are_reported(tmp_path, key):
    path, text = tmp_path / "there.yaml", f"[DEFAULT]\ndebug = true\n[pci]\ndevice_spec = {json.dumps(GPU01[0])}\n"
    data = {key: text, "notes.txt": "the alias is elsewhere", "libvirt.conf": "[pci]\nother = 1\n"}
    path.write_text(yaml.safe_dump({"kind": "ConfigMap", "data": data}))
    rendering = rendered(tmp_path, "rhoso", str(path))
    assert codes(rendering, "GPU312", "GPU377") == [("GPU377", f"there.yaml:{key}:4")]
    report = lint([str(path)], LintSubject(release=releases.release("2025.2")))
    for findings in (rendering.findings, report.findings):
        (found,) = [f for f in findings if f.code not in ("GPU383", "GPU307", "GPU317")]
        assert found.code == "GPU377"
        assert fnmatch.fnmatch((found.remedy or "").rpartition(" ")[2], COPIED)


def test_a_host_that_stays_gets_the_aliases_of_all(tmp_path):
    """nova-api and every nova-compute need the same aliases; the devices of the host stay."""
    written(tmp_path, rendered(tmp_path, "rhoso"))
    text = SPEC.replace('product: "74a1"}}', 'product: "74a1"}, alias: big}').replace("RELEASE", "2025.2")
    desired = wanted(
        parse_spec(text.replace("PLACEMENT", "off"), "spec"), HOSTS[1:], release=releases.release("2025.2")
    )
    rendering = render(
        desired, deployment="rhoso", hosts=HOSTS[1:], root=tmp_path, existing=Existing(), stays=lambda host: True
    )
    maps = [d for d in documents(rendering, "dataplane.yaml") if d["kind"] == "ConfigMap"]
    assert [d["metadata"]["name"] for d in maps] == ["nova-gpu-none", "nova-gpu-1002-74a1", "nova-gpu-10de-11b4"]
    configurations = [read(tmp_path, d["data"][KEY]) for d in maps]
    assert [names(conf) for conf in configurations] == [["big"]] * 3
    assert [[json.loads(line) for line in conf.pci.device_spec] for conf in configurations] == [[], AMD01, GPU01]
