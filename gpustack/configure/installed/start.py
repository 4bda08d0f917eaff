"""Steps of the start of nova-compute. Runs on Nova's Python, 3.6 or later, as a part of :mod:`.program`."""

import contextlib
import functools
import importlib
import inspect


class _Host:
    """The processors of a host, for methods of the driver that read the configuration of them."""

    def __init__(self, count):
        self.get_online_cpus = self.get_available_cpus = lambda: set(range(count))


def read_host(conf, count):
    """What nova-compute reads of its host: inventories, machine type, RAM ratio."""
    from nova.virt import hardware
    from nova.virt.libvirt import driver, utils

    class Driver:
        _host = _Host(count)

    if hasattr(driver.LibvirtDriver, "_check_cpu_set_configuration"):
        driver.LibvirtDriver._check_cpu_set_configuration(Driver())
    shared = driver.LibvirtDriver._get_vcpu_available(Driver)
    dedicated = driver.LibvirtDriver._get_pcpu_available(Driver)
    return {
        "vcpu": len(shared),
        "pcpu": len(dedicated),
        "machine": utils.get_default_machine_type("x86_64"),
        "ratio": conf.ram_allocation_ratio or conf.initial_ram_allocation_ratio,
        "ports": conf.libvirt.num_pcie_ports,
        "reserved": sum(sum(sizes.values()) for sizes in hardware.numa_get_reserved_huge_pages().values()),
    }


def init_host(conf):
    """What Nova checks first in init_host, by its own code on stand-ins of the service and of the driver."""
    from unittest import mock

    from nova.compute import manager
    from nova.objects import compute_node
    from nova.virt.libvirt import driver, host

    compute_node.ComputeNode(host_ip=conf.my_ip)
    if "max_workers=CONF.sync_power_state_pool_size" in inspect.getsource(manager.ComputeManager.__init__):
        importlib.import_module("futurist").ThreadPoolExecutor(max_workers=conf.sync_power_state_pool_size)
    cls, service, stand_in = driver.LibvirtDriver, mock.MagicMock(), mock.MagicMock()
    service.driver.init_host.side_effect = StopIteration  # far enough
    asks_host = {
        "_check_cpu_compatibility": conf.libvirt.cpu_mode == "custom" and conf.libvirt.cpu_models,
        "_check_vtpm_support": conf.libvirt.virt_type in ("kvm", "qemu"),
        "_check_multipath": conf.libvirt.volume_use_multipath,
    }
    for name in asks_host:
        if not asks_host[name] and hasattr(cls, name):
            setattr(stand_in, name, functools.partial(getattr(cls, name), stand_in))
    name = "_check_file_backed_memory_support"
    if getattr(conf.libvirt, "file_backed_memory", 0):
        (getattr(cls, name, None) or getattr(host.Host, name))(stand_in)
    with contextlib.suppress(TypeError, AttributeError):
        cls.init_host(stand_in, "host")
    with contextlib.suppress(TypeError, AttributeError, StopIteration):
        manager.ComputeManager.init_host(service, *[None] * (manager.ComputeManager.init_host.__code__.co_argcount - 1))
