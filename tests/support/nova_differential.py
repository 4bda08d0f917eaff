"""Generated configurations, judged by lint and by Nova's own code: ``make nova-differential COUNT=5000 SEED=…``.

Each is a valid configuration with a few changes: values at and beyond limits, other types, quotes, sections, keys of
aliases and device_specs, CPU sets, mediated devices, filters, a second file, services. A disagreement is reduced to
the shortest configuration and printed with its seed.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from gpustack.base.findings import Basis, Severity, definitions
from gpustack.configure.lint import lint
from gpustack.configure.lint.subject import LintSubject
from gpustack.hosts.facts.model import Host
from gpustack.nova_options import releases
from gpustack.nova_options.options import Option, Release, ValueType
from support.host_samples import function as _function
from support.host_samples import host
from support.nova_judge import Judge

EXCEPTIONS = Path(__file__).parents[1] / "nova" / "parsers" / "exceptions.yaml"
SERVICES = (("api",), ("compute",), ("scheduler",), ("api", "compute", "scheduler", "conductor"))
GROUPS = (
    "DEFAULT",
    "pci",
    "filter_scheduler",
    "scheduler",
    "compute",
    "libvirt",
    "devices",
    "quota",
    "api",
    "workarounds",
)
PF = _function("0000:88:00.0", vendor="10de", product="20b5", sriov_totalvfs=16)
VF = {**_function("0000:88:00.4", vendor="10de", product="20b6"), "physical_function": "0000:88:00.0"}
CARD = _function("0000:41:00.0", vendor="10de", product="20b2")
GPU_HOST = host(
    {**PF, "virtual_functions": ["0000:88:00.4", "0000:88:00.5"]},
    *(VF, {**VF, "address": "0000:88:00.5"}),
    *(CARD, {**CARD, "address": "0000:42:00.0"}),  # one for an entry with an address, one for an entry without
)
Line = tuple[str, str, str]


@dataclass
class Configuration:
    """The lines (section, name, value) of the files of one service."""

    files: list[list[Line]]
    services: tuple[str, ...]
    facts: bool

    def texts(self) -> list[str]:
        """The files' texts."""
        return ["".join(f"[{group}]\n{name} = {value}\n" for group, name, value in lines) for lines in self.files]

    def without(self, file: int, line: int) -> Configuration:
        """The configuration without one line."""
        files = [list(lines) for lines in self.files]
        del files[file][line]
        return Configuration(files=files, services=self.services, facts=self.facts)


@dataclass
class Disagreement:
    """A configuration on which lint and Nova disagree."""

    release: str
    seed: int
    configuration: Configuration
    nova: list[str]
    lint: list[str]
    text: str = field(default="")

    def __str__(self) -> str:
        files = "\n--- next file\n".join(self.configuration.texts())
        return (
            f"seed {self.seed}, Nova {self.release}, services {','.join(self.configuration.services)},"
            f" facts {self.configuration.facts}\n{files}\nNova: {self.nova or 'accepts'}\n"
            f"lint: {self.lint or 'no error'}"
        )


# --- making ----------------------------------------------------------------------------------------------------------


def made(seed: int, release: Release) -> Configuration:
    """The configuration of a seed."""
    rng = random.Random(seed)  # noqa: S311 - no secret
    lines = list(base(rng, release))
    mutators = (
        option_value,
        option_value,
        alias,
        device,
        cpus,
        mediated,
        filters,
        section,
        misspelt,
        quoted,
        reference,
    )
    for _ in range(rng.choice([1, 1, 2, 3])):
        lines = rng.choice(mutators)(rng, lines, release)
    if rng.random() < 0.2 and lines:
        split = rng.randrange(len(lines))
        files = [lines[:split], lines[split:]]
    else:
        files = [lines]
    return Configuration(files=files, services=rng.choice(SERVICES), facts=rng.random() < 0.5)


def spec_name(release: Release) -> str:
    return releases.device_spec_option(release).name


def base(rng: random.Random, release: Release) -> Iterator[Line]:
    """A valid configuration."""
    placement = release.major >= 27 and rng.random() < 0.4
    yield "pci", "alias", json.dumps(dict(ALIAS))
    yield "pci", spec_name(release), json.dumps({"vendor_id": "10de", "product_id": "20b2", "address": "0000:41:00.0"})
    if placement:
        yield "pci", "report_in_placement", "true"
        yield "filter_scheduler", "pci_in_placement", "true"
    yield "filter_scheduler", "enabled_filters", ",".join([*releases.default_filters(release), "PciPassthroughFilter"])


ALIAS = {"name": "a100", "vendor_id": "10de", "product_id": "20b2", "device_type": "type-PCI"}
ALIAS_VALUES: dict[str, list[Any]] = {
    "name": ["b", "", " a100 ", "x" * 257, 1],
    "vendor_id": ["10DE", "10d", "0x10de", 4318, None],
    "product_id": ["20b5", "20b2 ", "*"],
    "device_type": ["type-PF", "type-VF", "type-pci", None],
    "numa_policy": ["required", "socket", "strict", ""],
    "resource_class": ["GPU", "CUSTOM_X", 3, "VGPU"],
    "traits": ["A,B", "A, b", ["A"], "HW_GPU_API_VULKAN", "CUSTOM-X"],
    "live_migratable": ["yes", "No", "perhaps", True],
    "capability_type": ["pci", "usb"],
    "address": ["0000:41:00.0"],
}
DEVICE_VALUES: dict[str, list[Any]] = {
    "vendor_id": ["10de", "10DE", "*", " 10de ", "zzzz", "12345", 4318],
    "product_id": ["20b2", "20b5", "20b6", "*", "q", 1],
    "address": [
        "0000:88:00.0",
        "0000:88:00.4",
        "*:88:00.*",
        "0000:88",
        {"bus": "88"},
        {"bus": "8A"},
        {"bus": "("},
        5,
        "0000:41:20.0",
    ],
    "devname": ["eth0", ""],
    "managed": ["yes", "no", "perhaps", True],
    "live_migratable": ["yes", "FALSE", "maybe"],
    "one_time_use": ["yes", "false", "sometimes"],
    "remote_managed": ["true", "maybe"],
    "physical_network": ["physnet0", None],
    "resource_class": ["GPU", "CUSTOM_X", "custom_x-y", 7],
    "traits": ["A,B", "A, b", "CUSTOM_ä", 3],
    "trusted": ["true"],
    "colour": ["red"],
}


def option_value(rng: random.Random, lines: list[Line], release: Release) -> list[Line]:
    """Set an option to a value at or beyond its limits."""
    table = releases.table(release)
    groups = GROUPS if rng.random() < 0.6 else tuple(table.groups)
    options = [o for o in table.groups[rng.choice(groups)] if "*" not in o.group] if groups else []
    if not options:
        return lines
    option = rng.choice(options)
    if option.path in ("pci/alias", f"pci/{spec_name(release)}", "DEFAULT/host"):
        return lines
    names = [option.path, option.path, *option.old_names]
    group, _, name = rng.choice([path for path in names if "*" not in path]).partition("/")
    return [*lines, (group, name, rng.choice(list(values(rng, option))))]


def values(rng: random.Random, option: Option) -> Iterator[str]:
    """Values of an option's type, at its limits, beyond them, and of other types."""
    yield from ("x", "", "-1", "0", "1.5", "true", "maybe", "99999999999", "a,b", "k:v", "http://x:99999/")
    yield from of_type(option.type)


def of_type(type_: ValueType) -> Iterator[str]:
    for choice in type_.choices or ():
        yield from (str(choice), str(choice).upper(), f'"{choice}"')
    for limit in (type_.min, type_.max):
        if limit is not None:
            yield from (str(limit), str(limit - 1), str(limit + 1))
    if type_.name == "Boolean":
        yield from ("True", "off", "yes ", "t", "2")
    if type_.item:
        yield from of_type(type_.item)


def changed(
    rng: random.Random, lines: list[Line], name: str, values_: dict[str, list[Any]], start: dict[str, Any]
) -> list[Line]:
    entry = dict(start)
    for _ in range(rng.choice([1, 1, 2])):
        key = rng.choice(list(values_))
        if rng.random() < 0.2:
            entry.pop(key, None)
        else:
            entry[key] = rng.choice(values_[key])
    text = json.dumps(entry)
    kind = rng.random()
    if kind < 0.08:
        text = rng.choice([text.replace('"', "'"), text[:-1] + ",}", f"[{text}]", f"'{text}'", text + text, "[]", ""])
    kept = lines if rng.random() < 0.3 else [line for line in lines if line[1] != name]
    return [*kept, ("pci", name, text)]


def alias(rng: random.Random, lines: list[Line], release: Release) -> list[Line]:
    """Change an alias, or add one."""
    return changed(rng, lines, "alias", ALIAS_VALUES, ALIAS)


def device(rng: random.Random, lines: list[Line], release: Release) -> list[Line]:
    """Change a device_spec, or add one."""
    start = {"vendor_id": "10de", "product_id": rng.choice(["20b2", "20b5", "20b6"])}
    lines = changed(rng, lines, spec_name(release), DEVICE_VALUES, start)
    if release.major >= 26 and rng.random() < 0.5:
        lines = [*lines, ("pci", "report_in_placement", "true")]
    return lines


def cpus(rng: random.Random, lines: list[Line], release: Release) -> list[Line]:
    """Set processors and huge pages of nova-compute."""
    choice = rng.choice(["0-3", "4-7", "2-5", "0-3,^1", "5-2", "a", "^1", "0-99", "", "1,,2"])
    option = rng.choice(
        ["cpu_shared_set", "cpu_dedicated_set", "vcpu_pin_set", "reserved_host_cpus", "reserved_huge_pages"]
    )
    group = "compute" if option.startswith("cpu") else "DEFAULT"
    if option == "reserved_host_cpus":
        choice = rng.choice(["0", "1", "-1"])
    if option == "reserved_huge_pages":
        choice = rng.choice(
            ["node:0,size:2048,count:64", "node:0,size:1GB,count:1", "node:0", "0:2048:64", "node:a,size:2048,count:1"]
        )
    return [*lines, (group, option, choice)]


def mediated(rng: random.Random, lines: list[Line], release: Release) -> list[Line]:
    """Set types of mediated devices."""
    option = (
        "enabled_mdev_types" if releases.table(release).find("devices", "enabled_mdev_types") else "enabled_vgpu_types"
    )
    types = rng.choice([["nvidia-35"], ["nvidia-35", "nvidia-36"], ["nvidia-35", "nvidia-35"]])
    lines = [*lines, ("devices", option, ",".join(types))]
    for type_ in (*types, *(["nvidia-40"] if rng.random() < 0.2 else [])):
        prefix = rng.choice(["mdev_", "mdev_", "mdev_", "vgpu_", ""])
        if rng.random() < 0.7:
            address = rng.choice(["0000:84:00.0", "0000:85:00.0", "84:00.0", "0000:84:00.0,0000:85:00.0", "zz", ""])
            lines.append((f"{prefix}{type_}", "device_addresses", address))
        if rng.random() < 0.3:
            lines.append((f"{prefix}{type_}", "mdev_class", rng.choice(["VGPU", "CUSTOM_A", "custom_a", "PGPU"])))
        if rng.random() < 0.2:
            lines.append((f"{prefix}{type_}", "max_instances", rng.choice(["4", "0", "x"])))
    return lines


def filters(rng: random.Random, lines: list[Line], release: Release) -> list[Line]:
    """Set filters and weighers of the scheduler."""
    names = rng.choice(
        [
            "ComputeFilter,PciPassthroughFilter",
            "ComputeFilter, PciPassthroughFilter,",
            "ComputeFilter,,PciPassthroughFilter",
            "ComputeFilter,PciPassThroughFilter",
            "RetryFilter,PciPassthroughFilter",
            '"ComputeFilter","PciPassthroughFilter"',
            "ComputeFilter,MyFilter,PciPassthroughFilter",
        ]
    )
    kept = [line for line in lines if line[1] != "enabled_filters"]
    lines = [*kept, ("filter_scheduler", "enabled_filters", names)]
    if rng.random() < 0.3:
        value = rng.choice(
            [
                "nova.scheduler.filters.all_filters",
                "nova.scheduler.filters.nothing",
                "x.y.Z",
                "nova.scheduler.filters.compute_filter.ComputeFilter",
            ]
        )
        lines.append(("filter_scheduler", "available_filters", value))
    if rng.random() < 0.3:
        value = rng.choice(
            [
                "nova.scheduler.weights.all_weighers",
                "nova.scheduler.weights.pci.PCIWeigher",
                "nova.scheduler.weights.x",
                "x",
            ]
        )
        lines.append(("filter_scheduler", "weight_classes", value))
    return lines


def section(rng: random.Random, lines: list[Line], release: Release) -> list[Line]:
    """Move a line to another section."""
    if not lines:
        return lines
    index = rng.randrange(len(lines))
    _, name, value = lines[index]
    other = rng.choice(["DEFAULT", "pci", "PCI", " pci", "filter_scheduler", "scheduler", "compute", "default"])
    return [*lines[:index], (other, name, value), *lines[index + 1 :]]


def misspelt(rng: random.Random, lines: list[Line], release: Release) -> list[Line]:
    """Misspell the name of an option."""
    if not lines:
        return lines
    index = rng.randrange(len(lines))
    group, name, value = lines[index]
    other = rng.choice([name[:-1], name.replace("_", "-"), name.upper(), f"{name}s", f"{group}.{name}"])
    return [*lines[:index], (group, other, value), *lines[index + 1 :]]


def quoted(rng: random.Random, lines: list[Line], release: Release) -> list[Line]:
    """Put a value into quotes."""
    if not lines:
        return lines
    index = rng.randrange(len(lines))
    group, name, value = lines[index]
    other = rng.choice([f"'{value}'", f'"{value}"', f"{value} # comment", f'"{value}', f"'\"{value}\"'"])
    return [*lines[:index], (group, name, other), *lines[index + 1 :]]


def reference(rng: random.Random, lines: list[Line], release: Release) -> list[Line]:
    """Refer to another option."""
    value = rng.choice(
        [
            "$my_ip",
            "$nothing",
            "${state_path}/x",
            "$pci",
            "pa$$word",
            r"pa\$word",
            "pa$word",
            "$pci.alias",
            "$compute.nothing",
            "5$",
        ]
    )
    name = rng.choice(
        [
            ("DEFAULT", "instances_path"),
            ("placement", "password"),
            ("filter_scheduler", "pci_weight_multiplier"),
            ("DEFAULT", "my_ip"),
        ]
    )
    if value == "$my_ip" and name[1] == "my_ip":
        return lines  # oslo.config recurses until Python stops it
    return [*lines, (*name, value)]


# --- comparing ---------------------------------------------------------------------------------------------------


def compared(
    judge: Judge, configuration: Configuration, release: Release, directory: Path
) -> tuple[list[str], list[str]] | None:
    """The refusals of Nova and the findings of lint, if they disagree."""
    paths = []
    for index, text in enumerate(configuration.texts()):
        path = directory / ("nova.conf" if index == 0 else f"more-{index}.conf")
        path.write_text(text, encoding="utf-8")
        paths.append(path)
    facts: tuple[Host, ...] = (GPU_HOST,) if configuration.facts else ()
    refused = _refused(judge, configuration, paths, GPU_HOST if configuration.facts else None)
    argument = f"{','.join(configuration.services)}={':'.join(map(str, paths))}"
    findings = lint([argument], LintSubject(release=release, hosts=facts)).findings
    errors = [f"{f.code} {f.message[:120]}" for f in findings if f.severity is Severity.ERROR]
    claims = [f"{f.code} {f.message[:120]}" for f in findings if definitions()[f.code].basis is Basis.REFUSED]
    if refused and not errors:
        return refused, []
    # Without facts, lint judges for a host with devices.
    if claims and not refused and not configuration.facts:
        refused = _refused(judge, configuration, paths, GPU_HOST)
    return ([], claims) if claims and not refused else None


def _refused(judge: Judge, configuration: Configuration, paths: Sequence[Path], on: Host | None) -> list[str]:
    answer = judge.asked(paths, on, services=configuration.services, cpus=None)
    return [f"{r['option'] or r['step']}: {' '.join(r['error'].split())[:160]}" for r in answer["refused"]]


def reduced(judge: Judge, configuration: Configuration, release: Release, directory: Path) -> Configuration:
    """The shortest configuration with a disagreement of the same kind."""
    wanted = compared(judge, configuration, release, directory)
    again = True
    while again and wanted:
        again = False
        for file, lines in enumerate(configuration.files):
            for line in range(len(lines)):
                shorter = configuration.without(file, line)
                found = compared(judge, shorter, release, directory)
                if found is not None and bool(found[0]) == bool(wanted[0]):
                    configuration, again = shorter, True
                    break
            if again:
                break
    return configuration


def excepted(disagreement: Disagreement) -> bool:
    """Whether a disagreement is listed in exceptions.yaml."""
    entries = yaml.safe_load(EXCEPTIONS.read_text(encoding="utf-8")) or []
    text = str(disagreement)
    return any(entry["match"] in text for entry in entries)


def disagreements(
    judge: Judge, seeds: Sequence[int], directory: Path, report: Callable[[str], None] = lambda _: None
) -> Iterator[Disagreement]:
    """The disagreements on the configurations of the seeds, each reduced."""
    release = releases.release(judge.release)
    for seed in seeds:
        configuration = made(seed, release)
        if compared(judge, configuration, release, directory) is None:
            continue
        shortest = reduced(judge, configuration, release, directory)
        found = compared(judge, shortest, release, directory)
        assert found is not None
        nova, ours = found
        disagreement = Disagreement(release=judge.release, seed=seed, configuration=shortest, nova=nova, lint=ours)
        if not excepted(disagreement):
            report(str(disagreement))
            yield disagreement


def main() -> int:
    """Compare configurations of several releases."""
    from gpustack_demo.embedded.environment import ensure
    from gpustack_demo.embedded.releases import available

    parser = argparse.ArgumentParser(description="Compare lint with Nova's own code on generated configurations.")
    parser.add_argument("--count", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--release", action="append")
    arguments = parser.parse_args()
    failed = 0
    for name in arguments.release or [entry.name for entry in available()]:
        with tempfile.TemporaryDirectory() as directory, Judge(ensure(name)) as judge:
            seeds = range(arguments.seed, arguments.seed + arguments.count)
            found = sum(
                1 for _ in disagreements(judge, seeds, Path(directory), lambda text: print(text, "\n", flush=True))
            )
            print(f"Nova {name}: {found} disagreements on {arguments.count} configurations", flush=True)
            failed += found
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
