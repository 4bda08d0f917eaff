"""The state of a run in Nova: the reason of a disabled service."""

from datetime import datetime

from gpustack.cloud.compute import Service

_OURS = "gpustack:"
_LONGEST = 255


def reason(host: str, why: str, now: datetime) -> str:
    """Return the reason to write to a disabled service.

    :param why: the reason for the reboot.
    """
    return _reason(f"{host} is rebooted: {why}", now)


def reason_of_failure(host: str, why: str, now: datetime) -> str:
    """Return the reason to write to a service that stays disabled after a failed run.

    :param why: the error of the run.
    """
    return _reason(f"{host} has failed: {' '.join(why.split())}", now)


def _reason(text: str, now: datetime) -> str:
    """Format a reason so that :func:`disabled_here` recognizes it; Nova accepts 255 characters."""
    end = f" (since {now:%Y-%m-%dT%H:%M:%SZ})"
    return f"{_OURS} {text}"[: _LONGEST - len(end)] + end


def disabled_here(service: Service | None) -> bool:
    """Whether gpustack disabled the service, and nobody has disabled it for another reason since."""
    return service is not None and not service.enabled and service.reason.startswith(_OURS)
