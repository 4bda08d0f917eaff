"""Flavors made by gpustack on a whole Nova: guests get their GPUs, and flavors in use stay."""

from __future__ import annotations

from collections.abc import Iterator
from xml.etree.ElementTree import Element, fromstring

import pytest

from gpustack.cloud.flavors import FlavorCloud
from gpustack.nova_options.releases import release
from gpustack.offer.flavor.apply import plan
from gpustack.offer.flavor.compare import FlavorChoices
from gpustack.offer.flavor.desired import wanted
from gpustack.offer.flavor.flavors import PresentFlavor, present_flavors
from gpustack.spec.load import parse_spec
from gpustack_demo.embedded.nova import EmbeddedHost, EmbeddedNova, gpus
from gpustack_demo.embedded.servers import boot, delete
from support.change_runs import apply_flavors as apply

pytestmark = pytest.mark.filterwarnings("ignore::PendingDeprecationWarning")  # openstacksdk warns of its own code

CONFIG = """
[api]
max_limit = 1
[pci]
alias = {"name": "K4200", "vendor_id": "10de", "product_id": "11b4", "device_type": "type-PCI"}
device_spec = {"vendor_id": "10de", "product_id": "11b4"}
[filter_scheduler]
enabled_filters = ComputeFilter,ComputeCapabilitiesFilter,AggregateInstanceExtraSpecsFilter,\
ImagePropertiesFilter,NUMATopologyFilter,PciPassthroughFilter
"""
SPEC = """
version: 1
models: {k4200: {match: {vendor: "10de", product: "11b4"}, alias: K4200}}
hosts: {gpu1: [k4200]}
nova: {release: "2025.2"}
flavors:
"""
ONE = f'{SPEC}  "g{{count}}": {{model: k4200, count: [1, 3], vcpus: 2, ram: 512, disk: 1}}\n'
STRICT = (
    f'{SPEC}  "n{{count}}": {{model: k4200, count: [2, 3], vcpus: 2, ram: 512, disk: 1, '
    "numa: {policy: required, nodes: 1}}\n"
)
LARGER = f'{SPEC}  "g{{count}}": {{model: k4200, count: [1, 3], vcpus: 2, ram: 1024, disk: 1}}\n'


@pytest.fixture(scope="module")
def nova() -> Iterator[EmbeddedNova]:
    with EmbeddedNova("2025.2", hosts=[EmbeddedHost(name="gpu1", pci=gpus(4))], config=[CONFIG]) as running:
        yield running


def applied(api: FlavorCloud[PresentFlavor], text: str, choices: FlavorChoices = FlavorChoices()) -> list[str]:  # noqa: B008 - frozen
    """Apply a spec; → the codes of the findings."""
    desired = wanted(parse_spec(text, "spec"), release=release("2025.2"))
    flavor_plan = plan(api, desired.flavors, choices)
    assert not apply(api, flavor_plan.operations, jobs=1)
    return [finding.code for finding in flavor_plan.findings]


def test_guests_get_what_the_flavor_says_and_flavors_in_use_stay(nova: EmbeddedNova) -> None:
    with nova.connection() as connection:
        api = present_flavors(connection)
        applied(api, ONE)
        by_name = {flavor.name: connection.compute.get_flavor(flavor.id) for flavor in api.flavors()}
        server = boot(connection, "one", by_name["g1"])
        assert server.status == "ACTIVE"
        assert len(nova.control.hostdevs(server.id)["gpu1"]) == 1
        three = boot(connection, "three", by_name["g3"])
        assert len(nova.control.hostdevs(three.id)["gpu1"]) == 3
        delete(connection, three)

        # With other sizes: the one in use is not replaced, the other one is.
        replace = FlavorChoices(replace=frozenset({"g1", "g3"}))
        before = {flavor.name: flavor.id for flavor in api.flavors()}
        assert applied(api, LARGER, replace) == ["GPU406"]
        after = {flavor.name: flavor.id for flavor in api.flavors()}
        assert after["g1"] == before["g1"]
        assert after["g3"] != before["g3"]

        # Not in the spec any more: the one in use is not pruned, until its guest is gone.
        assert applied(api, STRICT, FlavorChoices(prune=True)) == ["GPU405"]
        assert {flavor.name for flavor in api.flavors()} == {"g1", "n2", "n3"}
        delete(connection, server)
        assert applied(api, STRICT, FlavorChoices(prune=True)) == []
        assert {flavor.name for flavor in api.flavors()} == {"n2", "n3"}


def test_what_the_plan_says_never_fits_never_does(nova: EmbeddedNova) -> None:
    """Two GPUs a node: under ``required`` on one node, two find a host and three don't, as GPU411 says of them."""
    with nova.connection() as connection:
        api = present_flavors(connection)
        applied(api, STRICT)
        by_name = {flavor.name: connection.compute.get_flavor(flavor.id) for flavor in api.flavors()}
        fits, never = boot(connection, "fits", by_name["n2"]), boot(connection, "never", by_name["n3"])
        assert (fits.status, never.status) == ("ACTIVE", "ERROR")
        for server in (fits, never):
            delete(connection, server)


WINDOWS = {"os_type": "windows", "hw_machine_type": "q35", "hw_firmware_type": "uefi"}
VENDOR, HIDDEN = "./features/hyperv/vendor_id", "./features/kvm/hidden"


def test_windows_guests_get_what_their_flavor_and_image_ask_for(nova: EmbeddedNova) -> None:
    """What `gpustack image check` reports, as Nova writes it into the definition for libvirt."""
    options = "vcpus: 2, ram: 512, disk: 1, guest: windows, hide_hypervisor: true"
    flavors = f"  win: {{model: k4200, {options}}}\n  secure: {{model: k4200, {options}, secure_boot: true}}\n"
    flavors += f"  tpm: {{model: k4200, {options}, tpm: true}}\n"

    with nova.connection() as connection:
        api = present_flavors(connection)
        applied(api, SPEC + flavors)
        by_name = {flavor.name: connection.compute.get_flavor(flavor.id) for flavor in api.flavors()}

        def defined(flavor: str, properties: dict[str, str]) -> Element:
            """The definition of an instance, which is deleted again."""
            image = nova.control.image(properties)
            server = boot(connection, flavor, by_name[flavor], image=image)
            assert server.status == "ACTIVE", server.fault
            definition = fromstring(nova.control.definition("gpu1", server.id))  # noqa: S314 - Nova wrote it
            delete(connection, server)
            return definition

        windows = defined("win", WINDOWS)
        assert windows.find(VENDOR) is not None
        assert windows.find(HIDDEN) is not None
        assert "q35" in windows.find("./os/type").attrib["machine"]
        assert windows.find("./os/loader").attrib["secure"] == "no"
        # GPU820: with another case, Nova writes no Hyper-V element, so older drivers stop. GPU818: no PCI Express.
        other = defined("win", {"os_type": "Windows"})
        assert other.find("./features/hyperv") is None
        assert other.find(HIDDEN) is not None
        assert "q35" not in other.find("./os/type").attrib["machine"]
        # GPU825: without UEFI, Nova starts the instance without Secure Boot, and without an error.
        assert defined("secure", WINDOWS).find("./os/loader").attrib["secure"] == "yes"
        assert defined("secure", {**WINDOWS, "hw_firmware_type": "bios"}).find("./os/loader") is None
        # GPU829: no host has swtpm.
        refused = boot(connection, "tpm", by_name["tpm"], image=nova.control.image(WINDOWS))
        assert refused.status == "ERROR"
        assert "No valid host" in refused.fault["message"]
        delete(connection, refused)
