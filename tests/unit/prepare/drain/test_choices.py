"""The operator's choices, out of variables and the spec."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.base.errors import UsageError
from gpustack.prepare.drain.model import Policy
from gpustack.prepare.plugin_api import service_choices, service_target

SPEC = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}}
  h100: {match: {vendor: "10de", product: "2330"}, alias: H100, live_migratable: true}
hosts: {gpu1: [k4200, h100]}
"""


def test_the_spec_says_which_devices_can_migrate_live(tmp_path: Path) -> None:
    path = tmp_path / "gpustack.yaml"
    path.write_text(SPEC, encoding="utf-8")
    chosen = service_choices("stop", "live-migrate", ["own"], str(path))
    assert (chosen.guests, chosen.device_guests) == (Policy.STOP, Policy.LIVE_MIGRATE)
    assert chosen.live_migratable == {"own", "H100"}
    assert service_choices("refuse", "refuse", [], None).live_migratable == frozenset()


VGPUS = """\
version: 1
models:
  large: {match: {vendor: "10de", product: "25b6"}, vgpu: {type: A16-8Q}, live_migratable: true}
  small:
    match: {vendor: "10de", product: "25b7"}
    vgpu: {type: A16-4Q, resource_class: CUSTOM_A16_4Q}
hosts: {gpu1: [large, small]}
nova: {release: RELEASE}
"""


@pytest.mark.parametrize(
    ("release", "named", "expected"),
    [
        ("2024.1", [], {"VGPU"}),
        ("2024.1", ["CUSTOM_A16_4Q"], {"VGPU", "CUSTOM_A16_4Q"}),
        ("2023.2", ["VGPU", "CUSTOM_A16_4Q", "own"], {"own"}),
    ],
)
def test_vgpus_migrate_live_only_in_releases_that_can_do_it(
    release: str, named: list[str], expected: set[str], tmp_path: Path
) -> None:
    path = tmp_path / "gpustack.yaml"
    path.write_text(VGPUS.replace("RELEASE", f'"{release}"'), encoding="utf-8")
    chosen = service_choices("stop", "live-migrate", named, str(path))
    assert chosen.live_migratable - {"large", "small"} == expected
    assert chosen.vgpus == {"VGPU", "CUSTOM_A16_4Q"}


def test_instances_known_not_to_run_are_a_choice() -> None:
    assert service_choices("stop", "stop", [], None, (), ["vm"]).not_running == {"vm"}


def test_a_policy_that_there_is_not() -> None:
    with pytest.raises(UsageError, match="gpustack_device_guests is 'kill'") as caught:
        service_choices("stop", "kill", [], None)
    assert "refuse, live-migrate, cold-migrate, stop" in str(caught.value)


def test_a_host_has_the_inventorys_name_and_its_own() -> None:
    resolved = service_target("gpu1", {"hostname": "gpu1.example.org"}, "")
    assert (resolved.host, resolved.own_name, resolved.wanted) == ("gpu1", "gpu1.example.org", "")
    assert service_target("gpu1", None, "").own_name is None


@pytest.mark.parametrize(("libvirt", "known"), [("9.0.0", "9.0.0"), ("9.0", None), ("9.0.0; x", None), (9, None)])
def test_a_host_names_the_version_of_its_libvirt(libvirt: object, known: str | None) -> None:
    assert service_target("gpu1", {"libvirt": libvirt}, "").libvirt == known
