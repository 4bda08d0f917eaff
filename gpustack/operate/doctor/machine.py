"""Check Python, the packages that gpustack requires, and Ansible."""

import importlib.metadata
import os
import platform
from collections.abc import Iterator
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from gpustack import __version__
from gpustack.base.errors import GpustackError
from gpustack.connect.playbooks.run import ansible_version, configuration
from gpustack.operate.doctor.check import Check, failed, ok, warning

DISTRIBUTION = "nova-gpustack"
_INSTALL = f"pip install --upgrade {DISTRIBUTION}"


def checks() -> Iterator[Check]:
    """The versions of gpustack, Python and the packages, and whether Ansible starts."""
    yield itself()
    try:
        metadata = importlib.metadata.metadata(DISTRIBUTION)
    except importlib.metadata.PackageNotFoundError:
        yield warning("Python packages", f"{DISTRIBUTION} is not installed in this environment", _INSTALL)
    else:
        yield python(metadata["Requires-Python"] or "")
        yield packages(metadata.get_all("Requires-Dist") or [])
    yield ansible()


def itself() -> Check:
    """Whether the environment lacks the distribution ``gpustack``, whose files replace those of the same name."""
    for other in importlib.metadata.distributions(name="gpustack"):
        problem = (
            f"{__version__}, beside the distribution gpustack {other.version}, another project with the same package"
        )
        remedy = f"install both in environments of their own: python3 -m venv DIRECTORY && DIRECTORY/bin/{_INSTALL}"
        return failed("gpustack", GpustackError(problem, remedy=remedy))
    return ok("gpustack", __version__)


def python(expected: str) -> Check:
    """Whether gpustack supports this Python."""
    version = platform.python_version()
    if SpecifierSet(expected).contains(version, prereleases=True):
        return ok("Python", version)
    problem = f"Python {version} is not supported, expected {expected}"
    return failed("Python", GpustackError(problem, remedy="install gpustack with a supported Python"))


def packages(requirements: list[str]) -> Check:
    """Whether the required packages are installed, in supported versions."""
    problems, number = [], 0
    for text in requirements:
        try:
            requirement = Requirement(text)
        except InvalidRequirement:
            continue
        if requirement.marker and not requirement.marker.evaluate({"extra": ""}):
            continue
        number += 1
        try:
            version = importlib.metadata.version(requirement.name)
        except importlib.metadata.PackageNotFoundError:
            problems.append(f"{requirement.name} is missing")
            continue
        if not requirement.specifier.contains(version, prereleases=True):
            problems.append(f"{requirement.name} is {version}, expected {requirement.specifier}")
    if problems:
        return failed("Python packages", GpustackError("; ".join(problems), remedy=_INSTALL))
    return ok("Python packages", f"{number} of {number} in supported versions")


def ansible() -> Check:
    """Whether Ansible starts with the configuration that ``gpustack host apply`` uses."""
    try:
        version = ansible_version()
    except GpustackError as error:
        return failed("Ansible", error)
    return ok("Ansible", "; ".join([version, *configuration(os.environ, Path.cwd()).lines()]))
