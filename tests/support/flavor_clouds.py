"""An embedded cloud whose requests go through a proxy, for the tests of flavors and the benchmark."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml

from gpustack_demo.embedded.cloud import EmbeddedCloud as EmbeddedCloud
from support.proxy import Traffic, proxy

if TYPE_CHECKING:
    from openstack.connection import Connection


@dataclass
class Proxied:
    """A cloud, and the traffic to it."""

    cloud: EmbeddedCloud
    traffic: Traffic
    clouds_yaml: Path

    def variables(self) -> dict[str, str]:
        """The environment in which clients use the proxies."""
        return {**self.cloud.variables(), "OS_CLIENT_CONFIG_FILE": str(self.clouds_yaml)}

    def connection(self) -> Connection:
        import openstack.connection
        from openstack.config import loader

        config = loader.OpenStackConfig(
            config_files=[str(self.clouds_yaml)], secure_files=[], vendor_files=[], load_envvars=False
        )
        return openstack.connection.Connection(config=config.get_one(cloud="embedded"))


@contextlib.contextmanager
def proxied(release: str, directory: Path) -> Iterator[Proxied]:
    """Start a cloud with proxies in front of Keystone and Nova.

    :param directory: for the clouds.yaml with the proxies' addresses.
    """
    traffic = Traffic()
    with (
        EmbeddedCloud(release) as cloud,
        proxy(cloud.ports["identity"], traffic) as identity,
        proxy(cloud.ports["compute"], traffic) as compute,
    ):
        urls = {"identity": f"http://127.0.0.1:{identity}/v3", "compute": f"http://127.0.0.1:{compute}/v2.1"}
        with cloud.connection() as connection:
            kinds = {service["id"]: service["type"] for service in _get(connection, "/services")["services"]}
            for endpoint in _get(connection, "/endpoints")["endpoints"]:
                url = urls.get(kinds[endpoint["service_id"]])
                if url is not None and endpoint["interface"] == "public":  # Nova itself connects to Keystone directly
                    body = {"endpoint": {"url": url}}
                    assert connection.identity.patch(f"/endpoints/{endpoint['id']}", json=body).ok
        content: dict[str, Any] = yaml.safe_load(cloud.clouds_yaml.read_text())
        content["clouds"]["embedded"]["auth"]["auth_url"] = urls["identity"]
        path = directory / "clouds.yaml"
        path.write_text(yaml.safe_dump(content))
        path.chmod(0o600)
        yield Proxied(cloud=cloud, traffic=traffic, clouds_yaml=path)


def _get(connection: Connection, path: str) -> dict[str, Any]:
    content: dict[str, Any] = connection.identity.get(path).json()
    return content
