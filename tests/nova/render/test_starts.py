"""Nova runs with what gpustack renders: each alias gives out the cards it should, and no other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from nova_hosts import host, raw

from gpustack.embedded.hosts import devices_of_snapshot
from gpustack.embedded.nova import Host, Nova
from gpustack.embedded.servers import boot, delete, gpu_flavor
from gpustack.findings import errors
from gpustack.nova import releases
from gpustack.nova.lint import lint
from gpustack.nova.render import render
from gpustack.nova.wanted import wanted
from gpustack.spec.load import parse_spec

SPEC = """\
version: 1
models:
  k4200: {match: {vendor: "10de", product: "11b4"}, alias: gpu, resource_class: GPU}
  p100: {match: {vendor: "10de", product: "15f8"}, alias: gpu, resource_class: GPU}
  a100: {match: {vendor: "10de", product: "20b2", addresses: ["0000:07:00.0", "0000:0f:00.0"]}, numa_policy: required}
hosts: {gpu01: [k4200], gpu-nic01: [p100], gpu-nv01: [a100]}
nova: {release: "RELEASE", placement: PLACEMENT}
"""
SNAPSHOTS = {"gpu01": "k4200-prepared", "gpu-nic01": "shared-nic", "gpu-nv01": "nvswitch"}
ADDRESSES = {
    "gpu": {"0000:84:00.0", "0000:88:00.0", "0000:1a:00.0", "0000:3b:00.0"},
    "a100": {"0000:07:00.0", "0000:0f:00.0"},
}
NO_HOST = "No valid host was found."


@pytest.fixture(scope="module", params=["off", "schedule"])
def placement(request, release_name) -> str:
    if request.param == "schedule" and releases.release(release_name).major < 27:
        pytest.skip(f"{release_name} has no PCI in Placement")
    return request.param


@pytest.fixture(scope="module")
def files(release_name, placement) -> dict[str, str]:
    """The rendered files by their target."""
    hosts = [host(name) for name in SNAPSHOTS.values()]
    spec = parse_spec(SPEC.replace("RELEASE", release_name).replace("PLACEMENT", placement), "gpustack.yaml")
    rendering = render(wanted(spec, hosts, release=releases.release(release_name)), hosts=hosts)
    assert errors(rendering.findings) == []
    return {file.target: file.text for file in rendering.files}


@pytest.fixture(scope="module")
def nova(release_name, files) -> Iterator[Nova]:
    hosts = [
        Host(name=name, pci=devices_of_snapshot(raw(snapshot)["pci"]), config=[files[name]])
        for name, snapshot in SNAPSHOTS.items()
    ]
    plain = Host(name="cpu01", config=[files["compute"]])
    with Nova(release_name, hosts=[*hosts, plain], config=[files["control"]]) as running:
        yield running


@pytest.fixture(scope="module")
def cloud(nova):
    with nova.connection() as connection:
        yield connection


@pytest.mark.parametrize("alias", ADDRESSES)
def test_every_card_goes_to_one_guest_and_one_more_finds_no_host(nova, cloud, alias):
    flavor = gpu_flavor(cloud, f"one-{alias}", alias)
    names = [f"{alias}-{number}" for number in range(len(ADDRESSES[alias]))]
    servers = [boot(cloud, name, flavor) for name in names]
    try:
        assert [(server.status, server.fault) for server in servers] == [("ACTIVE", None)] * len(servers)
        held = [address for one in servers for some in nova.control.hostdevs(one.id).values() for address in some]
        assert sorted(held) == sorted(ADDRESSES[alias])
        servers.append(boot(cloud, f"{alias}-one-more", flavor))
        assert servers[-1].status == "ERROR"
        assert servers[-1].fault["message"].startswith(NO_HOST)
    finally:
        for server in servers:
            delete(cloud, server)
        nova.control.periodic()


def test_nova_tracks_nothing_but_the_cards(nova, placement):
    for name, expected in (("gpu01", 2), ("gpu-nic01", 2), ("gpu-nv01", 2), ("cpu01", 0)):
        assert sum(pool["count"] for pool in nova.control.tracker(name)["pools"]) == expected, (name, placement)


def test_the_linter_finds_nothing_against_it(files, release_name, tmp_path):
    words = []
    for target, text in files.items():
        path = tmp_path / target / "nova.conf"
        path.parent.mkdir()
        path.write_text(text)
        words.append(f"{'api,scheduler,conductor' if target == 'control' else 'compute'}={path}")
    hosts = [host(name) for name in SNAPSHOTS.values()]
    report = lint(words, release=releases.release(release_name), hosts=hosts)
    assert errors(report.findings) == []
