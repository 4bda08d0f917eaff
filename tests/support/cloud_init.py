"""The four stages of real cloud-init in a directory, as any user: Debian's package with its paths redirected.

Its modules are those that concern vendor data; others would change the machine on which the tests run.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import yaml

from gpustack_demo.embedded.releases import cache_dir

FLAVOR = "g1.a100.2"
_STAGES = (["init", "--local"], ["init"], ["modules", "--mode=config"], ["modules", "--mode=final"])
_INSTALLED = "/usr/lib/python3/dist-packages"
_PACKAGES = ("cloud-init", "python3-configobj", "python3-six")
# cloud-init names the directories of its status and its temporary files in constants, too.
_PROGRAM = """\
import inspect, sys
installed, run, config = sys.argv[1:4]
sys.path.append(installed)
from cloudinit import settings, temp_utils
settings.CLOUD_CONFIG, settings.RUN_CLOUD_CONFIG = config, run + "/cloud.cfg"
temp_utils._ROOT_TMPDIR = run + "/tmp"
from cloudinit.cmd import main
if "link_d" in inspect.signature(main.status_wrapper).parameters:
    main.status_wrapper.__defaults__ = (None, run)
sys.exit(main.main(["cloud-init", *sys.argv[4:]]))
"""


def paths() -> list[Path]:
    """The directories of the unpacked packages; a package may be installed instead."""
    directories = [cache_dir() / "unpacked" / name / "usr/lib/python3/dist-packages" for name in _PACKAGES]
    return [path for path in directories if path.is_dir()]


def is_present() -> bool:
    """Whether cloud-init is unpacked or installed."""
    return any((path / "cloudinit").is_dir() for path in (*paths(), Path(_INSTALLED)))


def config_drive(drive: Path, vendor_data: object, user_data: object, flavor: str) -> None:
    """Write a config drive in Nova's layout.

    :param vendor_data: the content of Nova's ``vendor_data.json``.
    :param user_data: the user's cloud-config.
    :param flavor: the instance's flavor.
    """
    metadata = {"uuid": "6c1d2c6a-93d5-4a3e-a3f3-0f8d7e2d2b5f", "name": "vm", "hostname": "vm", "launch_index": 0}
    files = {
        "openstack/latest/meta_data.json": json.dumps(metadata),
        "openstack/latest/vendor_data.json": json.dumps(vendor_data),
        "openstack/latest/user_data": f"#cloud-config\n{yaml.safe_dump(user_data)}",
        "ec2/latest/meta-data.json": json.dumps({"instance-id": "i-00000001", "instance-type": flavor}),
    }
    for name, text in files.items():
        path = drive / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def boot(root: Path, vendor_data: object, user_data: object, environment: Mapping[str, str]) -> str:
    """Boot an instance for the first time: run the stages with a config drive; the log.

    :param root: the instance's root.
    :param vendor_data: the content of Nova's ``vendor_data.json``.
    :param user_data: the user's cloud-config.
    """
    cloud, run = root / "var/lib/cloud", root / "run/cloud-init"
    config_drive(cloud / "seed/config_drive", vendor_data, user_data, FLAVOR)
    run.mkdir(parents=True, exist_ok=True)
    log = root / "cloud-init.log"
    config = root / "cloud.cfg"
    config.write_text(yaml.safe_dump(_config(cloud, run, log)))
    variables = {**os.environ, **environment, "PYTHONPATH": ":".join(map(str, paths())), "CLOUD_CFG": str(config)}
    for stage in _STAGES:
        command = [sys.executable, "-c", _PROGRAM, _INSTALLED, str(run), str(config), *stage]
        ran = subprocess.run(command, env=variables, capture_output=True, text=True, check=False, timeout=300, cwd=root)
        if ran.returncode != 0:
            raise AssertionError(f"{stage}: {ran.stdout}\n{ran.stderr}\n{log.read_text() if log.exists() else ''}")
    return log.read_text()


def _config(cloud: Path, run: Path, log: Path) -> dict[str, object]:
    return {
        "datasource_list": ["ConfigDrive"],
        "network": {"config": "disabled"},
        "def_log_file": str(log),
        "syslog_fix_perms": None,
        "log_cfgs": [_LOGGING.format(log)],
        "system_info": {"distro": "debian", "paths": {"cloud_dir": str(cloud), "run_dir": str(run)}},
        "cloud_init_modules": ["write_files"],
        "cloud_config_modules": ["runcmd"],
        "cloud_final_modules": ["scripts_vendor", "scripts_user"],
    }


_LOGGING = """\
[loggers]
keys=root
[handlers]
keys=file
[formatters]
keys=plain
[logger_root]
level=DEBUG
handlers=file
[handler_file]
class=FileHandler
formatter=plain
args=('{}', 'a', 'UTF-8')
[formatter_plain]
format=%(filename)s[%(levelname)s]: %(message)s
"""
