"""The two conductors of RHOSO, and the services of several hosts."""

from gpustack.configure.by_service import by_service
from gpustack.configure.reading import read
from gpustack.nova_options import releases
from gpustack.nova_options.masking import is_secret

RELEASE = releases.release("2025.2")


def states(paths, option):
    (row,) = (row for row in by_service(read(paths).sources, RELEASE) if row.option.path == option)
    return dict(row.states)


def test_the_conductor_of_cell0_is_the_one_above_the_cells(tmp_path):
    file = tmp_path / "controlplane.yaml"
    conductor = "{{conductorServiceTemplate: {{customServiceConfig: '[filter_scheduler]\n\n  pci_in_placement = {}'}}}}"
    cells = f"cell0: {conductor.format('true')}, cell1: {conductor.format('false')}"
    file.write_text(f"kind: OpenStackControlPlane\nspec: {{nova: {{template: {{cellTemplates: {{{cells}}}}}}}}}\n")
    assert states([str(file)], "filter_scheduler/pci_in_placement") == {
        "super-conductor": "differs",
        "conductor": "differs",
    }


def test_hosts_of_one_service_are_compared(tmp_path):
    files = [tmp_path / f"{name}.conf" for name in ("gpu01", "gpu02")]
    for file in files:
        file.write_text("[pci]\nreport_in_placement = true\n")
    paths = [f"compute={file}" for file in files]
    assert states(paths, "pci/report_in_placement") == {"compute": "set"}
    files[1].write_text("[DEFAULT]\n")
    assert states(paths, "pci/report_in_placement") == {"compute": "differs"}


def test_no_option_of_the_table_is_secret():
    """Their values are printed."""
    assert not [row.option.path for row in by_service((), RELEASE) if is_secret(row.option.path)]


def test_spelling_is_no_difference(tmp_path):
    for name, value, alias in (("a", "True", '{"name":"a"}'), ("b", "true", '{"name": "a"}')):
        (tmp_path / f"{name}.conf").write_text(f"[pci]\nreport_in_placement = {value}\nalias = {alias}\n")
    paths = [f"compute={tmp_path}/{name}.conf" for name in "ab"]
    assert states(paths, "pci/report_in_placement") == states(paths, "pci/alias") == {"compute": "set"}
