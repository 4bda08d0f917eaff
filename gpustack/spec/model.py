"""The schema of ``gpustack.yaml``, version 1.

The JSON schema that editors use and the reference in the docs are generated from these classes: a field's
description here is its documentation.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from gpustack.pci.address import Address

Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,63}$")]
Pattern = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_*?][A-Za-z0-9_.*?:\[\]-]{0,253}$")]
Hex4 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}$", to_lower=True)]


class _Spec(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class Match(_Spec):
    """Which functions are of a model: all that is given must fit."""

    vendor: Hex4
    """PCI vendor id, four hexadecimal digits in quotes (``"10de"`` is NVIDIA)."""
    product: Hex4
    """PCI product (device) id, four hexadecimal digits in quotes."""
    subsystem_vendor: Hex4 | None = None
    """PCI subsystem vendor id, where makers of the same chip must be told apart."""
    subsystem_product: Hex4 | None = None
    """PCI subsystem id, where boards of the same chip must be told apart."""
    pci_class: Annotated[
        str | None, StringConstraints(pattern=r"^[0-9a-f]{4}$", to_lower=True), Field(alias="class")
    ] = None
    """Base class and subclass, four hexadecimal digits (``"0302"`` is a 3D controller)."""
    addresses: tuple[str, ...] = ()
    """Only the cards at these BDF addresses (``0000:88:00.0``); on every host when empty."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, use_attribute_docstrings=True)


class NvSwitch(enum.StrEnum):
    """What becomes of a host's NVSwitches."""

    FULL = "full"
    """All GPUs and all NVSwitches of the host go to one guest: the switches are bound too."""
    SHARED = "shared"
    """A service guest manages the fabric for the others: the switches are bound too."""
    ISOLATED = "isolated"
    """Every GPU works alone, without NVLink: the switches stay with the host."""


class Options(_Spec):
    """How hosts are prepared."""

    iommu_pt: bool = True
    """Add ``iommu=pt``: the host's own devices bypass DMA translation, for speed. Guests are isolated all the same."""
    allow_unsafe_interrupts: bool = False
    """Add ``vfio_iommu_type1.allow_unsafe_interrupts=1``, for machines without interrupt remapping. A guest can then inject interrupts into the host: only for guests that are trusted."""
    nvswitch: NvSwitch | None = None
    """What becomes of NVSwitches; must be said for hosts that have them."""
    blacklist_host_drivers: bool = True
    """Blacklist the cards' host drivers where no other device of the host uses them."""


class Model(_Spec):
    """A kind of GPU."""

    match: Match
    """Which functions are of this model."""
    driver: Literal["vfio-pci", "pci-stub"] = "vfio-pci"
    """The driver that holds the card for guests."""


class HostEntry(_Spec):
    """Hosts of one pattern, in long form."""

    models: Annotated[tuple[Name, ...], Field(min_length=1)]
    """The models whose cards these hosts give to guests."""
    options: Options | None = None
    """Options of these hosts, in place of the spec's."""


class Spec(_Spec):
    """The whole of ``gpustack.yaml``."""

    version: Literal[1]
    """The version of this format; always 1."""
    models: Annotated[Mapping[Name, Model], Field(min_length=1)]
    """The kinds of GPU, by a name of the operator's choice."""
    hosts: Annotated[Mapping[Pattern, tuple[Name, ...] | HostEntry], Field(min_length=1)]
    """Host patterns as Ansible writes ranges (``gpu-[01:16].example.org``) with ``*`` and ``?``, and their models."""
    options: Options = Options()
    """Options of all hosts."""
