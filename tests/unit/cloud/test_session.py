"""A cloud that can't be signed in to, or that answers nonsense: what is said, and that it is no fault of gpustack."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpustack.cli.app import main

pytestmark = pytest.mark.filterwarnings("ignore:Support for InfluxDB")
NOBODY = "http://127.0.0.1:9/v3"


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in list(os.environ):
        if name.startswith("OS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({}, "auth_url"),
        ({"OS_AUTH_URL": NOBODY}, "check the user, the password"),
        ({"OS_AUTH_URL": NOBODY, "OS_USERNAME": "me"}, "check the user, the password"),
        ({"OS_AUTH_URL": NOBODY, "OS_USERNAME": "me", "OS_PASSWORD": "geheim"}, "see whether the API can be reached"),
        (
            {"OS_AUTH_URL": NOBODY.replace("http", "https"), "OS_PASSWORD": "geheim", "OS_CACERT": "/nonexistent.pem"},
            "cacert",
        ),
        ({"OS_AUTH_URL": "nowhere", "OS_USERNAME": "me", "OS_PASSWORD": "geheim"}, "check auth_url"),
    ],
)
def test_errors_are_printed_with_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variables: dict[str, str], message: str
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert main(["flavor", "list"]) == 21
    output = capsys.readouterr().err
    assert message in output
    assert "geheim" not in output
    assert "fault of gpustack" not in output


@pytest.mark.parametrize("text", ["clouds: {mine: 5}\n", "clouds: [\n", "clouds: [mine]\n", "5\n"])
def test_a_clouds_yaml_of_another_shape(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    Path("clouds.yaml").write_text(text)
    monkeypatch.setenv("OS_CLIENT_CONFIG_FILE", "clouds.yaml")
    assert main(["flavor", "list", "--os-cloud", "mine"]) == 21
    output = capsys.readouterr().err
    assert "clouds.yaml" in output
    assert "fault of gpustack" not in output


SHOW = "import gpustack.cloud.session as api; print(api.connect('prod').config.config['auth'])"


@pytest.mark.parametrize("explicit", [False, True])
def test_a_clouds_yaml_of_the_current_directory_counts_only_if_named(tmp_path: Path, explicit: bool) -> None:
    """A commit in a spec repository has the user's password sent elsewhere."""
    config, current = tmp_path / ".config/openstack", tmp_path / "specs"
    config.mkdir(parents=True)
    current.mkdir()
    user = "{username: me, project_name: p, user_domain_name: d, project_domain_name: d, "
    (config / "clouds.yaml").write_text(f"clouds: {{prod: {{auth: {user} auth_url: 'http://own.invalid'}}}}}}")
    (config / "secure.yaml").write_text("clouds: {prod: {auth: {password: geheim}}}")
    (current / "clouds.yaml").write_text(f"clouds: {{prod: {{auth: {user} auth_url: 'http://other.invalid'}}}}}}")
    (current / "secure.yaml").write_text("clouds: {prod: {auth: {auth_url: 'http://other.invalid'}}}")
    variables = {**os.environ, "HOME": str(tmp_path), **({"OS_CLIENT_CONFIG_FILE": "clouds.yaml"} if explicit else {})}
    variables.pop("XDG_CONFIG_HOME", None)
    process = subprocess.run(
        [sys.executable, "-P", "-c", SHOW], cwd=current, env=variables, capture_output=True, text=True, check=True
    )
    assert "geheim" in process.stdout
    assert ("other.invalid" in process.stdout) is explicit
