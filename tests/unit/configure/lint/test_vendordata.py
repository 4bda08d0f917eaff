"""Foreign vendor data beside a configuration."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gpustack.base.errors import NovaConfigError
from gpustack.configure.lint import lint
from gpustack.configure.lint.subject import LintSubject
from gpustack.nova_options.releases import release
from gpustack.offer.guest import vendordata
from gpustack.offer.guest.check import Promise

CODES = ("GPU863", "GPU864")
LISTS = "#cloud-config\nruncmd: [[date]]\nntp: {servers: [a]}\nwrite_files: []\n"


def found(root: Path, *, data: str | None, more: str = "", place: str = "nova.conf") -> list[str]:
    """The findings about a configuration, with the vendor data beside it."""
    config = root / place
    config.parent.mkdir(exist_ok=True)
    config.write_text(f"[api]\nvendordata_jsonfile_path = {root}/vendordata.json\n{more}")
    if data is not None:
        (root / "vendordata.json").write_text(data)
    report = lint([f"compute={config.parent if 'conf.d' in place else config}"], LintSubject(release=release("2025.2")))
    return [f"{entry.code} {entry.message}" for entry in report.findings if entry.code in CODES]


@pytest.mark.parametrize(
    "data",
    [
        json.dumps({"cloud-init": LISTS}),
        json.dumps({"cloud-init": ["#!/bin/sh\n", LISTS]}),
        vendordata.render({}, {"cloud-init": LISTS}),
    ],
    ids=["text", "list", "multipart"],
)
def test_lists_vanish(tmp_path: Path, data: str) -> None:
    [message] = found(tmp_path, data=data)
    assert message.startswith("GPU864")
    assert message.endswith(": runcmd, write_files")


@pytest.mark.parametrize(
    "data",
    ["{}", "[1]", '{"cloud-init": 5}', '{"cloud-init": "#cloud-config\\na: ["}', vendordata.render({})],
    ids=["empty", "list", "number", "broken-yaml", "gpustack's"],
)
def test_other_vendor_data_is_fine(tmp_path: Path, data: str) -> None:
    assert found(tmp_path, data=data) == []


NESTED = "".join(f"Content-Type: multipart/mixed; boundary=b{n}\n\n--b{n}\n" for n in range(5000))


def test_parts_within_parts_end_nothing(tmp_path: Path) -> None:
    data = json.dumps({"cloud-init": NESTED})
    assert found(tmp_path, data=data)[0].endswith("/vendordata.json: the vendor data is nested too deeply")
    with pytest.raises(NovaConfigError, match="nested too deeply"):
        vendordata.render({}, json.loads(data))


def test_broken_and_missing_files(tmp_path: Path) -> None:
    assert found(tmp_path, data=None) == [f"GPU863 {tmp_path}/vendordata.json does not exist"]
    assert found(tmp_path, data="{")[0].startswith(f"GPU863 {tmp_path}/vendordata.json is not valid JSON")


def test_a_copied_configuration_proves_no_missing_file(tmp_path: Path) -> None:
    (tmp_path / "nova.conf").write_text("[api]\nvendordata_jsonfile_path = /etc/nova/vendordata.json\n")
    report = lint([f"compute={tmp_path}/nova.conf"], LintSubject(release=release("2025.2")))
    assert not [entry for entry in report.findings if entry.code in CODES]


def test_a_provider_must_read_the_file(tmp_path: Path) -> None:
    [message] = found(tmp_path, data="{}", more="vendordata_providers = DynamicJSON\n")
    assert message.startswith("GPU863 without StaticJSON")
    assert found(tmp_path, data="{}", more="vendordata_providers = DynamicJSON, StaticJSON\n") == []


def test_flavors_of_single_projects_are_named(tmp_path: Path) -> None:
    promise = Promise(count=1, ids=("10de:11b4",))
    names = ("g1.public", "customer a's|flavor", "g1.secret")
    (tmp_path / "vendordata.json").write_text(vendordata.render(dict.fromkeys(names, promise)))
    (tmp_path / "nova.conf").write_text(f"[api]\nvendordata_jsonfile_path = {tmp_path}/vendordata.json\n")

    def messages(*restricted: str) -> list[str]:
        report = lint([f"api={tmp_path}/nova.conf"], LintSubject(release=release("2025.2"), restricted=restricted))
        return [entry.message for entry in report.findings if entry.code == "GPU481"]

    assert messages("g1", "flavor") == []
    [message] = messages("g1.secret", "customer a's|flavor")
    assert message.endswith(": customer a's|flavor, g1.secret")
