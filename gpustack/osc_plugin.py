"""The plug-in of the ``openstack`` command: ``openstack gpu flavor …`` are the commands of ``gpustack flavor …``.

Every call of ``openstack`` imports this module, whatever the command, so it imports nothing.
"""

API_NAME = "gpu"
API_VERSION_OPTION = "os_gpu_api_version"
DEFAULT_API_VERSION = "1"
API_VERSIONS = ("1",)


def make_client(instance):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as openstackclient calls it
    """There is no client of its own: the commands use the connection of openstacksdk."""
    return instance.sdk_connection


def build_option_parser(parser):  # type: ignore[no-untyped-def]  # noqa: ANN001, ANN201 - as openstackclient calls it
    """No option is added."""
    return parser
