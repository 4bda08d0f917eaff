"""Operations of a plan: their lines, differences and counts."""

from gpustack.base.operations import (
    BindLive,
    Moved,
    Reboot,
    RemoveFile,
    RunCommand,
    TrialReboot,
    WriteFile,
    count,
    show_counts,
)

CREATE = WriteFile(path="/etc/a", content="x\n", before=None, why="new")
CHANGE = WriteFile(path="/etc/a", content="y\n", before="x\n", why="other")
REMOVE = RemoveFile(path="/etc/a", before="y\n", why="gone")
RUN = RunCommand(argv=("dracut", "--force", "/boot/a b"), why="rebuild")
FUNCTION = Moved(address="0000:84:00.0", before=None, vendor="10de", product="11b4", pci_class="030000")
BIND = BindLive(card="0000:84:00.0", driver="vfio-pci", functions=(FUNCTION,), why="now")


def test_each_operation_is_one_line() -> None:
    assert [operation.describe() for operation in (CREATE, CHANGE, REMOVE, RUN, BIND)] == [
        "create /etc/a",
        "change /etc/a",
        "remove /etc/a",
        "run dracut --force '/boot/a b'",
        "bind 0000:84:00.0 to vfio-pci on the running host",
    ]
    assert (CREATE.verb, REMOVE.verb, RUN.verb) == ("write", "remove", "run")
    assert RUN.details() == []


def test_differences_name_the_missing_file() -> None:
    assert CREATE.diff() == "--- /dev/null\n+++ /etc/a\n@@ -0,0 +1 @@\n+x\n"
    assert CHANGE.diff() == "--- /etc/a\n+++ /etc/a\n@@ -1 +1 @@\n-x\n+y\n"
    assert REMOVE.diff() == "--- /etc/a\n+++ /dev/null\n@@ -1 +0,0 @@\n-y\n"


def test_the_kind_is_part_of_the_data() -> None:
    assert RUN.to_dict() == {"kind": "run_command", "why": "rebuild", "argv": ("dracut", "--force", "/boot/a b")}


def test_counts_are_shown_by_kind() -> None:
    trial = TrialReboot(seconds=600, why="try")
    counts = count([CREATE, REMOVE, RUN, trial])
    assert counts == {"file": 2, "command": 1, "reboot": 1}
    assert show_counts(counts) == ["2 files", "1 command", "needs a reboot"]
    assert show_counts(count([BIND])) == ["1 card"]
    assert "within 600 s" in trial.describe()
    assert Reboot(why="new").describe() == "reboot"
