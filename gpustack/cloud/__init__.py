"""The client of OpenStack's APIs."""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from openstack.connection import Connection as Connection
else:
    Connection = Any  # loading openstacksdk takes long: gpustack.cloud.session does it when it signs in
