"""What files of nova.conf show of nova-scheduler."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

from gpustack.nova_options.scheduler import Scheduler, beyond, by_devices, scheduler, wanted_stage
from gpustack.spec.load import parse_spec
from gpustack.spec.model import Placement


def test_unset_options_are_unknown(tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text("[filter_scheduler]\n")
    found = scheduler([tmp_path / "nova.conf"])
    assert found == Scheduler()
    assert found.enables("PciPassthroughFilter") is None


def test_options_of_a_directory(tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text(
        "[DEFAULT]\ndefault_schedule_zone = az1\n[filter_scheduler]\npci_in_placement = no\n"
    )
    (tmp_path / "nova.conf.d").mkdir()
    text = "[filter_scheduler]\npci_in_placement = yes\nenabled_filters = ComputeFilter, PciPassthroughFilter\n"
    (tmp_path / "nova.conf.d" / "50.conf").write_text(text)
    found = scheduler([tmp_path])
    assert (found.by_devices, found.zone, found.unzoned) == (True, "az1", "nova")
    # The files that have the filters are those of nova-scheduler.
    assert (found.isolated, found.by_project, found.required) == (False, False, False)
    assert (found.enables("PciPassthroughFilter"), found.enables("NUMATopologyFilter")) == (True, False)
    assert (found.filters, found.fallback) == (("ComputeFilter", "PciPassthroughFilter"), True)


def test_projects_can_need_an_aggregate_and_the_default_zone_another_name(tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text(
        "[DEFAULT]\ndefault_availability_zone = rest\n[scheduler]\nplacement_aggregate_required_for_tenants = true\n"
    )
    found = scheduler([tmp_path])
    assert (found.unzoned, found.required) == ("rest", True)


def test_aliases_and_the_limit_of_placement(tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text('[pci]\nalias = {"name": "a"}\nalias = broken\nalias = {"name": "b"}\n')
    (tmp_path / "placement.conf").write_text("[placement]\nmax_allocation_candidates = 1000\n")
    found = scheduler([tmp_path / "nova.conf", tmp_path / "placement.conf"])
    assert (found.aliases, found.candidates) == ({"a", "b"}, 1000)
    (tmp_path / "placement.conf").write_text("[placement]\nmax_allocation_candidates = -1\n")
    assert scheduler([tmp_path / "placement.conf"]).candidates is None


def test_a_host_has_fifty_instances_unless_the_option_allows_more(tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text("[filter_scheduler]\n")
    assert scheduler([tmp_path]).instances == 50
    (tmp_path / "nova.conf").write_text("[filter_scheduler]\nmax_instances_per_host = 8\n")
    assert scheduler([tmp_path]).instances == 8


def test_the_second_request_for_processors_can_be_off(tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text("[workarounds]\ndisable_fallback_pcpu_query = true\n")
    assert scheduler([tmp_path]).fallback is False


def test_files_then_the_spec_show_how_nova_schedules() -> None:
    text = 'version: 1\nmodels: {a: {match: {vendor: "10de", product: "11b4"}}}\nhosts: {h: [a]}\n'
    silent = parse_spec(text, "spec")
    schedules = parse_spec(text + 'nova: {release: "2025.2", placement: schedule}\n', "spec")
    assert [by_devices(None, spec) for spec in (None, silent, schedules)] == [None, None, True]
    assert by_devices(Scheduler(by_devices=False), schedules) is False
    assert (wanted_stage(silent), wanted_stage(schedules)) == ("off", "schedule")


def test_options_about_images_are_off_unless_the_files_set_them(tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text("[scheduler]\nimage_metadata_prefilter = true\n")
    assert scheduler([tmp_path]).by_image == ("[scheduler] image_metadata_prefilter",)


def test_switches_beyond_a_stage() -> None:
    assert {stage: [*beyond(stage)] for stage in get_args(Placement)} == {
        "off": ["report", "schedule"],
        "report": ["schedule"],
        "schedule": [],
    }
