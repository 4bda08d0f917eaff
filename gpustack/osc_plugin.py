"""The plug-in of the ``openstack`` command: ``openstack gpu flavor …`` runs the commands of ``gpustack flavor …``.

Every call of ``openstack`` imports this module, so it imports nothing.
"""

API_NAME = "gpu"
API_VERSION_OPTION = "os_gpu_api_version"
DEFAULT_API_VERSION = "1"
API_VERSIONS = ("1",)


def make_client(instance):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as openstackclient calls it
    """Return openstacksdk's connection: the plug-in has no client of its own."""
    return instance.sdk_connection


def build_option_parser(parser):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as openstackclient calls it
    """Add no options."""
    return parser
