"""The deployment tools' own code merges what gpustack renders, and Nova's options are then what was wanted.

Real: the action plugin merge_configs with the lists of files of kolla-ansible's roles, kayobe's tasks that put the
files of an environment together. Left out are kolla-ansible's own templates, which need the variables of a complete
deployment, and OpenStack-Ansible: its role is not on PyPI, and the config_template there (2.1.1) does not run on
ansible-core 2.19. The unit tests read its variables with Ansible's own loader.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from oslo_config import cfg

from gpustack.connect.playbooks.inventory import interpreter
from support.deployers import ensure
from support.nova_rendered import FPGA, NIC, SPEC, rendered, written

GPU01 = {"vendor_id": "10de", "product_id": "11b4"}
AMD01 = {"vendor_id": "1002", "product_id": "74a1"}
OURS = ["k4200", "mi300x"]
FILTERS = "ComputeFilter,ComputeCapabilitiesFilter,ImagePropertiesFilter,ServerGroupAntiAffinityFilter"
DEFAULT = [*FILTERS.split(","), "ServerGroupAffinityFilter", "PciPassthroughFilter"]
SERVICES = {
    "ctl01": ["nova-api", "nova-scheduler", "placement-api"],
    "gpu01": ["nova-compute"],
    "gpu-amd01": ["nova-compute"],
}
ROLES = {"nova": ["nova-api", "nova-scheduler"], "nova-cell": ["nova-compute"], "placement": ["placement-api"]}
COPIES = ("Copying over nova.conf", "Copying over placement.conf")
LARGE = f"{SPEC}flavors:\n  'g-{{count}}': {{model: k4200, count: [1, 4], vcpus: 1, ram: 512, disk: 1}}\n"
INVENTORY = "".join(
    f"{host} ansible_connection=local ansible_python_interpreter={interpreter()}\n" for host in SERVICES
)


@pytest.fixture(scope="module")
def tools() -> Path:
    return ensure()


def play(root: Path, tools: Path, plays: list[dict]) -> None:
    """Run plays with the plugins of the deployment tools."""
    plugins = ["kolla-ansible/ansible/action_plugins", "kayobe/ansible/roles/kolla-openstack/action_plugins"]
    plugins = [str(tools / "share" / path) for path in plugins]
    book, hosts = root / "play.yml", root / "inventory.ini"
    book.write_text(yaml.safe_dump(plays))
    hosts.write_text(INVENTORY)
    process = subprocess.run(
        [str(Path(sys.executable).with_name("ansible-playbook")), "-i", str(hosts), str(book)],
        env={
            **os.environ,
            "ANSIBLE_ACTION_PLUGINS": ":".join(plugins),
            # kolla-ansible's plugin reads it; since ansible-core 2.21 results have it only on request.
            "ANSIBLE_INJECT_INVOCATION": "true",
            "ANSIBLE_LOCALHOST_WARNING": "false",
            "PYTHONPATH": str(tools),
            "PYTHONWARNINGS": "ignore",
        },
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-3000:] + process.stderr[-3000:]


def merges(root: Path, tools: Path, config: str) -> Iterator[dict]:
    """kolla-ansible's own merging task of each role, for every service of a host; blazar is on for gpu-amd01's."""
    for role, services in ROLES.items():
        tasks = yaml.safe_load((tools / f"share/kolla-ansible/ansible/roles/{role}/tasks/config.yml").read_text())
        (task,) = (task for task in tasks if task.get("name") in COPIES)
        for service in services:
            sources = task["merge_configs"]["sources"][1:]
            dest = f"{root}/merged/{{{{ inventory_hostname }}}}/{service}.conf"
            yield {
                "hosts": ",".join(host for host, having in SERVICES.items() if service in having),
                "gather_facts": False,
                "vars": {"node_custom_config": str(root / config), "item": {"key": service}, "enable_blazar": False},
                "tasks": [
                    {"file": {"path": f"{root}/merged/{{{{ inventory_hostname }}}}", "state": "directory"}},
                    {"merge_configs": {"sources": sources, "dest": dest}},
                    {
                        "merge_configs": {"sources": sources, "dest": f"{dest}.blazar"},
                        "vars": {"enable_blazar": True},
                    },
                ],
            }


def conf(path: Path) -> cfg.ConfigOpts:
    """What oslo.config reads, with Nova's definitions of these options."""
    config = cfg.ConfigOpts()
    config.register_opts([cfg.MultiStrOpt(name, default=[]) for name in ("alias", "device_spec")], group="pci")
    config.register_opts([cfg.BoolOpt("report_in_placement", default=False)], group="pci")
    config.register_opts([cfg.ListOpt("enabled_filters"), cfg.BoolOpt("pci_in_placement")], group="filter_scheduler")
    config([], default_config_files=[str(path)], default_config_dirs=[])
    return config


def assert_placement_limited(root: Path) -> None:
    """What Placement must read, and the scheduler's weight, for flavors with many GPUs."""
    config = cfg.ConfigOpts()
    config.register_opts([cfg.IntOpt("max_allocation_candidates"), cfg.BoolOpt("x")], group="placement")
    config([], default_config_files=[str(root / "merged/ctl01/placement-api.conf")], default_config_dirs=[])
    assert (config.placement.max_allocation_candidates, config.placement.x) == (1000, True)
    assert "pci_weight_multiplier = 10\n" in (root / "merged/ctl01/nova-scheduler.conf").read_text()


def names(config: cfg.ConfigOpts) -> list[str]:
    return [json.loads(line)["name"] for line in config.pci.alias]


def devices(config: cfg.ConfigOpts) -> list[dict]:
    return [json.loads(line) for line in config.pci.device_spec]


def put(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def assert_merged(root: Path, aliases: list[str], filters: list[str], nic: bool) -> None:
    """What every service of every host must read."""
    foreign = [json.loads(NIC)] if nic else []
    api, scheduler = (conf(root / f"merged/ctl01/nova-{name}.conf") for name in ("api", "scheduler"))
    assert sorted(names(api)) == sorted(aliases)
    assert scheduler.filter_scheduler.enabled_filters == filters
    assert api.filter_scheduler.pci_in_placement
    assert scheduler.filter_scheduler.pci_in_placement
    for host, expected in (("gpu01", GPU01), ("gpu-amd01", AMD01)):
        compute = conf(root / f"merged/{host}/nova-compute.conf")
        assert sorted(names(compute)) == sorted(aliases)
        assert devices(compute) == [*foreign, expected]
        assert compute.pci.report_in_placement


def test_kolla_ansible_merges_what_is_rendered(tmp_path, tools):
    """With overrides of the operator's own before it; kolla-ansible's Blazar keeps its filter."""
    put(tmp_path, {"etc/kolla/config/nova.conf": f"[pci]\nalias = {FPGA}\ndevice_spec = {NIC}\n"})
    put(tmp_path, {"etc/kolla/config/placement.conf": "[placement]\nx = true\n"})
    rendering = rendered(tmp_path, "kolla", placement="schedule", spec=LARGE)
    assert not [finding for finding in rendering.findings if finding.severity == "error"]
    written(tmp_path, rendering)
    play(tmp_path, tools, list(merges(tmp_path, tools, "etc/kolla/config")))
    assert_merged(tmp_path, ["fpga", *OURS], DEFAULT, nic=True)
    assert_placement_limited(tmp_path)
    blazar = conf(tmp_path / "merged/ctl01/nova-scheduler.conf.blazar")
    assert blazar.filter_scheduler.enabled_filters == [*DEFAULT, "BlazarFilter"]


def kayobe(root: Path, tools: Path) -> dict:
    """kayobe's own tasks that put the files of the base and of an environment together for kolla-ansible."""
    role = tools / "share/kayobe/ansible/roles/kolla-openstack"
    defaults = yaml.safe_load((role / "defaults/main.yml").read_text())
    globs = [
        entry
        for entry in defaults["kolla_openstack_custom_config_include_globs_default"]
        if entry["glob"].startswith(("nova", "placement"))
    ]
    tasks = yaml.safe_load((role / "tasks/config.yml").read_text())
    first = next(n for n, task in enumerate(tasks) if "kolla_custom_config_info" in task)
    paths = [str(root / "etc/kayobe"), str(root / "etc/kayobe/environments/prod")]
    return {
        "hosts": "ctl01",
        "gather_facts": False,
        "vars": {
            **defaults,
            "kolla_enable_nova": True,
            "kolla_enable_placement": True,
            "kolla_openstack_custom_config_include_globs": globs,
            "kolla_openstack_custom_config_paths": paths,
            "kolla_node_custom_config_path": str(root / "generated"),
            "_kolla_openstack_custom_config_cleanup_ignore_globs": [],
        },
        "tasks": [{"file": {"path": str(root / "generated"), "state": "directory"}}, *tasks[first:]],
    }


def test_kayobe_joins_an_environment_and_hands_it_on(tmp_path, tools):
    base = "etc/kayobe/kolla/config"
    put(tmp_path, {f"{base}/nova/nova-api.conf": f"[pci]\nalias = {FPGA}\n"})
    put(tmp_path, {f"{base}/nova/nova-compute.conf": f"[pci]\nalias = {FPGA}\n", f"{base}/nova.conf": "[DEFAULT]\n"})
    environment = "etc/kayobe/environments/prod/kolla/config/nova"
    put(tmp_path, {f"{base}/placement.conf": "[placement]\nx = true\n"})
    rendering = rendered(tmp_path, "kayobe", placement="schedule", directory=environment, spec=LARGE)
    assert not [finding for finding in rendering.findings if finding.severity == "error"]
    written(tmp_path, rendering)
    play(tmp_path, tools, [kayobe(tmp_path, tools), *merges(tmp_path, tools, "generated")])
    assert_merged(tmp_path, ["fpga", *OURS], DEFAULT, nic=False)
    assert_placement_limited(tmp_path)
    blazar = conf(tmp_path / "merged/ctl01/nova-scheduler.conf.blazar")
    assert blazar.filter_scheduler.enabled_filters[-1] == "BlazarFilter"
