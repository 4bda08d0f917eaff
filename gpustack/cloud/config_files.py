"""The files of openstacksdk's configuration: those that count, within limits."""

import contextlib
import logging
import os
from pathlib import Path
from typing import Any

from gpustack.base.errors import CloudError
from gpustack.base.files import read_text

MISFIT = (OSError, AttributeError, TypeError, ValueError, LookupError, RecursionError, ArithmeticError)
"""Raised for a clouds.yaml with values of wrong types, or nested deeply."""


def _reworded(record: logging.LogRecord) -> bool:
    """Take parts of passwords out of openstacksdk's warning about a file that it skips."""
    from gpustack.base.limited_yaml import reason

    if isinstance(record.args, tuple):
        record.args = tuple(reason(value) if isinstance(value, Exception) else value for value in record.args)
    return True


logging.getLogger("openstack.config").addFilter(_reworded)


def locations() -> dict[str, Any]:
    """openstacksdk's default locations without the current directory (``openstack/config/loader.py``)."""
    from openstack.config import loader

    working_directory, *search_path = loader.CONFIG_SEARCH_PATH
    omitted = {working_directory} - {*search_path}
    files = {name: getattr(loader, name.upper()) for name in ("config_files", "secure_files", "vendor_files")}
    return {name: [file for file in of if str(Path(file).parent) not in omitted] for name, of in files.items()}


def checked_locations() -> dict[str, Any]:
    """The locations, if openstacksdk can load the files within the limits of YAML.

    :raises ValueError: with the file, the line and the limit.
    """
    from gpustack.base.limited_yaml import YamlLimitError, check_limits

    named = (os.environ.get(f"OS_CLIENT_{kind}_FILE") for kind in ("CONFIG", "SECURE"))
    places = locations()
    for path in filter(None, (*named, *(file for files in places.values() for file in files))):
        try:
            check_limits(read_text(Path(path)))
        except (FileNotFoundError, NotADirectoryError, PermissionError, UnicodeDecodeError):
            continue  # openstacksdk, too
        except YamlLimitError as error:
            raise ValueError(f"{path}: {error}") from error
    return places


def cloud_names() -> list[str]:
    """The names of the clouds in ``clouds.yaml`` that :func:`gpustack.cloud.session.connect` accepts.

    :raises CloudError: when the file can't be read.
    """
    import openstack.config
    import openstack.exceptions
    import yaml

    from gpustack.base.limited_yaml import reason

    try:
        places = checked_locations()
        config = openstack.config.OpenStackConfig(**places)
        named = (os.environ.get("OS_CLIENT_CONFIG_FILE") or "", *places["config_files"])
        if not config.config_filename and (skipped := [path for path in named if os.access(path, os.R_OK)]):
            raise ValueError(f"{skipped[0]} is neither YAML nor JSON")
        return sorted(map(str, config.get_cloud_names())) if config.config_filename else []
    except (openstack.exceptions.ConfigException, yaml.YAMLError, *MISFIT) as error:
        raise CloudError(f"clouds.yaml can't be used: {reason(error)}", remedy="correct the file") from error


def searched() -> str:
    """The directories that are searched for clouds.yaml, and the clouds that are there."""
    named = os.environ.get("OS_CLIENT_CONFIG_FILE")
    places = dict.fromkeys(str(Path(file).parent) for file in locations()["config_files"])
    with contextlib.suppress(CloudError):
        names = ", ".join(cloud_names()) or "none"
        return f"clouds found: {names} (searched: {', '.join(filter(None, (named, *places)))})"
    return "clouds.yaml can't be read"


def region_of(config: Any, regions: frozenset[str]) -> str:  # noqa: ANN401 - of openstacksdk
    """The region of all requests: the configured one, or the only one of the catalogue.

    The catalogue lists the endpoints of each service in an order of its own: without a region, Nova can be that of one
    region and Placement that of another.

    :param regions: in which the catalogue has Nova.
    :raises CloudError: if there are several, and none is configured.
    """
    configured = str(config.get_region_name() or "")
    if len(regions) > 1 and not configured:
        what = f"Nova has several regions ({', '.join(sorted(regions))}), and none of them is chosen"
        remedy = "set region_name of the cloud in clouds.yaml; without clouds.yaml, set OS_REGION_NAME"
        raise CloudError(f"{what}; nothing was read or changed", remedy=remedy)
    return configured or "".join(regions)
