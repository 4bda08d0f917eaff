"""The names of options in existing configuration."""

from __future__ import annotations

import pytest

from gpustack.base.findings import Finding
from gpustack.configure.lint import judged
from gpustack.configure.lint.subject import LintSubject
from gpustack.configure.sources import Source
from gpustack.nova_options.config import parse_files
from gpustack.nova_options.releases import release


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        ('[pci]\npassthrough_whitelist = {"vendor_id": "10de"}\n', "lines under both names add up"),
        ("[devices]\nenabled_vgpu_types = nvidia-35\n", "in one file, the new name wins"),
    ],
)
def test_a_deprecated_name_has_the_effect_of_its_option(text: str, effect: str) -> None:
    source = Source(label="compute", services=("compute",), configuration=parse_files({"nova.conf": text}), named=True)
    results = judged(LintSubject(sources=[source], release=release("2025.2")))
    (found,) = [entry for result in results for entry in result.findings if entry.code == "GPU339"]
    assert (found.remedy or "").endswith(effect)


def findings(text: str, code: str, file: str = "nova.conf", services: tuple[str, ...] = ("compute",)) -> list[Finding]:
    """The findings with a code about one file."""
    source = Source(label="here", services=services, configuration=parse_files({file: text}), named=True)
    results = judged(LintSubject(sources=[source], release=release("2025.2")))
    return [entry for result in results for entry in result.findings if entry.code == code]


@pytest.mark.parametrize(
    ("section", "hint"),
    [
        ("mdev_nvidia_697", "; did you mean [mdev_nvidia-697]?"),
        ("mdev_nvidia697", "; did you mean [mdev_nvidia-697]?"),
        ("mdev_nvidia-698", "contains"),
    ],
)
def test_a_section_of_a_misspelled_type_leads_to_its_name(section: str, hint: str) -> None:
    text = f"[devices]\nenabled_mdev_types = nvidia-697,nvidia-700\n[{section}]\ndevice_addresses = 0000:84:00.0\n"
    (found,) = findings(text, "GPU531")
    assert found.message.endswith(hint)


@pytest.mark.parametrize(
    ("line", "file", "services", "hint"),
    [
        ("[placement]\nmax_allocation_candidates = 9", "nova.conf", ("api",), "[placement] of placement.conf"),
        ("[DEFAULT]\nmax_allocation_candidates = 9", "nova.conf", ("api",), "[placement] of placement.conf"),
        ("[DEFAULT]\nreport_in_placement = true", "placement.conf", ("placement",), "[pci] of nova.conf"),
    ],
)
def test_an_option_of_the_other_service_leads_to_its_file(
    line: str, file: str, services: tuple[str, ...], hint: str
) -> None:
    (found,) = findings(f"{line}\n", "GPU337", file, services)
    assert found.message.endswith(f"; it belongs in {hint}")


@pytest.mark.parametrize(("driver", "unknown"), [("secrets", []), ("other", ["GPU530"])])
def test_sections_of_configuration_drivers_are_known(driver: str, unknown: list[str]) -> None:
    text = f"[DEFAULT]\nconfig_source = files, {driver}\n[secrets]\ndriver = castellan\nmapping_file = m.conf\n"
    assert [found.code for found in findings(text, "GPU530")] == unknown
