"""What files of nova.conf show of nova-scheduler."""

from __future__ import annotations

from pathlib import Path

from gpustack.nova_options.scheduler import Scheduler, scheduler


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
    assert (found.by_devices, found.zone) == (True, "az1")
    # The files that have the filters are those of nova-scheduler.
    assert (found.isolated, found.by_project) == (False, False)
    assert (found.enables("PciPassthroughFilter"), found.enables("NUMATopologyFilter")) == (True, False)
