"""The microversions of Nova's and Placement's APIs that requests use: each is the first with the feature it names."""

from typing import NamedTuple


class Microversion(NamedTuple):
    """A microversion of an API.

    :ivar release: the first release of OpenStack that has it, for messages.
    """

    number: str
    release: str

    @property
    def parts(self) -> tuple[int, ...]:
        """Its numbers, for comparisons."""
        return tuple(map(int, self.number.split(".")))


FORCED_DOWN = Microversion("2.11", "Liberty")
"""Lists services that an operator forced down; their state is ``down`` too."""
EMBEDDED_FLAVOR = Microversion("2.47", "Pike")
"""Instances have their flavor with its extra specs."""
UUIDS = Microversion("2.53", "Pike")
"""Services and hypervisors have uuids, aggregates too (2.41). Hypervisors after 2.87 lack their free resources."""
ACTION_TIMES = Microversion("2.58", "Queens")
"""The actions of an instance have the time of their last event."""
MIGRATION_UUIDS = Microversion("2.59", "Queens")
"""Migrations have their uuid, which is their consumer in Placement."""
FLAVOR_SPECS = Microversion("2.61", "Rocky")
"""The listing of flavors includes extra specs. Later ones remove parts of the API (2.102)."""
GROUP_RULES = Microversion("2.64", "Rocky")
"""Server groups have one policy, with its rules."""
SILENT_CELLS = Microversion("2.69", "Stein")
"""Lists instances and services of a cell that does not answer, with the status UNKNOWN."""
SERVER_GROUPS = Microversion("2.71", "Stein")
"""Instances have the ids of their server groups."""
ACTION_ERRORS = Microversion("2.84", "Ussuri")
"""The events of an action have their error."""
VALIDATED_SPECS = Microversion("2.86", "Ussuri")
"""Nova validates names and values of extra specs."""
PINNED_ZONE = Microversion("2.96", "2024.1")
"""Instances have the availability zone that was requested."""
IMAGE_PROPERTIES = Microversion("2.98", "2025.1")
"""Instances have the properties of their image."""
HINTS = Microversion("2.100", "2025.1")
"""Instances have their scheduler hints."""

PROJECT_USAGES = Microversion("1.9", "Pike")
"""The use of a project."""
PROVIDERS = Microversion("1.18", "Rocky")
"""Lists providers by required traits, with the root of their tree (1.14); earlier ones have all other requests."""
RESERVED = Microversion("1.26", "Rocky")
"""``reserved`` of an inventory may equal ``total``."""
CONSUMERS = Microversion("1.28", "Rocky")
"""Consumers have generations, and a PUT accepts no allocations."""
CANDIDATES = Microversion("1.31", "Stein")
"""``in_tree`` for allocation candidates; their summaries have the complete trees (1.29)."""
