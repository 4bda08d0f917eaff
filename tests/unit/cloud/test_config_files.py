"""The files of openstacksdk's configuration are read within limits before openstacksdk loads them."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from openstack.config import loader

from gpustack.base.errors import CloudError
from gpustack.cloud.config_files import checked_locations, cloud_names, locations

CLOUDS = "clouds: {c: {auth: {auth_url: 'http://127.0.0.1:1'}}}\n"


@pytest.mark.parametrize("content", [CLOUDS, "clouds: &a {b: [1, 2], c: *nobody}", "{", "\udcff"])
def test_text_that_is_no_bomb_is_left_to_openstacksdk(
    content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "clouds.yaml").write_text(content, encoding="utf-8", errors="surrogateescape")
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    monkeypatch.setenv("OS_CLIENT_SECURE_FILE", str(tmp_path / "clouds.yaml/none"))
    assert checked_locations() == locations()


def test_a_number_is_the_name_of_a_cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "clouds.yaml").write_text("clouds: {7: {}, c: {}, 2026: {}}\n")
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    assert cloud_names() == ["2026", "7", "c"]


def test_damaged_yaml_is_an_error_with_openstacksdk_before_4_15(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Newer ones catch ``YAMLError`` themselves."""

    def load(_config: object, paths: list[str]) -> tuple[str, object]:
        return paths[0], yaml.safe_load(Path(paths[0]).read_text())

    monkeypatch.setattr(loader.OpenStackConfig, "_load_yaml_json_file", load)
    (tmp_path / "clouds.yaml").write_text("clouds: [\n")
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    with pytest.raises(CloudError, match="can't be used"):
        cloud_names()


def test_an_endless_file_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", "/dev/zero")
    with pytest.raises(OSError, match="too large"):
        checked_locations()


def test_the_working_directory_counts_only_if_it_is_a_usual_place(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [f"{place}/clouds.yaml" for place in ("/here", "/home/ann/.config/openstack", "/etc/openstack")]
    monkeypatch.setattr(loader, "CONFIG_FILES", files)
    monkeypatch.setattr(loader, "CONFIG_SEARCH_PATH", ["/here", "/home/ann/.config/openstack", "/etc/openstack"])
    assert locations()["config_files"] == files[1:]
    monkeypatch.setattr(
        loader, "CONFIG_SEARCH_PATH", ["/etc/openstack", "/home/ann/.config/openstack", "/etc/openstack"]
    )
    assert locations()["config_files"] == files


@pytest.mark.parametrize("password", ["*hunter2", "!hunter2 x", "&hunter2 x: y"])
def test_no_part_of_a_password_is_in_warnings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, password: str
) -> None:
    """An alias, a tag or an anchor to YAML: openstacksdk skips the file, and logs PyYAML's error."""
    (tmp_path / "clouds.yaml").write_text(f"clouds:\n  c:\n    auth:\n      password: {password}\n")
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", str(tmp_path / "clouds.yaml"))
    with pytest.raises(CloudError, match="neither YAML nor JSON"):
        cloud_names()
    (record,) = caplog.records
    assert "clouds.yaml: line " in record.getMessage()
    assert "hunter2" not in record.getMessage()
