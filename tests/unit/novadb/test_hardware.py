"""The hardware of hosts for clean-up: which of it belongs to a compute node, and what nova.conf offers of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpustack.base.errors import NovaConfigError
from gpustack.hosts.facts.model import Host
from gpustack.novadb.hardware import Hardware, device_specs, finder, hardware
from support.nova_hosts import raw


@pytest.mark.parametrize(
    ("host", "node", "found"),
    [
        ("gpu1", "gpu1", "gpu1"),
        ("GPU1", None, "gpu1"),
        ("gpu1.example.org", None, "gpu1"),  # one host has this short name
        ("gpu2.a.org", None, "gpu2.a.org"),
        ("gpu2", None, None),  # two hosts have it
        ("other", "gpu1", "gpu1"),
        ("gpu1", "gpu2.a.org", None),  # the names lead to two hosts
        ("other", None, None),
        (None, None, None),
    ],
)
def test_a_host_is_found_by_any_name_that_only_it_has(host: str | None, node: str | None, found: str | None) -> None:
    known = {name: Hardware(present={}, unused=(name,)) for name in ("gpu1", "gpu2.a.org", "gpu2.b.org")}
    hit = finder(known)(host, node)
    assert (hit and hit.unused[0]) == found


def test_the_functions_of_a_host_and_what_is_offered_of_them(tmp_path: Path) -> None:
    host = Host.model_validate(raw("k4200-prepared"))
    assert hardware([host])["gpu01"].offered is None
    assert hardware([host])["gpu01"].unused == ()
    conf = tmp_path / "nova.conf"
    conf.write_text('[pci]\ndevice_spec = {"vendor_id": "10de", "product_id": "11b4"}\n')
    known = hardware([host], device_specs([conf]))["gpu01"]
    assert known.present.keys() == {function.address for function in host.pci}
    card = known.present["0000:88:00.0"]
    assert (card.vendor_id, card.product_id, card.dev_type) == ("10de", "11b4", "type-PCI")
    assert known.offered == {"0000:84:00.0", "0000:88:00.0"}
    assert known.read_at == host.read_at


def test_an_entry_that_nova_would_refuse_is_an_error_with_its_place(tmp_path: Path) -> None:
    conf = tmp_path / "nova.conf"
    conf.write_text('[pci]\ndevice_spec = {"vendor_id": "10de"}\ndevice_spec = {"vendor_id": "10dez"}\n')
    with pytest.raises(NovaConfigError, match=r"nova.conf:3.*device_spec: "):
        device_specs([conf])
