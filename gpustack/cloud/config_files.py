"""The files of openstacksdk's configuration: those that count, within limits."""

import os
from pathlib import Path
from typing import Any

from gpustack.base.files import read_text


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
