"""A clouds.yaml of the working directory could send the password to any address; any may grow without an end."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import openstack.connection
import pytest
from openstack.config import loader

from gpustack.base.errors import CloudError
from gpustack.cloud import session
from support.attacks import attacked

EVIL = "clouds: {prod: {auth: {auth_url: 'http://evil.invalid', username: u, password: p, project_name: x}}}\n"
FILES = ("clouds.yaml", "clouds.yml", "clouds.json", "clouds-public.yaml", "secure.yaml")


def every_file() -> dict[str, Any]:
    """openstacksdk's own places, with the working directory."""
    return {
        "config_files": loader.CONFIG_FILES,
        "secure_files": loader.SECURE_FILES,
        "vendor_files": loader.VENDOR_FILES,
    }


def connected(directory: Path, monkeypatch: pytest.MonkeyPatch, cloud: str | None, **variables: str) -> None:
    made: list[Any] = []
    monkeypatch.setattr(openstack.connection, "Connection", lambda config: made.append(config.get_auth_args()))
    for name in FILES:
        (directory / name).write_text(EVIL, encoding="utf-8")
    # openstacksdk takes the working directory when it is imported.
    monkeypatch.setattr(loader, "CONFIG_SEARCH_PATH", [str(directory), *loader.CONFIG_SEARCH_PATH[1:]])
    for constant in ("CONFIG_FILES", "SECURE_FILES", "VENDOR_FILES"):
        elsewhere = [path for path in getattr(loader, constant) if Path(path).parent != Path.cwd()]
        here = [str(directory / name) for name in FILES]
        monkeypatch.setattr(loader, constant, [*here, *elsewhere])
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_CACHE_HOME"):
        monkeypatch.setenv(name, str(directory / "home"))
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(directory)
    try:
        with warnings.catch_warnings(action="ignore"):  # openstacksdk's about InfluxDB
            session.connect(cloud)
    except (CloudError, AttributeError):  # the stand-in is no connection
        pass
    assert "evil" not in str(made)


def nested(value: str, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = directory / "clouds.yaml"
    for kind in ("CONFIG", "SECURE"):
        path.write_text(f"clouds: {value}\n", encoding="utf-8")
        with monkeypatch.context() as context:
            context.setenv(f"OS_CLIENT_{kind}_FILE", str(path))
            with pytest.raises(CloudError, match=f"can't be used: {path}: line \\d+: .*(more than|contains it)"):
                session.connect("c")


GROWING = ["&a0 [x]", *(f"&a{number} [{', '.join([f'*a{number - 1}'] * 9)}]" for number in range(1, 9))]


test_an_attack_fails, test_an_attack_works_without_the_check = attacked(
    {
        "named": lambda directory, monkeypatch: connected(directory, monkeypatch, "prod"),
        "variable": lambda directory, monkeypatch: connected(directory, monkeypatch, None, OS_CLOUD="prod"),
        "only one": lambda directory, monkeypatch: connected(directory, monkeypatch, None),
        "a number": lambda directory, monkeypatch: nested(f"{{c: {'1:' * 5000}1}}", directory, monkeypatch),
        "aliases": lambda directory, monkeypatch: nested(f"[{', '.join(GROWING)}]", directory, monkeypatch),
        "levels": lambda directory, monkeypatch: nested("[\n" * 2_000, directory, monkeypatch),
        "within itself": lambda directory, monkeypatch: nested("&a {c: *a}", directory, monkeypatch),
    },
    {
        "gpustack.cloud.session:connect": {"gpustack.cloud.config_files:locations": every_file},
        "gpustack.base.limited_yaml:check_limits": {"gpustack.base.limited_yaml:check_limits": lambda _text: None},
    },
)
