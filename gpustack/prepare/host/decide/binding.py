"""Bind functions to passthrough drivers at boot, before a host driver probes them.

The module options of vfio-pci (or pci-stub) list the ``vendor:product`` ids. Three measures make it bind first: the
initramfs loads it by name; a softdep loads it before each host driver that matches one of the functions
(``modprobe.d(5)``); the GPUs' host drivers are blacklisted if no other device needs them.

A driver binds an id on all devices that have it. So ids are used only if all functions with the id are passed through.
Other functions are bound by address, before the modules load (:mod:`gpustack.prepare.host.decide.addresses`).

The host drivers of functions that are passed through, and those that are built into the kernel.

A built-in driver probes its devices before the initramfs runs, so a softdep or blacklist has no effect. The script that
binds by address unbinds companions from a built-in driver: RHEL and Fedora build in ``xhci_pci``, which binds the
USB-C controller of a card. The GPU itself is never unbound: its console and firmware state would be undefined.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath

from gpustack.base.by_key import by_key
from gpustack.base.findings import Code, Finding, finding
from gpustack.hosts.facts.boot_model import BootKernel
from gpustack.hosts.facts.model import Function, Host
from gpustack.linux.cmdline import canonical
from gpustack.linux.drivers import BY_ID, VFIO, is_host_driver, is_passthrough_driver
from gpustack.linux.modprobe import Statement
from gpustack.pci import catalogue, classes
from gpustack.prepare.host.decide.addresses import Listed, listed
from gpustack.prepare.host.decide.targets import Targets
from gpustack.prepare.host.foreign_config import DRIVERCTL, Elsewhere
from gpustack.prepare.host.own_files import MODPROBE
from gpustack.prepare.host.tools import has_dracut
from gpustack.spec.model import Options

_IDS_LONGEST = 1023  # static char ids[1024] (drivers/vfio/pci/vfio_pci.c, drivers/pci/pci-stub.c)
_BACKEND = "vfio_iommu_type1"
# Modules with these prefixes work only together: if one is in use, none of its stack is blacklisted.
_STACKS = ("nvidia", "nova")


@dataclass(frozen=True, kw_only=True)
class Binding:
    """The settings for modprobe, the initramfs and the kernel's command line.

    :ivar by_address: functions that are bound by address: they share their id with a device of the host, have a
        variant driver, a built-in host driver binds them before the initramfs runs, or a softdep of others hides
        that of their host driver.
    :ivar options: ids by driver, for modprobe.
    :ivar softdeps: passthrough drivers to load before a host driver, by host driver.
    :ivar blacklist: host drivers.
    :ivar arguments: kernel arguments with the ids of drivers that are built into a kernel.
    :ivar early_modules: modules that the initramfs loads.
    :ivar late_modules: modules that systemd loads (modules-load.d); every bootable kernel has them.
    """

    by_address: tuple[Listed, ...]
    options: Mapping[str, tuple[str, ...]]
    softdeps: Mapping[str, tuple[str, ...]]
    blacklist: tuple[str, ...]
    arguments: tuple[str, ...]
    early_modules: tuple[str, ...]
    late_modules: tuple[str, ...]
    findings: tuple[Finding, ...]


def bind(host: Host, options: Options, targets: Targets, other: Elsewhere) -> Binding:
    """Decide how the targets are bound to their drivers."""
    assigned = {driver for _, driver in targets.functions.values()}
    drivers = tuple(driver for driver in BY_ID if driver in assigned)
    variants = sorted(assigned - set(BY_ID))
    unused = _gpu_drivers(targets).keys() - spared(host, targets).keys()
    staying, early = _staying(host, targets), held_early(host, targets)
    loadable = {driver for driver in drivers if "module" in _kinds(host, canonical(driver))}
    softdeps = dict(_softdeps(targets, loadable))
    blacklist = tuple(sorted(unused)) if options.blacklist_host_drivers else ()
    hidden = dict(_hidden(host, targets, {m: of for m, of in softdeps.items() if m not in blacklist}, other))
    by_address = tuple(
        Listed.of(function, driver, is_taken=function.address in early)
        for function, driver in sorted(targets.functions.values(), key=lambda pair: pair[0].bdf)
        if function.ids in staying or driver in variants or function.address in {*early, *hidden}
    )
    ids = _ids(targets, drivers, {function.address for function in by_address})
    built_in = {driver for driver in ids if "builtin" in _kinds(host, canonical(driver))}
    modules = [canonical(driver) for driver in (*drivers, *variants)]
    modules += [_BACKEND] if VFIO in drivers or variants else []
    return Binding(
        by_address=by_address,
        options={driver: listed for driver, listed in ids.items() if driver in loadable},
        softdeps=softdeps,
        blacklist=blacklist,
        arguments=tuple(f"{driver}.ids={','.join(ids[driver])}" for driver in ids if driver in built_in),
        early_modules=tuple(name for name in modules if _is_early(host, name)),
        late_modules=tuple(name for name in modules if _in_every_kernel(host, name)),
        findings=(
            *_identical(host, targets, staying),
            *_two_drivers(host, targets),
            *_kernels(host, drivers),
            *too_early(host, targets),
            *_too_long(host, ids),
            *_kept(host, targets, options),
            *_conflicts(host, ids, targets, other),
            *(
                finding(Code.SOFTDEP_HIDDEN, place=host.at(address), said=str(line), where=line.place, module=module)
                for address, (module, line) in hidden.items()
            ),
        ),
    )


def _ids(targets: Targets, drivers: Iterable[str], by_address: Collection[str]) -> dict[str, tuple[str, ...]]:
    """The ids that each driver binds, without functions that are bound by address."""
    pairs = [pair for address, pair in targets.functions.items() if address not in by_address]
    found = {driver: sorted({function.ids for function, of in pairs if of == driver}) for driver in drivers}
    return {driver: tuple(listed) for driver, listed in found.items() if listed}


def _kinds(host: Host, module: str) -> frozenset[str | None]:
    """The kinds of a module in the bootable kernels: ``module``, ``builtin``."""
    return frozenset(kind for kernel in host.boot.kernels if (kind := kernel.modules.get(module)) is not None)


def _is_early(host: Host, module: str) -> bool:
    """Whether the initramfs loads a module. dracut fails if a kernel does not have the module."""
    return _in_every_kernel(host, module) if has_dracut(host) else "module" in _kinds(host, module)


def _in_every_kernel(host: Host, module: str) -> bool:
    return "module" in _kinds(host, module) and all(module in k.modules for k in host.boot.kernels)


def _softdeps(targets: Targets, drivers: Iterable[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    pairs = [(function, driver) for function, driver in targets.functions.values() if driver in drivers]
    wanted = by_key((module, driver) for function, driver in pairs for module in host_drivers(function))
    for module in sorted(wanted):
        yield module, tuple(driver for driver in BY_ID if driver in wanted[module])


def _hidden(
    host: Host, targets: Targets, softdeps: Mapping[str, Iterable[str]], other: Elsewhere
) -> Iterator[tuple[str, tuple[str, Statement]]]:
    """The functions of host drivers whose softdep one of others hides: modprobe uses only the first of a module.

    See ``kmod_module_get_softdeps`` of kmod. dracut's images load the passthrough drivers before udev without softdeps.
    """
    for module, drivers in () if has_dracut(host) else softdeps.items():
        first = next(iter(other.modprobe.about("softdep", module)), None)
        if first is None or PurePosixPath(first.file).name > PurePosixPath(MODPROBE).name:
            continue
        if first.words[:1] != ("pre:",) or not {*map(canonical, drivers)} <= {*map(canonical, first.words)}:
            users = (address for address, (f, _) in targets.functions.items() if module in host_drivers(f))
            yield from ((address, (module, first)) for address in users)


def kept_functions(host: Host, targets: Targets) -> Iterator[Function]:
    """The functions that stay with the host. Virtual functions belong to their physical function."""
    going = targets.functions
    for function in sorted(host.pci, key=lambda f: f.bdf):
        if function.address not in going and function.physical_function not in going:
            yield function


def _stack(module: str) -> str:
    return next((stack for stack in _STACKS if module.startswith(f"{stack}_")), module)


def _gpu_drivers(targets: Targets) -> dict[str, str]:
    """The host drivers of the GPUs that are passed through, each with the GPU's vendor id."""
    return {module: target.gpu.main.vendor for target in targets.gpus for module in host_drivers(target.gpu.main)}


def spared(host: Host, targets: Targets) -> dict[str, Function]:
    """The GPUs' host drivers that must not be blacklisted, each with a function of the host that may need it."""
    # A GPU that stays may need any driver of its vendor, so vendors are compared first.
    retained = tuple(f for f in kept_functions(host, targets) if f.address not in targets.left)
    gpus = {f.vendor: f for f in retained if classes.is_gpu_class(f.pci_class) and f.physical_function is None}
    used: dict[str, Function] = {}
    for function in retained:
        for name in (function.driver, *function.matching):
            if name is not None:
                used.setdefault(_stack(canonical(name)), function)
    needed = {module: gpus.get(vendor) or used.get(_stack(module)) for module, vendor in _gpu_drivers(targets).items()}
    return {module: function for module, function in needed.items() if function is not None}


def _kept(host: Host, targets: Targets, options: Options) -> Iterator[Finding]:
    """Findings about GPU host drivers that are not blacklisted because a function of the host needs them."""
    needed = spared(host, targets) if options.blacklist_host_drivers else {}
    by_function = by_key((function.address, module) for module, function in needed.items())
    for address, modules in by_function.items():
        function = host.functions[address]
        what = catalogue.describe(function.vendor, function.product, function.pci_class)
        names = ", ".join(sorted(modules))
        yield finding(Code.HOST_DRIVER_NOT_BLACKLISTED, place=host.at(address), modules=names, what=what)


def _staying(host: Host, targets: Targets) -> dict[str, tuple[Function, ...]]:
    """The functions that stay with the host but share an id with one that is passed through, by id."""
    going = {function.ids for function, _ in targets.functions.values()}
    by_id = by_key((function.ids, function) for function in kept_functions(host, targets) if function.ids in going)
    return {ids: tuple(functions) for ids, functions in by_id.items()}


def identical(host: Host, targets: Targets) -> tuple[Function, ...]:
    """The functions that share an id with a target but stay with the host; gpustack must not bind them."""
    return tuple(function for functions in _staying(host, targets).values() for function in functions)


def _identical(host: Host, targets: Targets, staying: Mapping[str, Iterable[Function]]) -> Iterator[Finding]:
    for target in targets.all:
        for function in {f.ids: f for f in target.gpu.functions if f.ids in staying}.values():
            place, ids, what = host.at(target.address), function.ids, classes.word(function.pci_class)
            others = ", ".join(f.address for f in staying[ids])
            yield finding(Code.BOUND_BY_ADDRESS, place=place, ids=ids, what=what, staying=others)


def _two_drivers(host: Host, targets: Targets) -> Iterator[Finding]:
    # A variant driver is bound by address.
    by_id = by_key((f.ids, (f.address, driver)) for f, driver in targets.functions.values() if driver in BY_ID)
    for ids, going in by_id.items():
        assigned = {driver for _, driver in going}
        if len(assigned) > 1:
            place = host.at(", ".join(sorted(address for address, _ in going)))
            yield finding(Code.ID_DRIVERS_DIFFER, place=place, ids=ids, drivers=" and ".join(sorted(assigned)))


def _kernels(host: Host, drivers: Iterable[str]) -> Iterator[Finding]:
    for kernel in host.boot.kernels:
        for driver in drivers:
            if canonical(driver) not in kernel.modules:
                place, release, image = host.hostname, kernel.release, kernel.image or "its image was not found"
                yield finding(Code.KERNEL_WITHOUT_DRIVER, place=place, release=release, image=image, driver=driver)


def _too_long(host: Host, ids: Mapping[str, tuple[str, ...]]) -> Iterator[Finding]:
    for driver, pairs in ids.items():
        length = len(",".join(pairs))
        if length > _IDS_LONGEST:
            yield finding(Code.IDS_TOO_LONG, place=host.hostname, driver=driver, length=length, longest=_IDS_LONGEST)


def _conflicts(host: Host, ids: Mapping[str, tuple[str, ...]], targets: Targets, other: Elsewhere) -> Iterator[Finding]:
    own_ids = {canonical(driver): frozenset(listed) for driver, listed in ids.items()}
    functions = tuple(function for function, _ in targets.functions.values())
    for foreign in other.ids():
        of_driver = own_ids.get(foreign.driver, frozenset())
        differs = foreign.ids != of_driver and (of_driver or foreign.concerns(functions))
        if differs or not foreign.takes_all(functions):
            text = f"{foreign.driver} ids={foreign.text}"
            wanted = "; ".join(f"{driver} ids={','.join(of)}" for driver, of in ids.items()) or "binding by address"
            yield finding(Code.IDS_CONFLICT, place=host.at(foreign.place), said=text, wanted=wanted)
    for place, text, effect in switched_off(host, targets, other):
        yield finding(Code.NEEDED_MODULE_DISABLED, place=host.at(place), said=text, effect=effect)
    yield from _by_address(host, targets, other)


def _modules_of(targets: Targets) -> tuple[str, ...]:
    """The modules of the targets' drivers, with their dependencies (``drivers/vfio/Makefile``)."""
    drivers = {canonical(driver) for _, driver in targets.functions.values()}
    return tuple(sorted(drivers | set(_VFIO if drivers - {"pci_stub"} else ())))


_OLD = "vfio_virqfd"  # removed in Linux 6.2
_VFIO = ("vfio", "vfio_iommu_type1", "vfio_pci_core", "vfio_virqfd", "iommufd", "irqbypass")


def switched_off(host: Host, targets: Targets, other: Elsewhere) -> Iterator[tuple[str, str, str]]:
    """Settings that prevent a module of the targets' drivers from loading: place, text and effect."""
    for module in _modules_of(targets):
        kinds = {kernel.modules.get(module) for kernel in host.boot.kernels}
        if module != _OLD or kinds != {None}:
            yield from _off_switches(module, other)


def _off_switches(module: str, other: Elsewhere) -> Iterator[tuple[str, str, str]]:
    """Settings that prevent one module from loading or working.

    modprobe loads a blacklisted module as a dependency of another one. The kernel's parameter ``module_blacklist`` has
    no such exception (``kernel/module/main.c``, ``blacklisted``).
    """
    kept_out = f"it keeps {module} from being loaded"
    is_needed_only = module in _VFIO and module != _BACKEND
    for statement in () if is_needed_only else other.modprobe.about("blacklist", module):
        yield statement.place, str(statement), kept_out
    for statement in other.modprobe.about("install", module):
        effect = kept_out if statement.does_nothing else f"modprobe runs that instead of loading {module}"
        yield statement.place, str(statement), effect
    aliases = (s for s in other.modprobe.statements if s.command == "alias" and canonical(s.words[0]) == module)
    yield from ((s.place, f"alias {s.words[0]} {s.module}", kept_out) for s in aliases)  # "off", or another module
    for place, text, variable, modules, _ in other.of_dracut():
        # dracut does not omit drivers of force_drivers, but their dependencies.
        if variable == "omit_drivers" and module in modules and is_needed_only:
            yield place, text, kept_out
    last = None if other.from_entries else next(iter(other.all("module_blacklist")[-1:]), None)
    for sourced in other.arguments or ():
        name, listed = canonical(sourced.argument.name), (sourced.argument.value or "").split(",")
        if name == "module_blacklist":  # the kernel uses the last one, and does not treat - and _ as equal
            is_off = module in listed and last in (None, sourced)
        elif name in ("modprobe.blacklist", "rd.driver.blacklist"):
            is_off = not is_needed_only and module in map(canonical, listed)
        else:
            is_off = name == "initcall_blacklist" and f"{module}_init" in listed
        if is_off:
            yield sourced.place, sourced.argument.text, kept_out


def _by_address(host: Host, targets: Targets, other: Elsewhere) -> Iterator[Finding]:
    """Findings about driverctl overrides of the targets."""
    functions = targets.functions
    for path, text in sorted(other.texts.items()):
        if path.startswith(DRIVERCTL):
            address = path.removeprefix(DRIVERCTL).removeprefix("pci-")
            override = text.strip()
            if address in functions and override != functions[address][1]:
                place, driver, text = host.at(path), functions[address][1], override or "none"
                yield finding(Code.DRIVERCTL_CONFLICTS, place=place, address=address, override=text, driver=driver)


# Built in, it has no alias among the kernel's modules (drivers/usb/host/xhci-pci.c, PCI_CLASS_SERIAL_USB_XHCI).
_XHCI_CLASS, _XHCI = "0c0330", "xhci_pci"


def host_drivers(function: Function) -> tuple[str, ...]:
    """The host modules that may bind a function; names with ``_``."""
    names = [canonical(name) for name in function.matching]
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
        place, by_kernel = host.at(address), _built_in(host, function, driver)
        if address in main:
            for release, modules in ((release, ", ".join(names)) for release, names in by_kernel.items()):
                yield finding(Code.HOST_DRIVER_BUILT_IN, place=place, modules=modules, release=release, driver=driver)
        elif by_kernel:
            modules = ", ".join(sorted({name for names in by_kernel.values() for name in names}))
            found = ", ".join(by_kernel)
            yield finding(Code.BUILT_IN_DRIVER_DISPLACED, place=place, modules=modules, releases=found, driver=driver)


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
    """Whether a function is bound to a host driver but has no module: then the running kernel has it built in.

    If no function has matching modules, the table of aliases could not be read, and this is unknown.
    """
    is_held = is_host_driver(function.driver) and function.driver_module is None
    return is_held and not function.modules and any(f.modules for f in host.pci)
