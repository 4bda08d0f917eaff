"""Runs in Nova's own environment: what its validation and its schedulers make of gpustack's mark."""

import json
from unittest import mock

from nova.api.validation.extra_specs import validators
from nova.scheduler.filters import aggregate_instance_extra_specs, compute_capabilities_filter

from nova import exception, objects

MARKS = {
    "gpustack:sets": "hw:cpu_policy,pci_passthrough:alias",
    "gpustack:sets.2": "quota:x",
    "gpustack:origin": "spec",
    "gpustack:access": "8c6976e5b5410415",
}


def passes(filter_class: type, specs: dict) -> bool:
    flavor = objects.Flavor(extra_specs=specs)
    request = mock.Mock(flavor=flavor)
    host = mock.Mock(spec=["stats", "aggregates", "host"], stats={}, aggregates=[], host="gpu1")
    return filter_class().host_passes(host, request)


def is_valid(name: str, value: str) -> bool:
    try:
        validators.validate(name, value)
    except exception.ValidationError:
        return False
    return True


objects.register_all()
print(
    json.dumps(
        {
            "valid": all(is_valid(name, value) for name, value in MARKS.items()),
            "typo refused": not is_valid("hw:cpu_polcy", "shared"),
            "capabilities with the mark": passes(compute_capabilities_filter.ComputeCapabilitiesFilter, MARKS),
            "aggregates with the mark": passes(aggregate_instance_extra_specs.AggregateInstanceExtraSpecsFilter, MARKS),
            "aggregates without a namespace": passes(
                aggregate_instance_extra_specs.AggregateInstanceExtraSpecsFilter, {"hide_hypervisor_id": "true"}
            ),
        }
    )
)
