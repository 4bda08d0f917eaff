"""Drivers to install in guests: the recommended branch, packages of distributions, the pins of NVIDIA GPU Operator."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpustack.base.files import data_table
from gpustack.base.findings import Code, Finding, finding
from gpustack.offer.guest.requirements import GuestRequirement, NvidiaDriver, version

_OPEN_BY_DEFAULT = 560
"""The branch since which NVIDIA installs the open kernel modules by default."""
OPERATOR = "NVIDIA GPU Operator"


@dataclass(frozen=True, kw_only=True)
class Installation:
    """A driver in a distribution.

    :ivar branch: the NVIDIA branch; None for drivers of Linux only.
    :ivar modules: the NVIDIA kernel modules: ``open`` or ``proprietary``.
    :ivar commands: the commands that install the driver.
    :ivar missing: why no package of the distribution is known that serves the models; then there are no packages.
    :ivar unknown: drivers of Linux whose packages are unknown.
    :ivar fault: why the packages can't be installed; None if no reason is known.
    """

    system: str
    branch: int | None = None
    modules: str | None = None
    commands: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()
    missing: str | None = None
    unknown: tuple[str, ...] = ()
    fault: str | None = None


@dataclass(frozen=True, kw_only=True)
class OperatorPin:
    """Values of NVIDIA GPU Operator.

    :ivar driver: ``driver.version``.
    :ivar module_type: ``driver.kernelModuleType``.
    :ivar breaks: the first release whose default driver does not serve the models; None if there is none.
    :ivar default: the default driver of that release.
    """

    driver: str
    module_type: str
    breaks: str | None = None
    default: str | None = None


def recommended(driver: NvidiaDriver) -> tuple[int, str] | None:
    """The recommended branch, and its kernel modules; None if no known branch serves the models."""
    served = [entry for entry in data_table("guest_drivers.toml")["branch"] if _modules(driver, entry["number"])]
    best = max(served, key=lambda entry: (entry["support"] == "long-term", entry["number"]), default=None)
    return (best["number"], _modules(driver, best["number"])[0]) if best else None


def installations(needs: GuestRequirement) -> tuple[Installation, ...]:
    """The driver for the models in each distribution; empty for Windows, and if no driver serves all of them."""
    if needs.windows or needs.conflict or not (needs.nvidia or needs.linux):
        return ()
    return tuple(_installation(system, needs) for system in data_table("guest_drivers.toml")["system"])


def operator_pin(driver: NvidiaDriver) -> OperatorPin | None:
    """The values of NVIDIA GPU Operator; None if it installs no driver that serves the models."""
    releases: Sequence[Mapping[str, str]] = data_table("guest_drivers.toml")["operator"]
    served = [
        entry for entry in releases if any(driver.serves_release(entry["driver"], each) for each in driver.modules)
    ]
    best = recommended(driver)
    chosen = [entry for entry in served if best and version(entry["driver"])[0] == best[0]] or served
    if not chosen:
        return None
    breaking = next((entry for entry in releases if driver.last and version(entry["driver"])[0] > driver.last), None)
    return OperatorPin(
        driver=chosen[-1]["driver"],
        module_type="auto" if len(driver.modules) > 1 else next(iter(driver.modules)),
        breaks=breaking["release"] if breaking else None,
        default=breaking["driver"] if breaking else None,
    )


def findings_of(needs: GuestRequirement) -> Iterator[Finding]:
    """Distributions without a driver or with a faulty one, and defaults of NVIDIA GPU Operator that are too new."""
    models = ", ".join(need.model for need in needs.models)
    for each in installations(needs):
        if each.missing:
            place = f"{needs.flavor}, {each.system}"
            yield finding(Code.NO_DRIVER_PACKAGE, place=place, models=models, reason=each.missing)
        if each.fault:
            yield finding(Code.DRIVER_PACKAGE_FAULTY, place=f"{needs.flavor}, {each.system}", fault=each.fault)
    if needs.nvidia is None or needs.windows:
        return
    if (pin := operator_pin(needs.nvidia)) is None:
        reason = "no release installs such a driver"
        yield finding(Code.NO_DRIVER_PACKAGE, place=f"{needs.flavor}, {OPERATOR}", models=models, reason=reason)
    elif pin.breaks:
        yield finding(
            Code.OPERATOR_DRIVER_TOO_NEW,
            place=needs.flavor,
            release=pin.breaks,
            default=pin.default,
            last=needs.nvidia.last,
            driver=pin.driver,
        )


def _modules(driver: NvidiaDriver, branch: int) -> tuple[str, ...]:
    """The kernel modules with which a branch serves the models, the default of NVIDIA first."""
    order = ("open", "proprietary") if branch >= _OPEN_BY_DEFAULT else ("proprietary", "open")
    return tuple(modules for modules in order if driver.serves(branch, modules))


def _installation(system: Mapping[str, Any], needs: GuestRequirement) -> Installation:
    packages: list[str] = []
    missing: list[str] = []
    unknown: list[str] = []
    for module, kernel in needs.linux.items():
        if kernel and "kernel" in system and version(system["kernel"]) < version(kernel):
            missing.append(f"{module} supports the cards since Linux {kernel}; it has Linux {system['kernel']}")
        elif module in system.get("linux", {}):
            packages += system["linux"][module]
        else:
            unknown.append(module)
    branch, modules, entry = _nvidia(system, needs.nvidia) if needs.nvidia else (None, None, {})
    if needs.nvidia and branch is None:
        offered = sorted({number for driver in system["driver"] for number in driver["branches"]})
        missing.append(f"only R{' and R'.join(map(str, offered))} {'is' if len(offered) == 1 else 'are'} known")
    packages = list(dict.fromkeys((*packages, *(name.format(branch=branch) for name in entry.get("packages", ())))))
    before = (command.format(branch=branch) for command in entry.get("commands", ()))
    return Installation(
        system=system["name"],
        branch=branch,
        modules=modules,
        commands=() if missing else (*before, " ".join((system["install"], *packages))),
        packages=() if missing else tuple(packages),
        missing="; ".join(missing) or None,
        unknown=tuple(unknown),
        fault=entry.get("fault"),
    )


def _nvidia(system: Mapping[str, Any], driver: NvidiaDriver) -> tuple[int | None, str | None, Mapping[str, Any]]:
    """The branch, kernel modules and entry of the best driver: without fault, the newest, NVIDIA's default."""
    offers = [
        ("fault" not in entry, branch, -_modules(driver, branch).index(modules), modules, entry)
        for entry in system["driver"]
        for branch in entry["branches"]
        for modules in entry["modules"]
        if modules in _modules(driver, branch)
        and ("release" not in entry or driver.serves_release(entry["release"], modules))
    ]
    if not offers:
        return None, None, {}
    _, branch, _, modules, entry = max(offers, key=lambda offer: offer[:3])
    return branch, modules, entry
