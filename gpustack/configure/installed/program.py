"""Performs the steps with which Nova's services read their configuration. Runs on Nova's Python, 3.6 or later.

A job is ``{"files": {name: text}, "services": [name], "functions": [{"address", "vendor", "product", "parent",
"total_vfs", "numa_node"}], "interfaces": {name: address}, "sysfs": true}``. The answer has the version of Nova, the
steps that it refused, and what it read. Nothing is written, and no database or message bus is opened: the texts of
files are passed to oslo.config through anonymous files in memory.
"""

import contextlib
import importlib
import inspect
import io
import json
import os
import sys
import threading

from .start import init_host, read_host

MARK = "gpustack-nova: "
_LIBRARIES = ("oslo.cache", "oslo.concurrency", "oslo.log", "oslo.messaging", "oslo.middleware", "oslo.policy")
_LIBRARIES += ("oslo.privsep", "oslo.reports", "oslo.service.periodic_task", "oslo.service.service")
_LIBRARIES += ("oslo.versionedobjects", "osprofiler", "os_vif", "os_brick")
_MODULES = ("nova.policy", "nova.rpc", "nova.service", "nova.privsep", "os_brick.privileged")
_MODULES += ("vif_plug_ovs.privsep", "vif_plug_linux_bridge.privsep")
_CPUS = 8192
"""The processors of a host that is not known."""


class Refusals:
    """The steps of one job: results by name, and errors."""

    def __init__(self):
        self.answer = {}
        self.refused = []

    def attempt(self, services, key, run, option=""):
        """Note the result of ``run``, or how it failed."""
        try:
            self.answer[key] = run()
        except Exception as error:
            text = "%s: %s" % (type(error).__name__, error)
            self.answer[key] = None
            self.answer[key + "_error"] = text
            self.refused.append({"services": list(services), "step": key, "option": option, "error": text})
        return self.answer[key]


class Present:
    """The devices of the host, which replace the look into ``/sys``."""

    functions = None
    interfaces = None


def _is_physical_function(domain, bus, slot, function):
    entry = Present.functions.get("%s:%s:%s.%s" % (domain, bus, slot, function))
    return bool(entry and entry.get("total_vfs"))


def _function_by_ifname(name):
    address = Present.interfaces.get(name)
    entry = Present.functions.get(address)
    return address, bool(entry and entry.get("total_vfs"))


@contextlib.contextmanager
def _in_memory(files):
    """Paths at which the texts can be read; nothing is written to a disk."""
    paths, descriptors = [], []
    try:
        for name, text in files.items():
            content = text.encode("utf-8")
            if hasattr(os, "memfd_create"):
                descriptor = os.memfd_create(os.path.basename(name) or "nova.conf")
                os.write(descriptor, content)
            else:
                descriptor, end = os.pipe()
                threading.Thread(target=_fill, args=(end, content), daemon=True).start()
            descriptors.append(descriptor)
            paths.append("/proc/self/fd/%d" % descriptor)
        yield paths
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def _fill(end, content):
    with os.fdopen(end, "wb") as stream:
        stream.write(content)


def _register_libraries(conf):
    """Register the options of libraries, which they do themselves only when they are used."""
    with contextlib.suppress(Exception):
        from stevedore import extension

        # A library that can't be imported has no options here.
        for point in extension.ExtensionManager(
            "oslo.config.opts", invoke_on_load=False, on_load_failure_callback=lambda *_: None
        ):
            if point.name in _LIBRARIES:
                for group, opts in point.plugin():
                    for opt in (opt for opt in opts if not opt.required):
                        with contextlib.suppress(Exception):
                            conf.register_opt(opt, group=group)


def _register_dynamic(conf, services):
    """Register the options whose sections depend on values, as nova-compute does, and those of auth_type."""
    loading = importlib.import_module("keystoneauth1.loading")  # it registers options, and sends nothing
    for name in ("devices", "neutron") if "compute" in services else ():
        with contextlib.suppress(Exception):
            importlib.import_module("nova.conf." + name).register_dynamic_opts(conf)
    with contextlib.suppress(Exception):  # up to 2025.1, the program nova-compute registers them
        debug = importlib.import_module("nova.conf.remote_debug") if "compute" in services else None
        conf.register_opts(debug.CLI_OPTS, group=debug.debugger_group)
    for group in list(conf._groups):
        with contextlib.suppress(Exception):
            if "auth_type" in conf[group] and conf[group].auth_type:
                loading.load_auth_from_conf_options(conf, group)


def _forget(conf, registered):
    """Remove the options that a job has registered."""
    for name, group in list(conf._groups.items()):
        for dest in list(group._opts):
            if (name, dest) not in registered:
                del group._opts[dest]
        if not group._opts:
            del conf._groups[name]
    conf._GroupCache = {}
    conf.clear()


def _every_option(conf, steps, services):
    """Read each option."""
    _register_dynamic(conf, services)
    entries = [("DEFAULT", entry["opt"]) for entry in conf._opts.values()]
    entries += [(name, entry["opt"]) for name, group in conf._groups.items() for entry in group._opts.values()]
    for group, opt in entries:
        try:
            if group == "DEFAULT":
                conf[opt.dest]
            else:
                conf[group][opt.dest]
        except Exception as error:
            text = "its value is refused" if opt.secret else str(error)
            path = "%s/%s" % (group, opt.dest)
            refused = {"services": list(services), "step": "option", "option": path}
            steps.refused.append(dict(refused, error="%s: %s" % (type(error).__name__, text)))


def aliases():
    """The aliases as nova-api and nova-compute parse them."""
    from nova.pci import request

    parse = getattr(request, "get_alias_from_config", None) or request._get_alias_from_config
    if hasattr(parse, "cache_clear"):
        parse.cache_clear()
    return {name: [policy, specs] for name, (policy, specs) in parse().items()}


def _flavors(names):
    """Requests of flavors with each alias, as nova-api and nova-conductor make them for a boot."""
    from nova.pci import request

    from nova import objects

    for name in names:
        flavor = objects.Flavor(extra_specs={"pci_passthrough:alias": "%s:1" % name})
        spec = objects.RequestSpec(requested_resources=[])
        spec.pci_requests = request.get_pci_requests_from_flavor(flavor)
        if hasattr(spec, "generate_request_groups_from_pci_requests"):
            spec.generate_request_groups_from_pci_requests()
    return len(names)


def device_lines(conf):
    """The lines of device_spec."""
    name = "device_spec" if "device_spec" in conf.pci else "passthrough_whitelist"
    return list(conf.pci[name])


def _device_filter(conf):
    from nova.pci import whitelist

    return whitelist.Whitelist(device_lines(conf))


def _filters(conf):
    from nova.scheduler import filters, host_manager

    classes = filters.HostFilterHandler().get_matching_classes(conf.filter_scheduler.available_filters)
    manager = host_manager.HostManager.__new__(host_manager.HostManager)
    manager.filter_cls_map = {cls.__name__: cls for cls in classes}
    manager.filter_obj_map = {}
    return len(manager._choose_host_filters(conf.filter_scheduler.enabled_filters))


def _weighers(conf):
    from nova.scheduler import weights

    return len(weights.HostWeightHandler().get_matching_classes(conf.filter_scheduler.weight_classes))


def _quota_driver(conf):
    from oslo_utils import importutils

    importutils.import_object(conf.quota.driver)
    return conf.quota.driver


def _vendor_data(conf):
    from nova.api.metadata import vendordata_json

    if "StaticJSON" in conf.api.vendordata_providers:
        vendordata_json.JsonFileVendorData()
    return True


def _mediated(_conf):
    """The types of mediated devices, and the type and the resource class of each address."""
    from collections import defaultdict

    from nova.virt.libvirt import driver

    cls = driver.LibvirtDriver
    method = getattr(cls, "_get_supported_mdev_types", None) or getattr(cls, "_get_supported_vgpu_types", None)
    if method is None:
        return None

    class Driver(cls):
        def __init__(self):
            self.pgpu_type_mapping, self.mdev_class_mapping = defaultdict(str), defaultdict(lambda: "VGPU")
            self.mdev_type_max_mapping, self.mdev_classes = {}, set()
            self.pgpu_type_default, self.virtual_mdevs = None, set()

    host = Driver()
    types = method(host)
    of_address = dict(host.mdev_class_mapping)
    return {
        "types": list(types),
        "addresses": dict(host.pgpu_type_mapping),
        "classes": of_address,
        "default": host.pgpu_type_default or (types[0] if types and not of_address else None),
        "limits": host.mdev_type_max_mapping,
    }


def _providers(conf, exists):
    """The files of provider_config, if the directory exists."""
    from nova.compute import provider_config

    location = conf.compute.provider_config_location
    if not exists or not os.path.isdir(location):
        return None
    return sorted(provider_config.get_provider_configs(location))


def kind(function):
    """The device type that Nova's libvirt driver reports."""
    if function.get("parent"):
        return "type-VF"
    return "type-PF" if function.get("total_vfs") is not None else "type-PCI"


def _assignable(device_filter, functions):
    addresses = []
    for function in functions:
        device = {
            "vendor_id": function["vendor"],
            "product_id": function["product"],
            "address": function["address"],
            "parent_addr": function.get("parent"),
        }
        if device_filter.device_assignable(device):
            addresses.append(function["address"])
    return addresses


def pci_device(number, function):
    """The object that nova-compute makes of a function."""
    from nova import objects

    values = {"id": number, "compute_node_id": 1, "address": function["address"], "dev_id": "pci_%d" % number}
    values.update({"vendor_id": function["vendor"], "product_id": function["product"], "dev_type": kind(function)})
    values.update({"parent_addr": function.get("parent"), "numa_node": function.get("numa_node"), "label": "label"})
    values.update({"status": "available", "request_id": None})
    device = objects.PciDevice.create(None, values)
    device.instance_uuid = None
    return device


def _in_placement(device_filter, functions):
    """The resource providers that nova-compute makes of its devices."""
    from nova.compute import pci_placement_translator as translator
    from nova.compute import provider_tree

    translator.ensure_no_dev_spec_with_devname(device_filter.specs)
    parameters = inspect.signature(translator.PlacementView.__init__).parameters
    view = translator.PlacementView("host", *([[]] if len(parameters) > 2 else []))
    for number, function in enumerate(functions):
        device = pci_device(number, function)
        spec = device_filter.get_devspec(device)
        if spec is not None:
            view.process_dev(device, spec)
    tree = provider_tree.ProviderTree()
    tree.new_root("host", "11111111-1111-4111-8111-111111111111")
    more = [{}] if len(inspect.signature(view.update_provider_tree).parameters) > 1 else []
    view.update_provider_tree(tree, *more)
    return {name: sorted(tree.data(name).inventory) for name in view.rps if tree.exists(name)}


def _functions_of_sysfs(root="/sys/bus/pci/devices"):
    """The functions of this machine."""
    functions = []
    for address in sorted(os.listdir(root)) if os.path.isdir(root) else ():
        path = os.path.join(root, address)
        parent = os.path.join(path, "physfn")
        function = {"address": address, "vendor": _word(path, "vendor")[2:], "product": _word(path, "device")[2:]}
        function["parent"] = os.path.basename(os.path.realpath(parent)) if os.path.exists(parent) else None
        total, node = _word(path, "sriov_totalvfs"), _word(path, "numa_node")
        function["total_vfs"] = int(total) if total else None
        function["numa_node"] = int(node) if node and int(node) >= 0 else None
        functions.append(function)
    return functions


def _word(path, name):
    try:
        with open(os.path.join(path, name)) as stream:
            return stream.read().strip()
    except OSError:
        return ""


def _compute(conf, steps, job, device_filter):
    """The steps of nova-compute's start."""
    of = ("compute",)
    functions = list(Present.functions.values())
    steps.attempt(of, "devices", lambda: device_lines(conf), "pci/device_spec")
    if device_filter is not None:
        steps.attempt(of, "offered", lambda: _assignable(device_filter, functions), "pci/device_spec")
        if steps.answer.get("report"):
            steps.attempt(of, "placement", lambda: _in_placement(device_filter, functions), "pci/device_spec")
    count = job.get("cpus") or (os.cpu_count() if job.get("sysfs") else _CPUS)
    steps.attempt(of, "compute", lambda: read_host(conf, count), "compute/cpu_dedicated_set")
    steps.attempt(of, "init_host", lambda: init_host(conf))
    if job.get("sysfs") and "provider_config_location" in conf.compute:
        steps.attempt(of, "providers", lambda: _providers(conf, True), "compute/provider_config_location")


def _switch(conf, group, name):
    return conf[group][name] if name in conf[group] else None


def _steps(conf, steps, job):
    services = job.get("services") or ("api", "compute", "scheduler", "conductor")
    steps.attempt(services, "report", lambda: _switch(conf, "pci", "report_in_placement"))
    steps.attempt(services, "schedule", lambda: _switch(conf, "filter_scheduler", "pci_in_placement"))
    # nova/network/neutron.py parses it in each service.
    device_filter = steps.attempt(services, "whitelist", lambda: _device_filter(conf), "pci/device_spec")
    steps.answer.pop("whitelist")
    if {"api", "compute"}.intersection(services):
        readers = [service for service in ("api", "compute") if service in services]
        names = steps.attempt(readers, "aliases", aliases, "pci/alias")
        if names and "api" in services:
            steps.attempt(("api",), "flavors", lambda: _flavors(names), "pci/alias")
    if "api" in services or "conductor" in services:
        steps.attempt(("api",), "quota", lambda: _quota_driver(conf), "quota/driver")
    if "api" in services and job.get("sysfs"):
        steps.attempt(("api",), "vendor_data", lambda: _vendor_data(conf), "api/vendordata_jsonfile_path")
    if "scheduler" in services:
        of = ("scheduler",)
        steps.attempt(of, "filters", lambda: list(conf.filter_scheduler.enabled_filters))
        steps.attempt(of, "scheduler", lambda: _filters(conf), "filter_scheduler/enabled_filters")
        steps.attempt(of, "weighers", lambda: _weighers(conf), "filter_scheduler/weight_classes")
    if "compute" in services:
        _compute(conf, steps, job, device_filter)


def check(job, more=None):
    """The answer to one job; ``more(job, answer)`` adds to it while the configuration is in force."""
    import nova.conf

    conf, steps = nova.conf.CONF, Refusals()
    functions = _functions_of_sysfs() if job.get("sysfs") and job.get("functions") is None else job.get("functions")
    Present.functions = {function["address"]: function for function in functions or ()}
    Present.interfaces = job.get("interfaces") or {}
    services = job.get("services") or ("api", "compute", "scheduler", "conductor")
    with _in_memory(job["files"]) as paths:
        said = io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                conf([], project="nova", default_config_files=paths, default_config_dirs=[])
        except (Exception, SystemExit) as error:  # argparse exits if it refuses the value of a command-line option
            text = (said.getvalue().splitlines() or [""])[-1] if isinstance(error, SystemExit) else str(error)
            refused = {"services": list(services), "step": "files", "option": ""}
            steps.refused.append(dict(refused, error="%s: %s" % (type(error).__name__, text)))
            steps.answer["parse_error"] = text
        else:
            options = ((name, dest) for name, group in conf._groups.items() for dest in group._opts)
            registered = set(options)
            if "compute" in services:  # before the sections of types are registered, as in the driver's __init__
                steps.attempt(("compute",), "mediated", lambda: _mediated(conf), "devices/enabled_mdev_types")
            _every_option(conf, steps, services)
            _steps(conf, steps, job)
            if more is not None:
                steps.answer.update(more(job, dict(steps.answer, refused=steps.refused)))
            _forget(conf, registered)
    seen = {refusal["option"] for refusal in steps.refused if refusal["step"] == "option"}
    refused = [r for r in steps.refused if r["step"] == "option" or r["option"] not in seen or not r["option"]]
    return _named(dict(steps.answer, refused=refused), paths, list(job["files"]))


def _named(answer, paths, names):
    """The answer with the names of the files instead of the paths at which they were read."""
    text = json.dumps(answer, default=str)
    for path, name in zip(paths, names):
        text = text.replace(json.dumps(path)[1:-1] + '"', json.dumps(name)[1:]).replace(path, json.dumps(name)[1:-1])
    return json.loads(text)


def prepare():
    """Import Nova; return its version."""
    from nova.pci import utils

    from nova import config, objects, version

    utils.is_physical_function = _is_physical_function
    utils.get_function_by_ifname = _function_by_ifname
    objects.register_all()
    config.set_lib_defaults()
    import nova.conf

    for module in _MODULES:
        with contextlib.suppress(Exception):
            importlib.import_module(module)
    _register_libraries(nova.conf.CONF)
    return version.version_string()


def drop_root():
    """Continue as user nova, if root runs the program and that user exists."""
    if os.geteuid() == 0:
        with contextlib.suppress(Exception):
            import pwd

            entry = pwd.getpwnam("nova")
            os.initgroups("nova", entry.pw_gid)
            os.setgid(entry.pw_gid)
            os.setuid(entry.pw_uid)


def main(jobs):
    """Print the answers to jobs; without jobs, to those on standard input, one a line."""
    drop_root()
    try:
        version = prepare()
    except ImportError as error:
        print(MARK + json.dumps({"import_error": str(error), "python": sys.version.split()[0]}), flush=True)
        return 3
    if jobs is not None:
        print(MARK + json.dumps({"version": version, "answers": [check(job) for job in jobs]}), flush=True)
        return 0
    for line in sys.stdin:
        print(MARK + json.dumps(check(json.loads(line))), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(None))
