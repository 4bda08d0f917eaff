"""The requirements that the flavors of a spec have of images, and the images for each flavor."""

from collections.abc import Iterable, Sequence

from gpustack.cloud.image import Image
from gpustack.hosts.facts.model import Host
from gpustack.nova_options.options import Release
from gpustack.offer.flavor.desired import extra_specs_of, refusing_hypervisor
from gpustack.offer.image.model import FlavorNeeds, Pair
from gpustack.pci.catalogue import requirement_of
from gpustack.spec.attributes import card_of
from gpustack.spec.model import Spec
from gpustack.spec.requests import Entry, entries, models_of
from gpustack.spec.verdict import verdicts
from gpustack.spec.vgpu_use import Frameworks, drivers_of, frameworks, needs_licensed_driver, offered_vgpus, with_memory

_COHERENT = "coherent-memory"


def needs_of(spec: Spec, release: Release, hosts: Sequence[Host] = ()) -> tuple[FlavorNeeds, ...]:
    """Return the requirements of each flavor of a spec.

    :param hosts: the facts of hosts, for their architectures.
    """
    spec, known = with_memory(spec, hosts), frameworks(spec, hosts)
    return tuple(_needs(spec, entry, release, hosts, known) for entry in entries(spec))


def _needs(spec: Spec, entry: Entry, release: Release, hosts: Sequence[Host], known: Frameworks) -> FlavorNeeds:
    flavor = entry.flavor
    models = models_of(spec, flavor)
    vgpus = tuple(model for model in models if needs_licensed_driver(spec.models[model]))
    cards = [card for model in models if model not in vgpus and (card := card_of(spec.models[model]))]
    return FlavorNeeds(
        name=entry.name,
        models=models,
        vendors=frozenset(spec.models[model].match.vendor for model in models),
        images=flavor.images,
        windows=flavor.is_windows or (None if flavor.guest is None else False),
        disk=entry.size("disk") or 0,
        ram=entry.size("ram"),
        extra_specs=extra_specs_of(spec, entry, release, known=known),
        hidden_from=refusing_hypervisor(spec, flavor),
        first_branches={card.full_name: first for card in cards if (first := requirement_of(card).first)},
        last_branches={card.full_name: last for card in cards if (last := requirement_of(card).last)},
        architectures=_architectures(spec, models, hosts),
        vgpus=vgpus,
        host_drivers=drivers_of(hosts),
    )


def _architectures(spec: Spec, models: Iterable[str], hosts: Sequence[Host]) -> frozenset[str]:
    """The architectures of the hosts that pass these models through. GPUs of a superchip are on Arm hosts only."""
    wanted = set(models)
    found = {
        host.architecture
        for host in hosts
        if host.architecture
        and not wanted.isdisjoint(
            [target.model for target in verdicts(spec, host).offered] + [c.model for c in offered_vgpus(spec, host)]
        )
    }
    cards = [card_of(spec.models[model]) for model in wanted]
    if not found and cards and all(card and _COHERENT in card.quirks for card in cards):
        found = {"aarch64"}
    return frozenset(found)


def pairs(
    images: Sequence[Image], flavors: Sequence[FlavorNeeds], names: Sequence[str] = (), project: str = ""
) -> tuple[tuple[Pair, ...], tuple[str, ...]]:
    """Pair images with flavors.

    :param names: names, patterns or ids of the images to check. Without names, they are the images of the flavors; if
        these name none, they are all active public images.
    :param project: the id of the own project.
    :returns: the pairs by name of the image, and the names that mean no image.
    """
    asked = tuple(names) or tuple(dict.fromkeys(name for flavor in flavors for name in flavor.images))
    # No kernel, no initramfs, and no snapshot of an instance.
    disks = (image for image in images if image.properties.get("disk_format") not in ("aki", "ari"))
    usable = (image for image in disks if image.properties.get("image_type") != "snapshot")
    offered = [image for image in usable if (image.status, image.visibility) == ("active", "public")]
    chosen = [image for image in images if image.is_meant(asked, project)] if asked else offered
    missing = tuple(name for name in asked if not any(image.is_meant((name,), project) for image in images))
    order = sorted(chosen, key=lambda image: (image.name, image.id))
    return tuple(Pair(image=image, flavors=flavors_of(image, flavors, project)) for image in order), missing


def flavors_of(image: Image, flavors: Sequence[FlavorNeeds], project: str = "") -> tuple[FlavorNeeds, ...]:
    """The flavors that name an image; else those that name no images and whose guest the image resembles."""
    naming = tuple(flavor for flavor in flavors if image.is_meant(flavor.images, project))
    others = tuple(flavor for flavor in flavors if not flavor.images)
    alike = tuple(flavor for flavor in others if bool(flavor.windows) == image.resembles_windows)
    # A flavor that does not declare Windows may be for any guest.
    return naming or alike or tuple(flavor for flavor in others if flavor.windows is None)
