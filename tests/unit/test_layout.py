"""The layout of the code: floors, inner floors, doors, ceilings and mirrors. :mod:`support.house` has the rules."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from gpustack.base.findings import definitions
from support import house
from support.house import Door

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs/explanation/architecture.md").read_text(encoding="utf-8")
PACKAGES = tuple(TOP / place for place in house.ROOT.values())
ALL = house.sources(TOP)
PRODUCT = [source for source in ALL if source.name.partition(".")[0] == "gpustack"]
DOORS = {
    "SSH": Door(imports=("paramiko",), strings=("ssh",), places=("gpustack/connect/ssh/",)),
    "Ansible": Door(
        imports=("ansible",),
        strings=("ansible", "ansible-playbook"),
        # The playbooks of 0.1.0 import task_results, which stops Ansible with its own error.
        places=("gpustack/connect/playbooks/", "gpustack/task_results.py"),
    ),
    "processes": Door(
        imports=("subprocess", "multiprocessing", "pty"),
        calls=("os.system", "os.popen", "os.fork", "os.execv", "os.execve", "os.execvp", "os.posix_spawn", "os.spawnv"),
        places=(
            "gpustack/changes/guardian.py",  # gpustack itself, which undoes a run that nobody confirms
            "gpustack/configure/installed/launch.py",  # Nova's Python; also sent to hosts
            "gpustack/connect/playbooks/run.py",
            "gpustack/connect/ssh/config.py",  # the version of ssh
            "gpustack/connect/ssh/connection.py",  # ProxyCommand
            "gpustack/connect/ssh/program.py",  # a program on this machine, with sudo
            "gpustack/linux/initramfs/compression.py",  # also sent to hosts, where nothing else can unpack an image
        ),
    ),
    # One door for words of commands that a user pastes: house.pasted requires it.
    "quoting": Door(imports=("shlex.quote",), calls=("shlex.quote",), places=("gpustack/base/text.py",)),
    # One reader of the package's tables, each read once.
    "tables": Door(imports=("tomllib",), calls=("tomllib.loads", "tomllib.load"), places=("gpustack/base/files.py",)),
    # One environment of templates, in which a variable without a value is an error.
    "templates": Door(calls=("jinja2.Environment", "jinja2.Template"), places=("gpustack/base/files.py",)),
    # One kind of progress: on a terminal, after a second, on stderr.
    "progress": Door(imports=("rich.progress",), places=("gpustack/cli/progress.py",)),
    # The hosts of all commands, and how to reach them: Ansible's inventory is read once, by one option.
    "inventory": Door(strings=("--inventory", "--limit"), places=("gpustack/cli/inventory.py",)),
    # One verdict on each GPU: all others ask spec/verdict.py.
    "verdict": Door(
        imports=(
            "gpustack.hosts.readiness.assessment.assess",
            "gpustack.hosts.readiness.host.host_reasons",
            "gpustack.linux.drivers.is_passthrough_driver",
        ),
        places=(
            "gpustack/hosts/readiness/",
            "gpustack/spec/verdict.py",
            "gpustack/hosts/health/check.py",  # a health check is about facts alone, too
            "gpustack/prepare/host/undo.py",  # which functions return to their host drivers
            "gpustack/prepare/host/desired.py",  # functions of others in the group, such as DPDK's
            "gpustack/prepare/host/decide/binding.py",  # the host drivers among the modules of a function
            "gpustack/prepare/host/decide/virtual_functions.py",  # cards that are shared, virtual functions for ports
            "gpustack/prepare/host/prove/checks.py",  # verification: each function has its driver
        ),
    ),
    # Commands that change a boot, and reboots: their effect is predicted and proved there.
    "next boot": Door(
        calls=("RunCommand", "Reboot"), places=("gpustack/prepare/host/next_boot/", "gpustack/prepare/host/tools.py")
    ),
    # A change to a cloud or a database is shown, asked for and recorded by the one base command. The other places are
    # those of 0.1.0 and leave this list as their commands join it; the records of hosts stay on the hosts.
    "question": Door(
        strings=("--yes", "--check", "--journal", "--journal FILE"),
        places=(
            "gpustack/cli/change.py",
            "gpustack/cli/host_playbooks.py",
            "gpustack/connect/playbooks/run.py",  # Ansible's own --check
        ),
    ),
    "journals": Door(
        calls=("JournalFile",),
        places=("gpustack/changes/journal.py",),
    ),
    # The state of a nova-compute and its reason are a set that several commands share; compute.py reads it.
    "closed hosts": Door(
        strings=("disabled_reason",), places=("gpustack/cloud/closed.py", "gpustack/cloud/compute.py")
    ),
    "reservations": Door(calls=("write_inventory",), places=("gpustack/operate/gpu_service/changes.py",)),
    # Repairs and their undo are operations: the runner carries them out, nothing else.
    "repairs": Door(
        calls=("writing", "carry_out_repair", "undo_repair", "placement.put"),
        places=tuple(f"gpustack/repair/{name}.py" for name in ("allocation_removal", "apply", "changes", "undo")),
    ),
    "databases": Door(
        imports=("sqlalchemy", "sqlite3", "pymysql", "MySQLdb", "psycopg", "psycopg2"),
        # novadb reads; these modules of clean-up guard, write and undo.
        places=("gpustack/novadb/", *(f"gpustack/repair/{name}.py" for name in ("apply", "repair", "undo"))),
    ),
}
"""What only some places may use."""
PUBLIC = (
    "gpustack.__version__",
    "gpustack.errors",
    "gpustack.base.task_results",
    *(f"gpustack.{job}.plugin_api" for job in ("configure", "prepare", "repair")),
)
"""What the playbooks' plug-ins may import."""
DECIDING = {
    "cli/app.py: opens a file: open": "the null device, after the reader of the output ended",
    "cli/capacity.py: opens a file: open": "a recording, whose lines are parsed while they are read",
    "cli/explanation.py: opens a file: read_text": "a page that is printed as it is",
    "cli/host_playbooks.py: opens a file: mkdtemp": "the command's own temporary files",
    "cli/spec.py: opens a file: read_text": "the JSON schema, which is printed as it is",
}
"""The decisions that stay in ``cli/``, with reasons."""
LINES, MODULE, FUNCTION, SHARED, ROOMS, ARROWS, MIRRORS, RELYING = 73_795, 496, 66, 35, 24, 93, 28, 68
"""Ceilings: lines of the product, of its longest module and function; class names that several modules use; rooms, and
arrows between them; entries of mirrors.toml, and the modules that rely on them. The lines of the product were 63,000
before, and return there. A change that needs a higher one
changes the number here."""


def none(breaches: object) -> None:
    """Fail with one breach a line."""
    lines = list(breaches)  # type: ignore[call-overload]
    assert not lines, "\n".join(["", *map(str, lines)])


def test_the_page_lists_every_package() -> None:
    none(house.unlisted(ALL, PAGE))


def test_the_rooms_and_modules_that_the_page_names_exist() -> None:
    """``prepare/host/decide``, ``spec/assignment.py``, …"""
    output = re.findall(r"`([\w/]+/\w+(?:\.py)?|\w+\.py)`", PAGE)
    assert len(output) > len(list((TOP / "gpustack").glob("*/*/__init__.py")))
    assert not [name for name in output if not any((root / name).exists() for root in (TOP, *PACKAGES))]


def test_imports_point_down() -> None:
    none(house.upward(ALL, house.floors(PAGE)))


def test_imports_between_subpackages_point_down() -> None:
    none(house.inward(ALL, house.walls(PAGE)))


def test_no_imports_form_a_circle() -> None:
    none(house.circles(ALL))


def test_only_one_module_changes_the_state_of_a_service() -> None:
    writers = [
        source.path
        for source in PRODUCT
        if re.search(r"""["']/os-services/|disable_log_reason|services\.enable""", source.text)
    ]
    assert writers == ["gpustack/cloud/closed.py"]
    enabling = [source.path for source in PRODUCT if re.search(r"closed\.set_reason\(", source.text)]
    assert enabling == ["gpustack/changes/closed.py", "gpustack/cloud/server_actions.py"]


def test_only_the_session_connects() -> None:
    """A process has one connection to a cloud, and closes it at its end."""
    connecting = re.compile(r"\b(?:cloudapi|session)\.connect\(|session import .*\bconnect\b")
    assert not [source.path for source in PRODUCT if connecting.search(source.text)]


@pytest.mark.parametrize("name", DOORS)
def test_doors_are_used(name: str) -> None:
    none(house.beside(DOORS[name], PRODUCT))
    none(house.unused(DOORS[name], PRODUCT))


def test_secrets_are_masked_at_one_door() -> None:
    # Nova's own Python marks the options of an installed Nova.
    code = [source for source in PRODUCT if source.path != "gpustack/configure/installed/program.py"]
    none(house.masks(code, "gpustack/base/known_secrets.py", "gpustack/nova_options/masking.py"))


NOUNS = {name.split()[0] for name in tomllib.loads((TOP / "gpustack/data/commands.toml").read_text(encoding="utf-8"))}


def test_names_in_commands_to_paste_are_quoted() -> None:
    playbooks = [
        house.Source(path.relative_to(TOP).as_posix(), path.read_text(encoding="utf-8"))
        for path in (TOP / "playbooks").rglob("*.py")
    ]
    none(house.pasted([*PRODUCT, *playbooks], NOUNS))
    texts = {code: (entry.message, entry.remedy) for code, entry in definitions().items()}
    # finding() quotes in remedies only, and nothing between double quotes.
    none(f"{code}: {name}" for code, (_, remedy) in texts.items() for name in house.unquoted(remedy, NOUNS))
    messages = {code: message.split("`")[1::2] for code, (message, _) in texts.items()}
    none(code for code, ticked in messages.items() if any(house.unquoted(part, NOUNS) for part in ticked))


WRITING = {
    "gpustack/changes/lock.py": "the lock itself",
    "gpustack/changes/closed.py": "a reason of a closed host",
    "gpustack/prepare/drain/run.py": "moves instances, with records of its own",
    "gpustack/repair/allocation_removal.py": "a repair of clean-up",
}
"""The modules beside ``changes.py`` of a job that write to a cloud."""


def test_only_changes_write_to_a_cloud() -> None:
    writers = house.cloud_writers(PRODUCT)
    assert {"create_aggregate", "act", "grant", "write_inventory"} <= writers.keys()
    found = list(house.writing(PRODUCT, writers))
    none(text for source, text in found if source.path not in WRITING and not source.path.endswith("/changes.py"))
    assert WRITING.keys() <= {source.path for source, _ in found}, "no longer writes: remove the entry"


NAMES = re.compile(
    r"""^\s*(?:[A-Z_]*(?:COLUMNS|FIELDS)\b[^=\n]*= [({]\s*["*]|return \("[A-Z]|(?:columns|header) = \("[A-Z])""",
    re.MULTILINE,
)


def test_columns_are_defined_once() -> None:
    """:class:`gpustack.base.columns.Column` has key, title, value and text; cli/output.py prints them."""
    assert not [
        path.relative_to(TOP / "gpustack").as_posix()
        for path in (TOP / "gpustack").rglob("*.py")
        if (path.parent.name == "cli" or path.name == "table.py") and NAMES.search(path.read_text(encoding="utf-8"))
    ]


def test_only_the_base_of_the_commands_names_the_next_one() -> None:
    """cli/next_steps.py has the table."""
    assert [source.path for source in PRODUCT if "Next:" in source.text] == ["gpustack/cli/common.py"]


def test_how_nova_schedules_is_asked_once() -> None:
    """nova_options/scheduler.py takes the files, then the spec; the jobs on a running cloud ask it."""
    jobs = ("fleet", "offer", "operate")
    assert not [
        source.path for source in PRODUCT if source.room in jobs and re.search(r"\bnova\.placement\b", source.text)
    ]


def test_the_command_line_decides_nothing() -> None:
    breaches = list(house.deciding(PRODUCT, house.operations(PRODUCT)))
    known = {re.sub(r"^gpustack/(.+?):\d+", r"\1", breach): breach for breach in breaches}
    none(breach for name, breach in known.items() if name not in DECIDING)
    assert not DECIDING.keys() - known.keys(), "no longer there: remove the entry"


def test_plugins_of_playbooks_import_only_documented_modules() -> None:
    for path in (TOP / "playbooks").glob("*_plugins/*.py"):
        none(house.surface(path.read_text(encoding="utf-8"), path.relative_to(TOP).as_posix(), PUBLIC))
    page = (TOP / "docs/reference/python.md").read_text(encoding="utf-8")
    assert set(re.findall(r"^\| `(gpustack[\w.]+)` \|", page, re.MULTILINE)) == {
        name for name in PUBLIC if not name.endswith(("__", "task_results"))
    }


def test_every_module_can_be_imported() -> None:
    """Annotations are evaluated: without ``from __future__ import annotations``, each name in them has to exist."""
    modules = [source.name for source in PRODUCT if not source.name.endswith("__main__")]
    program = "import importlib, sys; [importlib.import_module(name) for name in sys.argv[1:]]"
    ran = subprocess.run([sys.executable, "-c", program, *modules], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_annotations_are_postponed_only_where_names_are_missing() -> None:
    none(house.postponed(PRODUCT))


def test_only_public_modules_are_directly_below_the_package() -> None:
    assert {path.stem for path in (TOP / "gpustack").glob("*.py")} == house.FACES


def test_what_modules_share_with_the_package_is_linked() -> None:
    """A tool that writes a file again turns a link into a second copy."""
    shared = sorted((TOP / "playbooks/module_utils").iterdir())
    assert len(shared) == 3
    assert [path.name for path in shared if not path.is_symlink()] == []


def test_ceilings() -> None:
    # base/codes.py is a table: it grows by a line with each finding.
    modules = [source for source in PRODUCT if source.path != "gpustack/base/codes.py"]
    none(house.too_long(modules, module=MODULE, function=FUNCTION))
    assert sum(source.text.count("\n") for source in PRODUCT) <= LINES
    shared = house.shared_class_names(PRODUCT)
    assert len(shared) <= SHARED, shared
    rooms = {source.room for source in PRODUCT} - house.FACES - {""}
    assert len(rooms) <= ROOMS
    assert len(house.arrows(PRODUCT)) <= ARROWS


def test_the_map_of_contributing_is_that_of_the_page() -> None:
    """``GPUSTACK_GOLDEN=write`` writes it."""
    path = TOP / "CONTRIBUTING.md"
    text = path.read_text(encoding="utf-8")
    mapped = house.with_map(text, PAGE)
    if os.environ.get("GPUSTACK_GOLDEN") == "write":
        path.write_text(mapped, encoding="utf-8")
    assert mapped == text, "run GPUSTACK_GOLDEN=write pytest tests/unit/test_layout.py -k map"
    none(name for name in re.findall(r"`(tests/[\w/.]+)`", PAGE) if not (TOP / name).exists())


def test_the_product_imports_nothing_of_the_demo() -> None:
    imports = re.compile(r"^\s*(?:from|import) gpustack_demo\b", re.MULTILINE)
    assert not [path for path in (TOP / "gpustack").rglob("*.py") if imports.search(path.read_text())]


def test_stand_ins_know_nothing_of_what_they_judge() -> None:
    """A wrong plan, or a wrong reading of a file, must lead to a wrong boot."""
    judged = re.compile(r"^\s*(?:from|import) gpustack\.(?:prepare\.host|linux|hosts\.readiness)\b", re.MULTILINE)
    examples = (TOP / "demo/gpustack_demo/examples").rglob("*.py")
    assert not [path for path in examples if judged.search(path.read_text(encoding="utf-8"))]
    readers = re.compile(r"^\s*(?:from|import) gpustack\.linux\b", re.MULTILINE)
    assert not readers.search((TOP / "tests/support/boot_simulation.py").read_text(encoding="utf-8"))


UNIT = TOP / "tests" / "unit"
# Tests of behaviour that several modules share, in directories of modules.
SCENARIOS = {
    "fleet/test_vgpus",
    "repair/test_classes",
    "repair/test_cloud",
    "repair/test_evidence_rule",
    "novadb/test_heads",
    "repair/test_held",
    "repair/test_hostile_journal",
    "repair/test_hostile_mappings",
    "repair/test_killed",
    "repair/test_odd_rows",
    "repair/test_playbook",
    "repair/test_reservation",
    "repair/test_runbook",
    "repair/test_safety_flags",
    "repair/test_saved_plan",
    "cli/test_ssh_options",
    "cli/test_terminal",
    "hosts/facts/collector/test_serial",
    "hosts/facts/test_bounds",
    "offer/flavor/test_plugin",
    "offer/guest/test_cloud_init",
    "offer/guest/kubernetes/test_howto",
    "prepare/host/test_cases",
    "prepare/host/test_prior_art",
    "prepare/host/test_properties",
    "prepare/host/test_real_tools",
    "prepare/drain/test_cases",
    "prepare/drain/test_choices",
    "configure/test_kubernetes",
    "configure/test_tenancy",
    "connect/ssh/test_guest",
    "test_collection",
    "test_complete_path",
    "test_day_steps",
    "test_demo_picture",
    "test_distributions",
    "test_documentation",
    "test_finding_pages",
    "test_lab_signals",
    "test_links",
    "test_house",
    "test_layout",
    "test_manuals",
    "test_monitoring",
    "test_mutants",
    "test_paths",
    "test_recipes",
    "test_release",
    "test_released",
    "test_security_page",
    "test_upgrade_page",
    "test_verdicts_agree",
    "test_words",
    "test_setup",
}
# Directories without a package of the same name: all of their tests are scenarios.
SCENARIO_ROOMS = ("attacks", "bench", "fuzz", "growth", "playbooks")


def mirrors_a_module(test: Path) -> bool:
    """Whether a test is named after a module or package at the same place in the tree; rules begin with their class."""
    place, name = test.parent.relative_to(UNIT), test.stem.removeprefix("test_")
    names = (f"{name}.py", f"{name}/__init__.py", f"rules/?_{name}.py", f"rules/_{name}.py")
    return any(any((package / place).glob(pattern)) for package in PACKAGES for pattern in names)


def test_tests_are_named_after_modules() -> None:
    tests = {str(path.relative_to(UNIT).with_suffix("")): path for path in UNIT.rglob("test_*.py")}
    strange = {name for name, path in tests.items() if not mirrors_a_module(path)}
    assert {name for name in strange if not name.startswith(SCENARIO_ROOMS)} <= SCENARIOS


def test_modules_with_a_decision_have_tests() -> None:
    listed = tomllib.loads((TOP / "tests/mirrors.toml").read_text(encoding="utf-8"))
    present = {path.relative_to(TOP / "tests").as_posix() for path in (TOP / "tests").rglob("*") if path.name[0] != "."}
    none(house.untested(PRODUCT, present, listed))
    assert len(listed) <= MIRRORS
    relying = house.relying(PRODUCT, present, listed)
    assert len(relying) <= RELYING, "give the new module a test of its own: tests/unit/<path>/test_<module>.py"


def test_tests_import_nothing_of_other_tests() -> None:
    imports = re.compile(r"^\s*(?:from|import) (?:unit\.|nova\.cleanup|\.)", re.MULTILINE)
    tests = [path for name in ("unit", "nova", "support") for path in (TOP / "tests" / name).rglob("*.py")]
    # They run the tests of other modules again, on database servers.
    rerun = {TOP / "tests/nova/cleanup" / name for name in ("test_on_servers.py", "test_servers.py")}
    assert {path for path in tests if imports.search(path.read_text(encoding="utf-8"))} <= rerun


def test_only_nova_options_knows_the_options_of_a_release() -> None:
    """An option's name, type and limits come from the tables; nothing else defines one."""
    defines = re.compile(r"(?<![\w.])(?:Option|partial\(Option|ValueType)\(")
    imports = re.compile(r"^from gpustack\.nova_options\.\S+ import .*\bOption\b", re.MULTILINE)
    paths = [path for path in (TOP / "gpustack").rglob("*.py") if path.parent.name != "nova_options"]
    texts = {path: path.read_text(encoding="utf-8") for path in paths}
    assert [path for path, text in texts.items() if imports.search(text) and defines.search(text)] == []
    assert [path for path, text in texts.items() if '"nova.toml"' in text or 'data_dir("nova")' in text] == []


# openstacksdk's proxies of services, and what else sends a request.
PROXIES = frozenset({"compute", "placement", "identity", "image", "network"})
CLIENTS = ("novaclient", "keystoneauth1", "openstack", "requests", "urllib3")
SENDING = frozenset({"request", "get", "find", "pages", "listing", "translated_errors", "raise_refusal"})
# A connection without the limits of cloud/time_limits.py; limited() sets them.
UNLIMITED = re.compile(
    r"\bConnection\(|\.connect_as\(|\.sdk_connection\b|\.mount\(|\b(?:requests|openstack)\.\w*[Ss]ession\("
)
TIMEOUT = re.compile(r"\btimeout=")
CONNECTIONS = re.compile(r"(?:^|\.)(?:cloud|connection|_cloud|_connection)$")


def requests_of(source: str) -> list[str]:
    """Lines of a module that send requests to OpenStack: imports of clients, and services of a connection."""
    found = []
    for node in ast.walk(ast.parse(source)):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [name.name for name in node.names if name.name.split(".")[0] in CLIENTS]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            names = [str(node.module)] if str(node.module).split(".")[0] in CLIENTS else []
            if node.module == "gpustack.cloud.session":
                names = [name.name for name in node.names if name.name in SENDING]
        elif isinstance(node, ast.Attribute) and CONNECTIONS.search(ast.unparse(node.value)):
            names = [node.attr] if node.attr in {*PROXIES, "session", "request", "connect_as", "endpoint_for"} else []
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "getattr" and len(node.args) > 1:
            names = [ast.unparse(node)] if CONNECTIONS.search(ast.unparse(node.args[0])) else []
        found += [f"line {getattr(node, 'lineno', 0)}: {name}" for name in names]
    return found


def test_only_cloud_sends_requests_to_openstack() -> None:
    senders = {
        str(path.relative_to(TOP)): lines
        for path in (TOP / "gpustack").rglob("*.py")
        if TOP / "gpustack" / "cloud" not in path.parents and (lines := requests_of(path.read_text(encoding="utf-8")))
    }
    assert not senders


def test_every_connection_to_openstack_has_the_time_limits() -> None:
    texts = {source.path.removeprefix("gpustack/"): source.text for source in PRODUCT}
    limited = {
        "cli/cloud.py": "limited(manager.sdk_connection)",
        "cloud/session.py": "limited(openstack.connection.Connection(",
    }
    for name, call in limited.items():
        assert call in texts[name]
        texts[name] = texts[name].replace(call, "")
    unlimited = {name: UNLIMITED.findall(text) for name, text in texts.items() if UNLIMITED.search(text)}
    # connect_as() and limited() mount the adapter; openstackclient calls the plug-in, no command does.
    assert unlimited == {"cloud/session.py": [".connect_as(", ".mount("], "osc_plugin.py": [".sdk_connection"]}
    timed = {name for name, text in texts.items() if name.startswith("cloud/") and TIMEOUT.search(text)}
    assert timed == {"cloud/time_limits.py"}, timed


@pytest.mark.parametrize(
    "line",
    [
        "import novaclient.exceptions",
        "import requests",
        "from keystoneauth1.exceptions import ClientException",
        "from openstack.config import loader",
        "from gpustack.cloud.session import get",
        "connection.compute.get('/flavors')",
        "self._connection.session.get('/ports')",
        "getattr(cloud, service).get('/flavors')",
        "cloud.endpoint_for('network')",
    ],
)
def test_a_request_elsewhere_breaks_the_rule(line: str) -> None:
    assert requests_of(line)
    assert not requests_of("from gpustack.cloud import Connection\ncloud = connect()\ncompute.services(cloud)")


def test_text_is_a_number_only_if_int_reads_it() -> None:
    """``"²".isdigit()`` is true, and ``int("²")`` fails."""
    files = [path for room in ("gpustack", "playbooks") for path in (TOP / room).rglob("*.py")]
    assert not [path for path in files if re.search(r"\.is(digit|numeric)\b", path.read_text(encoding="utf-8"))]


def test_kernel_messages_are_only_in_the_table_of_signs() -> None:
    """Patterns of messages are made from the sources; a module that needs one asks the table for its kind."""
    phrases = re.compile(r"NVRM: |AMD-Vi|DMAR: |\bXid \(|giving up|fallen off the bus|probe of|RmInitAdapter|Bus Error")
    calls = re.compile(r"re\.(?:compile|search|match|findall)\(|_pattern\(")
    found = {
        str(path.relative_to(TOP))
        for path in (TOP / "gpustack").rglob("*.py")
        for line in path.read_text(encoding="utf-8").splitlines()
        if phrases.search(line) and calls.search(line)
    }
    assert not found
