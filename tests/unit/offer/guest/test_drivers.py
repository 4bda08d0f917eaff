"""Drivers to install: the recommended branch, packages of distributions, the pins of NVIDIA GPU Operator."""

from __future__ import annotations

import tomllib

import pytest

from gpustack.base.files import data_dir
from gpustack.base.findings import Code, Finding
from gpustack.offer.guest import drivers
from gpustack.offer.guest.drivers import Installation, installations, operator_pin, recommended
from gpustack.offer.guest.requirements import GuestRequirement, NvidiaDriver, combined, requirement_of_model
from gpustack.pci import catalogue
from gpustack.pci.catalogue import requirement_of
from gpustack.spec.model import Spec

RAW = tomllib.loads(data_dir("guest_drivers.toml").read_text(encoding="utf-8"))


def of(*ids: str) -> GuestRequirement:
    models = {f"m{n}": {"match": {"vendor": text[:4], "product": text[5:]}} for n, text in enumerate(ids)}
    spec = Spec.model_validate({"version": 1, "models": models, "hosts": {"gpu01": list(models)}})
    return combined("f", [requirement_of_model(spec, name) for name in models])


def driver(*ids: str) -> NvidiaDriver:
    served = of(*ids).nvidia
    assert served is not None
    return served


def on(system: str, *ids: str) -> Installation:
    (found,) = (each for each in installations(of(*ids)) if each.system == system)
    return found


def findings(*ids: str) -> list[Finding]:
    return list(drivers.findings_of(of(*ids)))


KEPLER, PASCAL, TURING, AMPERE, HOPPER = "10de:11b4", "10de:15f8", "10de:1eb8", "10de:20f1", "10de:2331"
H200, BLACKWELL, GRACE, AMD, ARC, BATTLEMAGE = (
    "10de:233b",
    "10de:2bb1",
    "10de:2342",
    "1002:74a1",
    "8086:56a0",
    "8086:e20b",
)


def test_sources_of_the_data_are_defined() -> None:
    entries = [*RAW["branch"], *RAW["system"], *RAW["operator"], *(each for s in RAW["system"] for each in s["driver"])]
    used = {entry["source"] for entry in entries if "source" in entry}
    assert used == set(RAW["sources"])
    assert all("source" in entry for name in ("branch", "system", "operator") for entry in RAW[name])
    numbers = {entry["number"] for entry in RAW["branch"]}
    assert {branch for s in RAW["system"] for each in s["driver"] for branch in each["branches"]} <= numbers


@pytest.mark.parametrize(
    ("ids", "best"),
    [
        ((KEPLER,), (470, "proprietary")),
        ((KEPLER, TURING), (470, "proprietary")),
        ((PASCAL, AMPERE), (580, "proprietary")),
        ((TURING,), (580, "open")),
        ((AMPERE, BLACKWELL), (580, "open")),
    ],
)
def test_the_newest_branch_with_long_term_support_is_recommended(ids: tuple[str, ...], best: tuple[int, str]) -> None:
    assert recommended(driver(*ids)) == best


def test_every_known_nvidia_card_has_a_recommended_driver() -> None:
    for card in catalogue.cards():
        needs = requirement_of(card)
        if card.vendor == "10de":
            best = recommended(driver(f"10de:{card.product}"))
            assert best is not None, card
            assert (needs.first or 0) <= best[0] <= (needs.last or best[0]), card
            assert needs.modules in ("either", best[1]), card


def test_debian_13_has_no_driver_for_blackwell() -> None:
    assert on("Debian 13", BLACKWELL).missing == "only R535 and R550 are known"
    assert on("Debian 12", BLACKWELL).missing == "only R470 and R535 are known"
    blackwell = [entry.place for entry in findings(BLACKWELL) if entry.code is Code.NO_DRIVER_PACKAGE]
    assert blackwell == ["f, Debian 12", "f, Debian 13"]


def test_open_modules_of_debian_13_do_not_build() -> None:
    assert (on("Debian 13", AMPERE).modules, on("Debian 13", AMPERE).fault) == ("proprietary", None)
    faulty = on("Debian 13", AMPERE, GRACE)
    assert (faulty.branch, faulty.modules) == (550, "open")
    assert "6.12.107" in (faulty.fault or "")
    assert [e.place for e in findings(AMPERE, GRACE) if e.code is Code.DRIVER_PACKAGE_FAULTY] == ["f, Debian 13"]


def test_ubuntu_has_prebuilt_modules() -> None:
    assert on("Ubuntu 24.04", BLACKWELL).packages == (
        "linux-modules-nvidia-580-server-open-generic",
        "nvidia-headless-no-dkms-580-server-open",
        "nvidia-utils-580-server",
    )
    assert "linux-modules-nvidia-580-server-generic" in on("Ubuntu 22.04", PASCAL).packages


def test_rhel_selects_a_stream_or_locks_the_version() -> None:
    assert on("RHEL 8 and 9", HOPPER).commands == (
        "dnf module enable nvidia-driver:580-open",
        "dnf install nvidia-open",
    )
    assert on("RHEL 8 and 9", PASCAL).commands[0] == "dnf module enable nvidia-driver:580-dkms"
    assert on("RHEL 10", PASCAL).commands == ("dnf versionlock add '*nvidia*580*'", "dnf install cuda-drivers")


def test_linux_drivers_need_a_kernel_that_knows_the_card() -> None:
    assert on("Debian 12", ARC).missing == "i915 supports the cards since Linux 6.2; it has Linux 6.1"
    assert on("Debian 13", BATTLEMAGE).packages == ("linux-image-amd64", "firmware-intel-graphics")
    assert on("Ubuntu 24.04", BATTLEMAGE).missing is not None
    assert on("Ubuntu 24.04", AMD).unknown == ("amdgpu",)


def test_models_without_a_single_driver_have_no_packages() -> None:
    assert installations(of(KEPLER, HOPPER)) == ()
    assert findings(KEPLER, HOPPER) == []


@pytest.mark.parametrize(
    ("ids", "version", "module_type", "breaks"),
    [
        ((PASCAL,), "580.126.20", "proprietary", "v26.7.0"),
        ((PASCAL, AMPERE), "580.126.20", "proprietary", "v26.7.0"),
        ((HOPPER,), "580.126.20", "auto", None),
        ((BLACKWELL,), "580.126.20", "open", None),
    ],
)
def test_operator_values(ids: tuple[str, ...], version: str, module_type: str, breaks: str | None) -> None:
    pin = operator_pin(driver(*ids))
    assert pin is not None
    assert (pin.driver, pin.module_type, pin.breaks) == (version, module_type, breaks)


def test_operator_pins_a_release_that_lists_the_card() -> None:
    late = driver("10de:2c3a")  # 580.142 lists it, 580.126.20 does not
    assert late.first_release == "580.142"
    pin = operator_pin(late)
    assert pin is not None
    assert pin.driver == "595.91.07"


def test_operator_releases_that_break_cards_are_reported() -> None:
    (entry,) = (entry for entry in findings(PASCAL) if entry.code is Code.OPERATOR_DRIVER_TOO_NEW)
    assert "since v26.7.0" in entry.message
    assert "driver.version=580.126.20" in entry.remedy
    assert Code.OPERATOR_DRIVER_TOO_NEW not in {entry.code for entry in findings(HOPPER)}
    kepler = [entry.place for entry in findings(KEPLER) if entry.code is Code.NO_DRIVER_PACKAGE]
    assert "f, NVIDIA GPU Operator" in kepler
    assert operator_pin(driver(KEPLER)) is None


def test_cards_of_two_drivers_share_packages() -> None:
    assert on("Debian 13", ARC, BATTLEMAGE).packages == ("linux-image-amd64", "firmware-intel-graphics")
