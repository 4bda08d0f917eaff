"""The kinds of deployment: the tool that writes Nova's configuration. No other module lists them."""

from typing import Literal

Deployment = Literal["drop-in", "kolla", "kayobe", "openstack-ansible", "rhoso", "openstack-helm"]
