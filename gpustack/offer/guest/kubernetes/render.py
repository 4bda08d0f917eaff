"""Render the groups of nodes of a spec's flavors in one of the forms."""

from collections.abc import Collection, Sequence
from typing import Literal, get_args

from gpustack.base.findings import Code, Finding, finding
from gpustack.hosts.facts.model import Host
from gpustack.offer.guest.kubernetes import capi_helm, capo, kubeadm, node_features, operator
from gpustack.offer.guest.kubernetes.documents import Document, Rendering
from gpustack.offer.guest.kubernetes.groups import node_groups
from gpustack.spec.model import Spec

Form = Literal["capo", "capi-helm", "nodefeaturerule", "operator-values", "kubeadm"]
FORMS: tuple[Form, ...] = get_args(Form)


def render(
    spec: Spec, form: Form, *, flavors: Collection[str] = (), hosts: Sequence[Host] = (), max_nodes: int = 1
) -> Rendering:
    """Render the groups of nodes.

    :param flavors: the names of flavors; all when empty.
    :param hosts: the facts of hosts, for sizes ``auto``.
    :param max_nodes: the largest number of nodes of a group.
    """
    made = node_groups(spec, flavors=flavors, hosts=hosts)
    documents: Sequence[Document]
    findings: list[Finding] = []
    match form:
        case "capo":
            findings += [entry for group in made.groups for entry in group.unsized]
            documents = tuple(capo.documents([group for group in made.groups if group.sizes], max_nodes=max_nodes))
        case "capi-helm":
            drivers, problems = operator.pins(spec, made.groups)
            findings += [finding(Code.CHART_WITHOUT_CAPACITY, place=group.flavor) for group in made.groups]
            findings += problems
            documents = tuple(capi_helm.documents(made.groups, drivers, max_nodes=max_nodes))
        case "operator-values":
            drivers, problems = operator.pins(spec, made.groups)
            findings += problems
            documents = tuple(operator.documents(drivers))
        case "nodefeaturerule":
            findings += node_features.findings(spec, made.groups)
            documents = tuple(node_features.documents(spec, made.groups))
        case "kubeadm":
            documents = tuple(kubeadm.documents(made.groups))
    return Rendering(documents=tuple(documents), findings=(*made.findings, *findings))
