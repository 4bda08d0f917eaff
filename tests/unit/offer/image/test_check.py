"""Images compared with the flavors of specs: pure, so images are written down as Glance lists them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpustack.base.findings import Severity
from gpustack.cloud.image import Image, parsed
from gpustack.nova_options.releases import release
from gpustack.offer.image.check import Checked, check, room_problems, unmatched
from gpustack.offer.image.model import FlavorNeeds
from gpustack.offer.image.needs import needs_of, pairs
from gpustack.spec.load import parse_spec
from support.mediated_hosts import card, mediated_host

SPEC = """
version: 1
models:
  p100: {match: {vendor: "10de", product: "15f8"}}
  gtx: {match: {vendor: "10de", product: "1b80"}}
  mi210: {match: {vendor: "1002", product: "740f"}}
  gh200: {match: {vendor: "10de", product: "2342"}}
hosts: {"gpu*": [p100, gtx, mi210, gh200]}
nova: {release: "2025.2"}
flavors: {FLAVORS}
"""
SIZES = "vcpus: 4, ram: 8GiB, disk: 40GiB"
PLAIN = {"hw_machine_type": "q35", "hw_firmware_type": "bios"}
"""The properties of an image without findings for Linux."""
SECURE = {"hw_machine_type": "q35", "hw_firmware_type": "uefi", "os_secure_boot": "required"}


def image(name: str = "debian-13-generic", **fields: Any) -> Image:
    entry = {"id": f"id-{name}", "name": name, "status": "active", "visibility": "public", "size": 400 << 20}
    return parsed({**entry, "virtual_size": 3 << 30, **PLAIN, **fields})


def checked(flavors: str, *images: Image, names: tuple[str, ...] = ()) -> tuple[Checked, ...]:
    spec = parse_spec(SPEC.replace("FLAVORS", flavors), "spec")
    paired, _ = pairs(images, needs_of(spec, release("2025.2")), names)
    return check(paired)


def codes(flavor: str, *images: Image) -> list[str]:
    return [entry.code.value for result in checked(f"f: {{{flavor}}}", *images) for entry in result.findings]


LINUX = f"model: p100, {SIZES}"
GAMES = f"model: gtx, {SIZES}, guest: windows"
VISIBLE = f"{GAMES}, hide_hypervisor: false"
WINDOWS = {"name": "windows-11", "os_type": "windows"}


@pytest.mark.parametrize(
    ("flavor", "fields", "expected"),
    [
        (LINUX, {}, []),
        # The machine
        (LINUX, {"hw_machine_type": "pc-q35-8.2"}, []),
        (LINUX, {"hw_machine_type": "pc-i440fx-8.2"}, ["GPU818"]),
        (LINUX, {"hw_machine_type": None}, ["GPU818"]),
        (LINUX, {"hw_firmware_type": None}, ["GPU819"]),
        (LINUX, {"architecture": "aarch64", "hw_machine_type": None, "hw_firmware_type": None}, []),
        (LINUX, {"hw_machine_type": "virt-8.2", "hw_firmware_type": "uefi"}, []),
        # Secure Boot
        (LINUX, SECURE, ["GPU824"]),
        (LINUX, {**SECURE, "gpustack_modules_signed": "true"}, []),
        (LINUX, {**SECURE, "os_secure_boot": "disabled"}, []),
        (LINUX, {**SECURE, "hw_firmware_type": "bios", "gpustack_modules_signed": "yes"}, ["GPU825"]),
        (LINUX, {**SECURE, "hw_machine_type": "pc", "gpustack_modules_signed": "1"}, ["GPU818", "GPU825"]),
        (f"model: mi210, {SIZES}", SECURE, []),
        (LINUX + ', extra_specs: {"os:secure_boot": required}', {}, ["GPU825", "GPU824"]),
        (LINUX + ', extra_specs: {"os:secure_boot": disabled}', SECURE, ["GPU828"]),
        (f"{LINUX}, maxphysaddr: passthrough", {"hw_maxphysaddr_mode": "emulate"}, ["GPU828"]),
        (f"{LINUX}, maxphysaddr: passthrough", {"hw_maxphysaddr_mode": "passthrough"}, []),
        # Windows
        (GAMES, WINDOWS, []),
        (VISIBLE, {**WINDOWS, "img_hide_hypervisor_id": "true"}, []),
        (VISIBLE, WINDOWS, ["GPU821"]),
        (VISIBLE, {**WINDOWS, "gpustack_driver": "580.105.08"}, []),
        (VISIBLE, {**WINDOWS, "gpustack_driver": "461.40"}, ["GPU821"]),
        (f"{GAMES}, secure_boot: true", {**WINDOWS, "hw_firmware_type": "uefi"}, []),
        (f"{GAMES}, secure_boot: true", WINDOWS, ["GPU825"]),
        (f"{GAMES}, tpm: true", {**WINDOWS, "hw_tpm_version": "1.2"}, ["GPU828"]),
        (f"model: p100, {SIZES}, windows: true", WINDOWS, []),
        (f"model: p100, {SIZES}, windows: true", {**WINDOWS, "os_type": "Windows"}, ["GPU820"]),
        (f"model: p100, {SIZES}, windows: true, images: [golden]", {"name": "golden"}, ["GPU820"]),
        (LINUX, {"name": "Windows Server 2022"}, ["GPU820"]),
        (LINUX, {"name": "Winterfell 10"}, []),
        # Drivers
        (LINUX, {"gpustack_driver": "595.71.05"}, ["GPU850"]),
        (LINUX, {"gpustack_driver": "R580"}, []),
        (LINUX, {"gpustack_driver": "none"}, []),
        (GAMES, {**WINDOWS, "gpustack_driver": "595.71.05"}, ["GPU850"]),
        (f"model: gh200, {SIZES}", {"gpustack_driver": "595.71.05"}, []),
        (f"model: gh200, {SIZES}", {"gpustack_driver": "470.256.02"}, ["GPU908"]),
        (LINUX, {"gpustack_driver": "418.67"}, []),
        # Kernels
        (f"model: mi210, {SIZES}", {"name": "debian-13-genericcloud-amd64"}, ["GPU826"]),
        (f"model: mi210, {SIZES}", {"name": "trixie genericcloud", "os_distro": "debian"}, ["GPU826"]),
        (f"model: mi210, {SIZES}", {"name": "Rocky-9-GenericCloud"}, []),
        (f"model: mi210, {SIZES}", {"name": "debian-like GenericCloud", "os_distro": "rocky"}, []),
        (LINUX, {"name": "debian-13-genericcloud-amd64"}, []),
        # Sizes
        (LINUX, {"min_disk": 41}, ["GPU822"]),
        (LINUX, {"min_ram": 8193}, ["GPU822"]),
        (LINUX, {"virtual_size": 41 << 30}, ["GPU822"]),
        (
            "model: p100, vcpus: 4, ram: auto, disk: 40".replace("ram: auto", "per_gpu: {ram: auto}"),
            {"min_ram": 9999},
            [],
        ),
        ("model: p100, vcpus: 4, ram: 8GiB, disk: 4", {}, ["GPU823"]),
        ("model: p100, vcpus: 4, ram: 8GiB, disk: 5", {}, []),
        ("model: p100, vcpus: 4, ram: 8GiB, disk: 4", {"gpustack_driver": "580.105.08"}, []),
        ("model: mi210, vcpus: 4, ram: 8GiB, disk: 4", {}, []),
        ("model: p100, vcpus: 4, ram: 8GiB, disk: 0", {}, ["GPU823"]),
        ("model: p100, vcpus: 4, ram: 8GiB, disk: 0", {"min_disk": 5}, []),
        # Architectures
        (f"model: gh200, {SIZES}", {"architecture": "x86_64"}, ["GPU827"]),
        (f"model: gh200, {SIZES}", {"architecture": "arm64", "hw_machine_type": None, "hw_firmware_type": None}, []),
        (f"model: gh200, {SIZES}", {"hw_machine_type": None, "hw_firmware_type": None}, []),
        # Status
        (f"{LINUX}, images: [golden]", {"name": "golden", "status": "deactivated", "min_disk": 99}, ["GPU817"]),
    ],
)
def test_findings_from_properties_and_sizes(flavor: str, fields: dict[str, Any], expected: list[str]) -> None:
    assert codes(flavor, image(**fields)) == expected


def test_a_finding_has_all_flavors_that_it_concerns() -> None:
    flavors = f'"g.{{count}}": {{model: p100, count: [1, 2, 3, 4, 5, 6], {SIZES}}}'
    (result,) = checked(flavors, image(hw_machine_type="pc"))
    (finding,) = result.findings
    assert finding.place == "debian-13-generic"
    assert finding.message.endswith("instances of g.1, g.2, g.3, g.4 and 2 more")


def test_images_of_the_same_name_are_shown_with_ids() -> None:
    first, second = image(hw_machine_type="pc"), image(id="other")
    results = checked(f"f: {{{LINUX}}}", first, second)
    assert [[entry.place for entry in result.findings] for result in results] == [
        ["debian-13-generic (id-debian-13-generic)"],
        [],
    ]


def test_known_unsigned_modules_are_an_error() -> None:
    (result,) = checked(f"f: {{{LINUX}}}", image(**SECURE, gpustack_modules_signed="false"))
    assert [entry.severity for entry in result.findings] == [Severity.ERROR]


def test_no_remedy_is_uefi_alone() -> None:
    """With 40 address bits, OVMF has less room for BARs than SeaBIOS."""
    (result,) = checked(f"f: {{{LINUX}}}", image(hw_firmware_type=None))
    assert "maxphysaddr" in result.findings[0].remedy


def test_names_without_an_image_are_reported() -> None:
    assert [(entry.code.value, entry.place) for entry in unmatched(["gone"])] == [("GPU817", "gone")]


@pytest.mark.parametrize(
    ("declared", "driver", "severity", "words"),
    [
        ({}, "580.65.06", Severity.INFO, "declares no driver"),
        ({"gpustack_driver": "570.172.08"}, "580.65.06", Severity.INFO, "declares 570.172.08"),
        ({"gpustack_driver": "590.10"}, "580.65.06", Severity.WARNING, "driver of the hosts: 580.65.06"),
        ({"gpustack_driver": "590.10"}, None, Severity.INFO, "driver of the hosts: unknown"),
    ],
)
def test_vgpus_need_the_guest_driver_of_the_hosts_release(declared, driver, severity, words):
    """The first branch of the card itself is no matter: only the licensed driver serves vGPUs."""
    models = 'a16: {match: {vendor: "10de", product: "25b6"}, vgpu: {type: A16-8Q}}'
    text = f"version: 1\nmodels: {{{models}}}\nhosts: {{gpu01: [a16]}}\nflavors: {{f: {{model: a16, {SIZES}}}}}\n"
    host = mediated_host(card("0000:41:00.0"), driver=driver)
    needs = needs_of(parse_spec(text, "spec"), release("2025.2"), [host])
    assert needs[0].extra_specs == {"resources:VGPU": "1"}
    (result,) = check(pairs([image(**declared)], needs)[0])
    (found,) = [entry for entry in result.findings if entry.code == "GPU978"]
    assert (found.severity, words in found.message, "ClientConfigToken" in found.remedy) == (severity, True, True)
    assert {entry.code.value for entry in result.findings} <= {"GPU978"}


GIB = 1 << 30
BUILT = FlavorNeeds(name="f", models=("m",), vendors=frozenset({"10de"}), disk=5, ram=2048)


@pytest.mark.parametrize(
    ("changes", "fields", "expected"),
    [
        ({}, {}, []),
        ({}, {"min_ram": 2048, "min_disk": 5, "size": 5 * GIB}, []),
        ({}, {"min_ram": 2049}, ["2049 MiB of RAM (min_ram), 2048 MiB"]),
        ({"ram": None}, {"min_ram": 2049}, []),
        ({}, {"min_disk": 6}, ["6 GiB of root disk, 5 GiB"]),
        ({}, {"size": 5 * GIB + 1}, ["5.1 GiB of root disk, 5 GiB"]),
        ({}, {"virtual_size": 5 * GIB + 1}, ["5.1 GiB of root disk, 5 GiB"]),
        ({"disk": 0}, {"min_disk": 6}, []),  # the volume has the size
        # Room for a driver that is built in the guest
        ({}, {"virtual_size": 7 * GIB // 2}, []),
        ({}, {"virtual_size": 7 * GIB // 2 + 1}, ["a root disk of 5 GiB, 3.6, 1.5, 6"]),
        ({"disk": 0}, {"virtual_size": 3 * GIB}, ["info a volume of 3 GiB, 3, 1.5, 5"]),
        ({"disk": 0}, {"virtual_size": 3 * GIB, "min_disk": 4}, ["info a volume of 4 GiB, 3, 1.5, 5"]),
        ({"disk": 0}, {"virtual_size": 3 * GIB, "min_disk": 5}, []),
        ({}, {"virtual_size": 4 * GIB, "properties": {"gpustack_driver": "580"}}, []),
        ({}, {"virtual_size": 4 * GIB, "properties": {"os_type": "windows"}}, []),
        ({"windows": True}, {"virtual_size": 4 * GIB}, []),
        ({"vendors": frozenset({"1002"})}, {"virtual_size": 4 * GIB}, []),
    ],
)
def test_sizes_and_the_room_for_a_driver(changes: dict[str, Any], fields: dict[str, Any], expected: list[str]) -> None:
    problems = room_problems(Image(id="1", name="i", **fields), replace(BUILT, **changes))
    severities = {Severity.INFO: "info "}
    shown = [f"{severities.get(of.severity, '')}{', '.join(of.values.values())}" for of in problems]  # type: ignore[arg-type]
    assert shown == expected
