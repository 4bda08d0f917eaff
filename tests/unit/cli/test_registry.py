"""The names of commands in both programs."""

from gpustack.cli.registry import command_class, gpustack_name, typed
from gpustack.cli.scan import ScanCommand


def test_openstack_has_other_names() -> None:
    assert gpustack_name("gpu flavor plan") == "flavor plan"
    assert gpustack_name("gpu disable") == "gpu disable"
    assert typed("flavor apply", "my cloud", openstack=True) == "openstack --os-cloud 'my cloud' gpu flavor apply"
    assert typed("gpu show", None, openstack=True) == "openstack gpu show"
    assert typed("explain", "x", openstack=True) == "gpustack explain"
    assert typed("gpu show", None, openstack=False) == "gpustack gpu show"


def test_a_command_is_found_by_its_name() -> None:
    assert command_class("scan") is ScanCommand
