"""The data that the processes of an embedded cloud exchange as JSON: descriptions of services, results of verbs."""

from __future__ import annotations

from typing import Any, TypedDict


class MdevType(TypedDict):
    """A type of mediated devices that the driver of a card creates, and the largest number of them."""

    id: str
    name: str
    instances: int


class DeviceDescription(TypedDict):
    """One PCI function of a host; the keys are the fields of ``EmbeddedDevice``."""

    address: str
    vendor: str
    product: str
    driver: str | None
    iommu_group: int | None
    numa_node: int | None
    sriov_totalvfs: int | None
    physical_function: str | None
    virtual_functions: list[str]
    class_: str | None
    mdev_types: list[MdevType]


class _Replaced(TypedDict, total=False):
    compute_id: str
    """The UUID of the compute node after the host was reinstalled."""


class HostDescription(_Replaced):
    """One compute host; the keys are the fields of ``EmbeddedHost``, ``config`` with the paths of files."""

    name: str
    pci: list[DeviceDescription]
    config: list[str] | None
    cell: str
    numa_nodes: int
    sockets: int
    cpus_per_node: int
    memory_mib: int
    node: str | None


class NovaDescription(TypedDict):
    """All of Nova.

    ``*_config`` are the files of a service in reading order; None for those of the API. ``cells`` maps names to the
    URLs of databases, ``ports`` has ``compute``, ``placement``, ``image`` and ``control``. The file ``ready`` is
    created when everything runs. ``neutron``: whether a real Neutron is in the catalog.
    """

    api_config: list[str]
    scheduler_config: list[str] | None
    conductor_config: list[str] | None
    cells: dict[str, str]
    policy: dict[str, str]
    keystone: bool
    neutron: bool
    debug: bool
    ports: dict[str, int]
    token: str
    ready: str
    hosts: list[HostDescription]


class KeystoneDescription(TypedDict):
    """Keystone: its configuration file, the password of ``admin``, the URLs of service types.

    ``endpoints``: the ids of public endpoints by service type, if they must be known. ``empty``: whether its database
    lacks the schema.
    """

    config: str
    port: int
    password: str
    catalog: dict[str, str]
    endpoints: dict[str, str]
    empty: bool


class ApplicationDescription(TypedDict):
    """One WSGI application: the first of ``applications`` (module, attribute, whether it is a factory) that exists."""

    environment: dict[str, str]
    arguments: list[str]
    applications: list[tuple[str, str, bool]]
    port: int


class FaultState(TypedDict):
    """A fault of a nova-compute: the number of hits and of hanging threads."""

    step: str
    hits: int
    waiting: int


class Domain(TypedDict):
    """The hypervisor's record of a guest; ``hostdevs`` has the addresses of its devices."""

    uuid: str
    name: str
    state: str
    hostdevs: list[str]


class Mediated(TypedDict):
    """A mediated device; ``parent`` is libvirt's name of its card, ``users`` has the UUIDs of its domains."""

    uuid: str
    type: str
    parent: str
    users: list[str]


class TrackerState(TypedDict):
    """The PCI tracker of a nova-compute in memory: its devices, and the pools of the free ones (Nova's own keys)."""

    devices: list[dict[str, Any]]
    pools: list[dict[str, Any]]
