"""Run ``gpustack gpu …`` against a cloud in this process, and count the requests."""

from __future__ import annotations

import contextlib
import io
import json
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock
from urllib.parse import urlsplit

import yaml

from gpustack.cli.app import main
from support.cloudworld import Ran, World
from support.proxy import Traffic, proxy


def run(clouds_yaml: Path, *arguments: str) -> Ran:
    """Run a command of the group ``gpu``."""
    return execute(clouds_yaml, "gpu", *arguments)


def execute(clouds_yaml: Path, *arguments: str) -> Ran:
    """Run a command; ``OS_CLOUD`` names the cloud of the file."""
    variables = {"OS_CLIENT_CONFIG_FILE": str(clouds_yaml), "OS_CLOUD": "embedded"}
    out, err = io.StringIO(), io.StringIO()
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, variables))
        stack.enter_context(warnings.catch_warnings(action="ignore"))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        code = main([*arguments])
    return Ran(code, out.getvalue(), err.getvalue())


def listed(world: World, *arguments: str, code: int = 0) -> tuple[list[dict[str, Any]], str]:
    """The GPUs of the hosts of this test, and the messages."""
    scope = [argument for host in world.used for argument in ("--host", host)]
    ran = run(world.nova.clouds_yaml, "list", "-f", "json", *scope, *arguments)
    assert ran.code == code, ran
    return json.loads(ran.out), ran.err


def states(gpus: list[dict[str, Any]]) -> dict[tuple[str, str], str]:
    """The states by host and address."""
    return {(gpu["host"], gpu["address"]): gpu["state"] for gpu in gpus}


def changed(world: World, path: Path, **entry: Any) -> Path:
    """A clouds.yaml with other values for the cloud."""
    content = yaml.safe_load(world.nova.clouds_yaml.read_text(encoding="utf-8"))
    content["clouds"]["embedded"].update(entry)
    path.write_text(yaml.safe_dump(content), encoding="utf-8")
    return path


@contextlib.contextmanager
def counted(world: World, path: Path) -> Iterator[tuple[Path, Traffic]]:
    """A clouds.yaml whose requests go through proxies that count them. For clouds without Keystone."""
    traffic = Traffic()
    cloud = yaml.safe_load(world.nova.clouds_yaml.read_text(encoding="utf-8"))["clouds"]["embedded"]
    overrides = {}
    with contextlib.ExitStack() as stack:
        for kind in ("compute", "placement"):
            url = urlsplit(cloud[f"{kind}_endpoint_override"])
            assert url.port
            port = stack.enter_context(proxy(url.port, traffic))
            overrides[f"{kind}_endpoint_override"] = f"http://127.0.0.1:{port}{url.path}"
        yield changed(world, path, **overrides), traffic


def questions(traffic: Traffic) -> list[str]:
    """The requests without those that only find out the versions of a service."""
    return [line for line in traffic.requests if not re.fullmatch(r"GET /(v2(\.\d)?/?)?", line)]
