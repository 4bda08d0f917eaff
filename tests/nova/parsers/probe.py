"""Asks Nova's own code more than `gpustack nova lint --with-nova` does. Runs on Nova's Python, not on gpustack's.

``python probe.py PROGRAM < jobs.jsonl``: PROGRAM is ``gpustack/configure/installed/program.py``. A job has its
keys and ``"ports": [{"network", "vnic_type", "numa_policy", "flavor_policy", "node"}, …]``, or ``"pages"``: whether
Nova fits an instance into huge pages.
"""

import importlib
import inspect
import json
import sys
import types
from pathlib import Path

# ruff: noqa: UP031 - the oldest Nova runs on Python 3.9

PORT = "6e2d1b1c-5b52-4b3a-9b0f-1f0e5c2f7a11"
sys.modules["installed"] = types.ModuleType("installed")
sys.modules["installed"].__path__ = [str(Path(sys.argv[1]).parent)]
program = importlib.import_module("installed.program")


def pools(filter_, functions):
    """The free devices of a host, as the scheduler sees them."""
    from nova.pci import stats

    from nova import objects

    device_stats = stats.PciDeviceStats(objects.NUMATopology(cells=[]), dev_filter=filter_)
    for number, function in enumerate(functions):
        device_stats.add_device(program.pci_device(number, function))
    return device_stats


def share(device_stats, name, most):
    """How many devices an alias gets from a host."""
    from nova.pci import request

    from nova import objects

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

    from nova import context, objects

    neutron.get_client = lambda *_, **__: NeutronClient(port)
    requests = objects.InstancePCIRequests(requests=[])
    networks = objects.NetworkRequestList(objects=[objects.NetworkRequest(port_id=PORT)])
    admin = context.get_admin_context()
    neutron.API().create_resource_requests(admin, networks, requests, affinity_policy=port.get("flavor_policy"))
    (request_,) = requests.requests
    nodes = [objects.InstanceNUMACell(id=port["node"])] if port.get("node") is not None else None
    return device_stats.support_requests([request_], provider_mapping=None, numa_cells=nodes)


def fits_pages(request, ram, nodes, host):
    """Whether Nova fits an instance into the huge pages of a host that runs no other."""
    from nova.virt import hardware

    from nova import objects

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


def more(job, answer):
    """The answer with what the scheduler would do with the devices."""
    import nova.conf
    from nova.pci import request
    from nova.scheduler import filters

    if any(refusal["step"] in ("files", "option") for refusal in answer["refused"]):
        return answer
    answer["alias_keys"] = sorted(request._ALIAS_SCHEMA["properties"])
    answer["all_filters"] = sorted({cls.__name__ for cls in filters.all_filters()})
    answer["pci_weight_multiplier"] = nova.conf.CONF.filter_scheduler.pci_weight_multiplier
    if answer.get("offered") is None:
        return answer
    filter_ = program._device_filter(nova.conf.CONF)
    present = [function for function in job.get("functions") or () if function["address"] in answer["offered"]]
    steps = program.Refusals()
    steps.attempt((), "ports", lambda: [port_fits(pools(filter_, present), port) for port in job.get("ports", ())])
    if answer.get("aliases") is not None and not answer["schedule"]:
        names, most = list(answer["aliases"]), len(present)
        steps.attempt((), "shares", lambda: {n: share(pools(filter_, present), n, most) for n in names})
    return dict(answer, **steps.answer)


def main():
    """Answer jobs, one a line."""
    program.prepare()
    for line in sys.stdin:
        job = json.loads(line)
        if "pages" in job:
            answer = {"fits": fits_pages(**{k: v for k, v in job["pages"].items() if k != "fits"})}
        else:
            answer = program.check(job, more)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
