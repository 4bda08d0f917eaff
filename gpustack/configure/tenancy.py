"""The options with which nova-scheduler reads the metadata of aggregates that reserve GPU hosts (``tenancy``)."""

from collections.abc import Iterator

from gpustack.configure.packing import Advised
from gpustack.nova_options import releases
from gpustack.nova_options.aggregates import BY_PROJECT
from gpustack.spec.model import Spec
from gpustack.spec.tenancy import Tenancy

ISOLATION = Advised(
    option=releases.option("scheduler/enable_isolated_aggregate_filtering"),
    value="true",
    comment="Aggregates with the metadata trait:NAME = required refuse flavors that do not require the trait.",
)


def advised(spec: Spec) -> Iterator[Advised]:
    """The options to set."""
    if spec.tenancy is not None and spec.tenancy.isolates:
        yield ISOLATION


def filters(tenancy: Tenancy | None) -> tuple[str, ...]:
    """The scheduler's filters that a spec needs."""
    return (BY_PROJECT,) if tenancy is not None and tenancy.restricts else ()
