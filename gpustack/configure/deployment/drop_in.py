"""Drop-ins for ``/etc/nova/nova.conf.d`` and for Placement: services from packages or from source."""

from collections.abc import Iterator, Sequence

from gpustack.configure import providers
from gpustack.configure.rendered import Job, RenderedFile, Tool, template
from gpustack.configure.sections import CONTROL as CONTROL_SERVICES
from gpustack.configure.sections import ConfigSection
from gpustack.configure.sources import PLACEMENT
from gpustack.nova_options.markers import CONTROL, DROP_IN, MARK

DIRECTORY = "/etc/nova/nova.conf.d"
PLACEMENT_DIRECTORY = "/etc/placement/placement.conf.d"


def files(job: Job, names: Sequence[str]) -> Iterator[RenderedFile]:
    """One file for each compute host, one for those without GPUs, and one for the hosts of the other services."""
    control = tuple(service for service in CONTROL_SERVICES if service in job.services)
    if job.together:
        for name in names:
            yield _file(job, name, job.services, name)
            yield from _of_markers(job, name)
            yield from _of_placement(job, name)
        return
    yield from _of_placement(job, CONTROL)
    if control:
        yield _file(job, CONTROL, control, None)
    if "compute" in job.services:
        if job.everywhere:
            yield _file(job, "compute", ("compute",), None)
        for name in names:
            yield _file(job, name, ("compute",), name)
            yield from _of_markers(job, name)


def _file(job: Job, target: str, services: tuple[str, ...], host: str | None) -> RenderedFile:
    text = _text(job, "nova.conf", job.sections(services, host))
    return RenderedFile(target=target, path=f"{job.directory}/{DROP_IN}", text=text, services=services)


def _of_placement(job: Job, target: str) -> Iterator[RenderedFile]:
    if rendered := job.of_placement():
        text = _text(job, "placement.conf", rendered)
        yield RenderedFile(target=target, path=f"{PLACEMENT_DIRECTORY}/{DROP_IN}", text=text, services=(PLACEMENT,))


def _of_markers(job: Job, host: str) -> Iterator[RenderedFile]:
    text = job.provider_text(host) if "compute" in job.services else None
    if text is not None:
        yield RenderedFile(target=host, path=providers.PATH, text=text, services=("compute",))


def _text(job: Job, file: str, rendered: Sequence[ConfigSection]) -> str:
    return template("drop-in.conf.j2").render(mark=MARK, release=job.wanted.release, sections=rendered, file=file)


def _places(below: str) -> tuple[str, ...]:
    return (f"*/{below}/{DROP_IN}", f"*{PLACEMENT_DIRECTORY}/{DROP_IN}", f"*{providers.PATH}")


TOOL = Tool(directory=DIRECTORY, files=files, places=_places, own_file=DROP_IN)
