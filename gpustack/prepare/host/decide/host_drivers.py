"""The host drivers of functions that are passed through, and those that are built into the kernel.

A built-in driver probes its devices before the initramfs runs, so a softdep or blacklist has no effect. The script that
binds by address unbinds companions from a built-in driver: RHEL and Fedora build in ``xhci_pci``, which binds the
USB-C controller of a card. The GPU itself is never unbound: its console and firmware state would be undefined.
"""

from collections.abc import Iterator, Mapping

from gpustack.base.findings import Code, Finding, finding
from gpustack.hosts.facts.boot_model import BootKernel
from gpustack.hosts.facts.model import Function, Host
from gpustack.linux.cmdline import canonical
from gpustack.linux.drivers import is_host_driver, is_passthrough_driver
from gpustack.pci import catalogue, classes
from gpustack.prepare.host.decide.addresses import listed
from gpustack.prepare.host.decide.targets import Targets

# Built in, it has no alias among the kernel's modules (drivers/usb/host/xhci-pci.c, PCI_CLASS_SERIAL_USB_XHCI).
_XHCI_CLASS, _XHCI = "0c0330", "xhci_pci"


def host_drivers(function: Function) -> tuple[str, ...]:
    """The host modules that may bind a function; names with ``_``."""
    names = [canonical(name) for name in function.modules]
    if classes.is_gpu_class(function.pci_class):
        names += [canonical(name) for name in catalogue.host_drivers(function.vendor)]
    return tuple(dict.fromkeys(name for name in names if not is_passthrough_driver(name)))


def held_early(host: Host, targets: Targets) -> frozenset[str]:
    """The addresses of companions that a built-in host driver binds before the initramfs runs.

    On a prepared host, the current driver no longer shows this; then the script on the host does.
    """
    main = {target.address for target in targets.all}
    before = {d.address for d in listed(host) if d.is_taken and d.stranger(host) is None}
    return frozenset(
        address
        for address, (function, driver) in targets.functions.items()
        if address not in main and (address in before or _built_in(host, function, driver))
    )


def too_early(host: Host, targets: Targets) -> Iterator[Finding]:
    """Findings about built-in host drivers: one of the GPU blocks it; one of a companion is unbound at boot."""
    main = {target.address for target in targets.all}
    for address, (function, driver) in targets.functions.items():
        place, by_kernel = f"{host.hostname} {address}", _built_in(host, function, driver)
        if address in main:
            for release, names in by_kernel.items():
                yield finding(
                    Code.HOST_DRIVER_BUILT_IN, place=place, modules=", ".join(names), release=release, driver=driver
                )
        elif by_kernel:
            modules = sorted({name for names in by_kernel.values() for name in names})
            releases = ", ".join(by_kernel)
            yield finding(
                Code.BUILT_IN_DRIVER_DISPLACED,
                place=place,
                modules=", ".join(modules),
                releases=releases,
                driver=driver,
            )


def _built_in(host: Host, function: Function, driver: str) -> Mapping[str, tuple[str, ...]]:
    """The built-in host drivers of a function by kernel release, for kernels whose ``driver`` is a module."""
    kernels = [kernel for kernel in host.boot.kernels if kernel.modules.get(canonical(driver)) == "module"]
    by_release = {kernel.release: tuple(_names(host, kernel, function)) for kernel in kernels}
    return {release: names for release, names in by_release.items() if names}


def _names(host: Host, kernel: BootKernel, function: Function) -> Iterator[str]:
    candidates = [*host_drivers(function), *([_XHCI] if function.pci_class == _XHCI_CLASS else [])]
    built_in = [module for module in dict.fromkeys(candidates) if kernel.modules.get(module) == "builtin"]
    yield from built_in
    is_module = kernel.modules.get(canonical(function.driver or "")) == "module"
    if not built_in and not is_module and kernel.release == host.kernel.release and _has_no_module(host, function):
        yield function.driver or ""


def _has_no_module(host: Host, function: Function) -> bool:
    """Whether a function is bound to a host driver but has no matching module: then the driver is built in.

    If no function has matching modules, the table of aliases could not be read, and this is unknown.
    """
    return is_host_driver(function.driver) and not function.modules and any(f.modules for f in host.pci)
