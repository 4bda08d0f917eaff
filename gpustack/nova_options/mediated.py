"""The type of mediated devices of each card, as nova-compute reads it when it starts.

``nova/virt/libvirt/driver.py``, ``_get_supported_vgpu_types``: ``[devices] enabled_mdev_types``, and a section for each
type. Lint and rendering ask it, so that they know the same rules of each release.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from gpustack.base.files import data_table
from gpustack.nova_options import releases
from gpustack.nova_options.options import Option, Release
from gpustack.nova_options.pci_values import CUSTOM, trait
from gpustack.spec import attributes
from gpustack.spec.model import Spec

STANDARD = "VGPU"
"""The resource class of mediated devices without ``mdev_class``."""
LIST = "enabled_mdev_types"
_ADDRESS = re.compile(r"[\da-fA-F]{4}:[\da-fA-F]{2}:[\da-fA-F]{2}.[0-7]")
_VIRTUAL = "mtty_mtty"
"""The parent without PCI that libvirt knows: since 2026.2, Nova looks for such ones below ``/sys/devices/virtual``."""
_VICTORIA, _CARACAL, _SEVERAL_PROVIDERS, _VIRTUAL_PARENTS = 22, 29, 33, 34

At = Literal["list", "section", "device_addresses", "mdev_class", "max_instances"]


@dataclass(frozen=True, kw_only=True)
class TypeSection:
    """A type, and the settings of its section ``[mdev_TYPE]``.

    :ivar limit: the number of devices of the type on the host (``max_instances``).
    """

    type: str
    addresses: tuple[str, ...] = ()
    resource_class: str = STANDARD
    limit: int | None = None


@dataclass(frozen=True, kw_only=True)
class Problem:
    """A setting that Nova refuses or ignores.

    :ivar at: the setting: the list of types, or one of the section of ``type``.
    :ivar refused: whether nova-compute does not start.
    """

    type: str
    at: At
    what: str
    refused: bool = False


@dataclass(kw_only=True)
class CardTypes:
    """The types and resource classes of cards, by their addresses.

    :ivar default: the type of all other cards.
    """

    problems: list[Problem] = field(default_factory=list)
    types: dict[str, str] = field(default_factory=dict)
    classes: dict[str, str] = field(default_factory=dict)
    default: str | None = None

    def of(self, address: str) -> tuple[str | None, str]:
        """The type and the resource class of a card; no type if Nova offers no devices of it."""
        return self.types.get(address, self.default), self.classes.get(address, STANDARD)


def card_types(sections: Sequence[TypeSection], release: Release) -> CardTypes:
    """The types of cards that a release reads from its configuration.

    Up to 2023.2, the first type is the only one if any type lacks addresses, or if there is no other.
    """
    made, first_alone = CardTypes(), release.major < _CARACAL
    if sections and (release.major < _VICTORIA or (first_alone and len(sections) == 1)):
        what = f"up to 2023.2, Nova ignores the section [{group_of(sections[0].type, release)}] of a single type"
        return CardTypes(default=sections[0].type, problems=[Problem(type=sections[0].type, at="section", what=what)])
    for section in sections:
        name = section.type
        if not section.addresses and first_alone:
            first = sections[0].type
            what = f"{name} has no device_addresses, so Nova offers only the first type, {first}, on every GPU"
            made.problems.append(Problem(type=name, at="list", what=what))
            return CardTypes(default=first, problems=made.problems)
        if not section.addresses and made.default is not None:
            what = f"{name} has no device_addresses, and {made.default} is already the default type: Nova drops {name}"
            made.problems.append(Problem(type=name, at="list", what=what))
        elif not section.addresses:
            made.default = name
            if section.resource_class != STANDARD:
                what = f"mdev_class of {name} has no effect on the inventory without device_addresses"
                made.problems.append(Problem(type=name, at="mdev_class", what=what))
        for address in section.addresses:
            _add(made, section, address, release)
    return made


def _add(made: CardTypes, section: TypeSection, address: str, release: Release) -> None:
    what, is_virtual = "", release.major >= _VIRTUAL_PARENTS and address == _VIRTUAL
    if address in made.types:
        what = f"{address} is already an address of {made.types[address]}"
    elif not (is_virtual or is_address(address)):
        what = f"{address!r} is no PCI address such as 0000:84:00.0"
        what += ": YAML reads an address without quotes as a number" if re.fullmatch(r"\d+\.\d", address) else ""
    if what:
        made.problems.append(Problem(type=section.type, at="device_addresses", what=what, refused=True))
    made.types.setdefault(address, section.type)
    made.classes.setdefault(address, section.resource_class)


def is_address(text: str) -> bool:
    """Whether Nova reads a text as the PCI address of a card."""
    return _ADDRESS.fullmatch(text) is not None


def group_of(type_: str, release: Release) -> str:
    """The name of the section of a type."""
    table = releases.table(release)
    return next((o.group for o in table.dynamic if o.name == "device_addresses"), "mdev_*").replace("*", type_)


def list_option(release: Release) -> Option:
    """The option that lists the types, under its name in a release (since Queens)."""
    table = releases.table(release)
    option = table.find("devices", LIST) or table.find("devices", "enabled_vgpu_types")
    return option or releases.option(f"devices/{LIST}")


def settings(sections: Sequence[TypeSection], release: Release) -> Mapping[str, Mapping[str, str]]:
    """The settings of types by section and name, as far as the release has them."""
    table = releases.table(release)
    made: dict[str, dict[str, str]] = {
        "devices": {list_option(release).name: ",".join(section.type for section in sections)}
    }
    for section in sections:
        group = group_of(section.type, release)
        values = {
            "device_addresses": ",".join(section.addresses),
            "mdev_class": section.resource_class,
            "max_instances": str(section.limit or ""),
        }
        made[group] = {key: value for key, value in values.items() if value and table.find(group, key)}
    return {group: values for group, values in made.items() if values}


def takes_several(release: Release) -> bool:
    """Whether an instance gets the mediated devices of more than one provider.

    Earlier releases take the first allocation, and warn (``_allocate_mdevs``).
    """
    return release.major >= _SEVERAL_PROVIDERS


def class_of(spec: Spec, model: str) -> str:
    """The resource class of the mediated devices of a model; empty for a model without vGPUs."""
    vgpu = spec.models[model].vgpu
    return vgpu.resource_class if vgpu else ""


def required_traits(spec: Spec, name: str) -> tuple[str, ...]:
    """The traits by which flavors request the mediated devices of a model, or of a selection by attribute.

    Nova gives their providers no traits. Types with the same class have traits from a file of provider_config, which
    takes those of the operator only.
    """
    if name in spec.selections:
        return custom_traits(attributes.required(spec.selections[name]))
    alike = [other for other in spec.models if class_of(spec, other) == class_of(spec, name)]
    own = (attributes.alias_trait(spec.alias_of(name)),) if len(alike) > 1 else ()
    return custom_traits((*spec.models[name].traits, *own))


def custom_traits(names: Iterable[str]) -> tuple[str, ...]:
    """The traits of the operator among names, as Nova normalises them."""
    return tuple(dict.fromkeys(name for name in map(trait, names) if name.startswith(CUSTOM)))


def does(release: Release, operation: str) -> bool:
    """Whether Nova does an operation with an instance that has mediated devices; on live migration, hosts decide too.

    :param operation: a name in ``gpustack/data/vgpu_operations.toml``.
    """
    return bool(release.major >= _operation(operation)["since"])


def required(program: str) -> str:
    """The version of ``libvirt`` or ``qemu`` that both hosts of a live migration with mediated devices need."""
    return str(_operation("live-migrate")[program])


def is_too_old(program: str, version: str) -> bool:
    """Whether a version is older than that."""
    numbers = (tuple(map(int, text.split("."))) for text in (version, required(program)))
    return next(numbers) < next(numbers)


def _operation(name: str) -> dict[str, Any]:
    return next(entry for entry in data_table("vgpu_operations.toml")["operation"] if entry["name"] == name)
