"""The options with which Nova gives vendor data to guests (``gpustack guest vendordata``)."""

from collections.abc import Iterator

from gpustack.configure.packing import Advised
from gpustack.nova_options import releases
from gpustack.spec.model import Spec

PATH = releases.option("api/vendordata_jsonfile_path")
PROVIDERS = releases.option("api/vendordata_providers")
STATIC = "StaticJSON"
_COMMENT = "Copy the file of `gpustack guest vendordata` to this path first: Nova reads it for each instance."


def advised(spec: Spec) -> Iterator[Advised]:
    """The option to set."""
    if spec.nova is not None and spec.nova.vendordata is not None:
        yield Advised(option=PATH, value=spec.nova.vendordata, comment=_COMMENT)
