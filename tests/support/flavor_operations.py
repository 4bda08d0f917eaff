"""Operations on flavors in tests, by what they change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from gpustack.cloud.flavors import Sizes
from gpustack.offer.flavor.flavors import ACCESS, PresentFlavor
from gpustack.offer.flavor.operations import ChangeFlavor

PLAIN = PresentFlavor(id="1", name="g", sizes=Sizes(vcpus=1, ram=1, disk=1))


def changed(
    before: PresentFlavor = PLAIN,
    set_specs: Mapping[str, str] | None = None,
    unset_specs: Collection[str] = (),
    *,
    description: str | None = None,
    grant: Collection[str] = (),
    revoke: Collection[str] = (),
    mark: str | None = None,
) -> ChangeFlavor:
    """The change of a flavor.

    :param description: the new one; None keeps it.
    :param mark: the new access mark; None keeps it.
    """
    new = {**(set_specs or {}), **({} if mark is None else {ACCESS: mark})}
    kept = {key: value for key, value in before.extra_specs.items() if key not in unset_specs}
    projects = frozenset(before.access or ())
    known = replace(before, access=(projects | {*revoke}) - {*grant})
    after = replace(
        known,
        description=before.description if description is None else description,
        extra_specs={**new, **kept, **new},
        access=(projects | {*grant}) - {*revoke},
    )
    return ChangeFlavor(why="w", before=known, flavor=after)
