"""What the playbooks' action plugins call on the controller: the spec and a host's facts in, plain data out.

The roles carry out what comes back and decide nothing themselves, so ``gpustack host plan`` and the playbooks
can't disagree.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpustack.errors import SpecError
from gpustack.findings import errors
from gpustack.operations import RemoveFile, RunCommand, WriteFile

if TYPE_CHECKING:
    from gpustack.facts.model import Host
    from gpustack.spec.model import Spec


def plan(spec_path: str, facts: Mapping[str, Any], hostname: str) -> dict[str, Any]:
    """Plan a host.

    :param spec_path: the spec; a relative path starts from the current directory.
    :param facts: what the collector printed on the host.
    :param hostname: the name that the spec knows the host by; it takes the place of the one in ``facts``.
    :returns: ``text`` to show; ``write``, ``remove``, ``commands`` and ``reboot`` to carry out, and
        ``todo`` whether there is any of it; ``plan`` as
        ``gpustack host plan -f json`` prints it; and ``failed`` with ``msg`` when the plan refuses.
    :raises gpustack.errors.GpustackError: when the spec or the facts can't be used.
    """
    from gpustack.host.plan import plan_host
    from gpustack.host.show import show_plan

    planned = plan_host(_spec(spec_path), _host(facts, hostname))
    operations = planned.operations
    outcome: dict[str, Any] = {
        "text": show_plan(planned),
        "plan": planned.to_dict(),
        "write": [
            {"path": o.path, "content": o.content, "mode": o.mode} for o in operations if isinstance(o, WriteFile)
        ],
        "remove": [o.path for o in operations if isinstance(o, RemoveFile)],
        "commands": [{"argv": list(o.argv), "why": o.why} for o in operations if isinstance(o, RunCommand)],
        "reboot": list(planned.reboot),
        "todo": bool(operations or planned.reboot),
    }
    if planned.refused:
        against = "\n".join(str(f) for f in errors(planned.findings))
        outcome |= {"failed": True, "msg": f"the plan for {hostname} refuses, and nothing was changed:\n{against}"}
    return outcome


def verify(
    spec_path: str, facts: Mapping[str, Any], initramfs: Mapping[str, Any] | None, hostname: str
) -> dict[str, Any]:
    """Verify a host that runs.

    :param initramfs: what is in each kernel's image, by kernel release; None when the images were not read.
    :returns: ``text`` to show, ``verification`` as plain data, and ``failed`` with ``msg`` when it does not hold.
    :raises gpustack.errors.GpustackError: when the spec or the facts can't be used.
    """
    from gpustack.host.show import show_verification
    from gpustack.host.verify import verify_host

    verified = verify_host(_spec(spec_path), _host(facts, hostname), initramfs)
    outcome: dict[str, Any] = {"text": show_verification(verified), "verification": verified.to_dict()}
    against = errors(verified.findings)
    if against:
        said = "\n".join(str(f) for f in against)
        outcome |= {"failed": True, "msg": f"{hostname} is not ready for guests:\n{said}"}
    return outcome


def _spec(path: str) -> Spec:
    from gpustack.spec.load import load_spec

    place = Path.cwd() / Path(path).expanduser()
    if not place.is_file():
        raise SpecError(
            "there is no such file",
            where=str(place),
            remedy="give the spec with -e gpustack_spec=PATH; a relative path starts from the current directory",
        )
    return load_spec(place)


def _host(facts: Mapping[str, Any], hostname: str) -> Host:
    from gpustack.facts.store import parse_host

    return parse_host({**facts, "hostname": hostname}, hostname)
