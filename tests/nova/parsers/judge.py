"""Asks Nova's own code what it makes of configurations. Runs on Nova's Python, not on gpustack's.

``python judge.py < jobs.jsonl > answers.jsonl``: one process for many configurations. A job is
``{"files": [path, …], "functions": [{"address", "vendor", "product", "parent", "total_vfs", "numa_node"}, …],
"interfaces": {name: address}, "ports": [{"network", "vnic_type", "numa_policy", "flavor_policy", "node"}, …]}``;
the answer holds what Nova read, what it refused and why, the functions that it
would offer to guests, and how many of them each alias gets.
"""

import inspect
import json
import sys

import nova.conf
from nova.pci import request, stats, utils, whitelist
from nova.scheduler import filters, host_manager
from oslo_config import cfg

from nova import config, objects

# ruff: noqa: SIM401, UP031 - groups have no get, and the oldest Nova runs on Python 3.9

CONF = nova.conf.CONF
PRESENT = {}
INTERFACES = {}
PORT = "6e2d1b1c-5b52-4b3a-9b0f-1f0e5c2f7a11"


def is_physical_function(domain, bus, slot, function):
    """In place of the look into /sys."""
    entry = PRESENT.get("%s:%s:%s.%s" % (domain, bus, slot, function))
    return bool(entry and entry.get("total_vfs"))


def get_function_by_ifname(name):
    """In place of the look into /sys."""
    address = INTERFACES.get(name)
    entry = PRESENT.get(address)
    return address, bool(entry and entry.get("total_vfs"))


utils.is_physical_function = is_physical_function
utils.get_function_by_ifname = get_function_by_ifname


def attempt(answer, key, run):
    """Note what ``run`` gives, or how it failed."""
    try:
        answer[key] = run()
    except Exception as error:
        answer[key] = None
        answer[key + "_error"] = "%s: %s" % (type(error).__name__, error)


def aliases():
    parse = getattr(request, "get_alias_from_config", None) or request._get_alias_from_config
    if hasattr(parse, "cache_clear"):
        parse.cache_clear()
    return {name: [policy, specs] for name, (policy, specs) in parse().items()}


def scheduler_filters():
    """As nova-scheduler chooses its filters when it starts."""
    classes = filters.HostFilterHandler().get_matching_classes(CONF.filter_scheduler.available_filters)
    manager = host_manager.HostManager.__new__(host_manager.HostManager)
    manager.filter_cls_map = {cls.__name__: cls for cls in classes}
    manager.filter_obj_map = {}
    return len(manager._choose_host_filters(CONF.filter_scheduler.enabled_filters))


def devices():
    name = "device_spec" if "device_spec" in CONF.pci else "passthrough_whitelist"
    return list(CONF.pci[name])


def kind(function):
    if function.get("parent"):
        return "type-VF"
    return "type-PF" if function.get("total_vfs") is not None else "type-PCI"


def offered(filter_, functions):
    addresses = []
    for function in functions:
        device = {
            "vendor_id": function["vendor"],
            "product_id": function["product"],
            "address": function["address"],
            "parent_addr": function.get("parent"),
        }
        if filter_.device_assignable(device):
            addresses.append(function["address"])
    return addresses


def pools(filter_, functions):
    """The free devices of a host, as the scheduler sees them."""
    device_stats = stats.PciDeviceStats(objects.NUMATopology(cells=[]), dev_filter=filter_)
    for number, function in enumerate(functions):
        device_stats.add_device(
            objects.PciDevice.create(
                None,
                {
                    "id": number,
                    "compute_node_id": 1,
                    "address": function["address"],
                    "vendor_id": function["vendor"],
                    "product_id": function["product"],
                    "dev_type": kind(function),
                    "parent_addr": function.get("parent"),
                    "numa_node": function.get("numa_node"),
                    "status": "available",
                    "dev_id": "pci_%d" % number,
                    "label": "label",
                    "request_id": None,
                },
            )
        )
    return device_stats


def share(device_stats, name, most):
    """How many devices an alias gets from a host."""
    for count in range(most, 0, -1):
        flavor = objects.Flavor(extra_specs={"pci_passthrough:alias": "%s:%d" % (name, count)})
        requests = request.get_pci_requests_from_flavor(flavor).requests
        try:
            fits = device_stats.support_requests(requests, provider_mapping=None)
        except TypeError:
            fits = device_stats.support_requests(requests)
        if fits:
            return count
    return 0


class NeutronClient:
    """In place of Neutron's API: its answers about one port and the network of the port."""

    def __init__(self, port):
        self.port = port

    def show_port(self, _port, **_):
        keys = {"binding:vnic_type": "vnic_type", "numa_affinity_policy": "numa_policy"}
        return {"port": {"network_id": "net", **{key: self.port.get(name) for key, name in keys.items()}}}

    def show_network(self, _network, **_):
        return {"network": {"provider:physical_network": self.port["network"], "provider:network_type": "vlan"}}

    def list_extensions(self, **_):
        return {"extensions": []}


def port_fits(device_stats, port):
    """Whether a host has a device for a port, on the NUMA node of the instance if that is given.

    Nova makes the request from the port and the policy of the flavor.
    """
    from nova.network import neutron

    from nova import context

    neutron.get_client = lambda *_, **__: NeutronClient(port)
    requests = objects.InstancePCIRequests(requests=[])
    networks = objects.NetworkRequestList(objects=[objects.NetworkRequest(port_id=PORT)])
    admin = context.get_admin_context()
    neutron.API().create_resource_requests(admin, networks, requests, affinity_policy=port.get("flavor_policy"))
    (request_,) = requests.requests
    nodes = [objects.InstanceNUMACell(id=port["node"])] if port.get("node") is not None else None
    return device_stats.support_requests([request_], provider_mapping=None, numa_cells=nodes)


class Host:
    """A host with eight processors, for the driver's methods that read the configuration of them."""

    get_online_cpus = get_available_cpus = staticmethod(lambda: set(range(8)))


def compute():
    """What nova-compute makes of its configuration: inventories, machine type, RAM ratio."""
    from nova.virt import hardware
    from nova.virt.libvirt import driver, utils

    class Driver:
        _host = Host

    shared = driver.LibvirtDriver._get_vcpu_available(Driver)
    dedicated = driver.LibvirtDriver._get_pcpu_available(Driver)
    return {
        "vcpu": len(shared),
        "pcpu": len(dedicated),
        "machine": utils.get_default_machine_type("x86_64"),
        "ratio": CONF.ram_allocation_ratio or CONF.initial_ram_allocation_ratio,
        "ports": CONF.libvirt.num_pcie_ports,
        "reserved": sum(sum(sizes.values()) for sizes in hardware.numa_get_reserved_huge_pages().values()),
    }


def fits_pages(request, ram, nodes, host):
    """Whether Nova fits an instance into the huge pages of a host that runs no other."""
    from nova.virt import hardware

    cells = [
        objects.NUMACell(
            id=number,
            cpuset=set(range(number * 8, number * 8 + 8)),
            pcpuset=set(),
            memory=1 << 20,
            cpu_usage=0,
            memory_usage=0,
            pinned_cpus=set(),
            siblings=[],
            socket=None,
            network_metadata=objects.NetworkMetadata(physnets=set(), tunneled=False),
            mempages=[
                objects.NUMAPagesTopology(size_kb=size, total=total, used=0) for size, total in [(4, 1 << 28), *pages]
            ],
        )
        for number, pages in enumerate(host)
    ]
    flavor = objects.Flavor(
        vcpus=nodes, memory_mb=ram, extra_specs={"hw:mem_page_size": request, "hw:numa_nodes": str(nodes)}
    )
    instance = hardware.numa_get_constraints(flavor, objects.ImageMeta.from_dict({}))
    fit = hardware.numa_fit_instance_to_host
    more = {"provider_mapping": None} if "provider_mapping" in inspect.signature(fit).parameters else {}
    return fit(objects.NUMATopology(cells=cells), instance, **more) is not None


def judge(job):
    answer = {}
    if "pages" in job:
        return {"fits": fits_pages(**{k: v for k, v in job["pages"].items() if k != "fits"})}
    PRESENT.clear()
    PRESENT.update({function["address"]: function for function in job.get("functions", ())})
    INTERFACES.clear()
    INTERFACES.update(job.get("interfaces", {}))
    try:
        CONF([], project="nova", default_config_files=job["files"], default_config_dirs=[])
    except cfg.Error as error:
        return {"parse_error": str(error)}
    if job.get("compute"):
        attempt(answer, "compute", compute)
    attempt(answer, "aliases", aliases)
    answer["alias_keys"] = sorted(request._ALIAS_SCHEMA["properties"])
    attempt(answer, "devices", devices)
    attempt(answer, "filters", lambda: list(CONF.filter_scheduler.enabled_filters))
    attempt(answer, "scheduler", scheduler_filters)
    attempt(answer, "pci_weight_multiplier", lambda: CONF.filter_scheduler.pci_weight_multiplier)
    answer["all_filters"] = sorted({cls.__name__ for cls in filters.all_filters()})
    for key, group, name in (
        ("report", "pci", "report_in_placement"),
        ("schedule", "filter_scheduler", "pci_in_placement"),
    ):
        attempt(answer, key, lambda group=group, name=name: CONF[group][name] if name in CONF[group] else None)
    attempt(answer, "whitelist", lambda: whitelist.Whitelist(devices()))
    filter_ = answer.pop("whitelist")
    if filter_ is not None:
        functions = job.get("functions", ())
        attempt(answer, "offered", lambda: offered(filter_, functions))
        ports, present = job.get("ports", ()), [f for f in functions if f["address"] in (answer.get("offered") or ())]
        attempt(answer, "ports", lambda: [port_fits(pools(filter_, present), port) for port in ports])
        if answer.get("offered") is not None and answer["aliases"] is not None and not answer["schedule"]:
            candidates = [function for function in functions if function["address"] in answer["offered"]]
            attempt(
                answer,
                "shares",
                lambda: {n: share(pools(filter_, candidates), n, len(candidates)) for n in answer["aliases"]},
            )
    return answer


def main():
    objects.register_all()
    config.set_lib_defaults()
    for line in sys.stdin:
        print(json.dumps(judge(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
