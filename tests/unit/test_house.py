"""Each rule of the layout fails on a sample that breaks it, with file and line, and passes one that keeps it."""

from __future__ import annotations

import pytest

from support import house
from support.house import Door, Source

PAGE = """\
| 0 | `base` | all | terms | `tests/unit/base` |
| 1 | `cloud` | all | requests | `tests/unit/cloud` |
| 2 | `offer` | offer GPUs | flavors | `tests/unit/offer` |

| `offer` | `flavor` < `quota`, `image` |
"""
FLOORS, WALLS = house.floors(PAGE), house.walls(PAGE)
PACKAGES = ("", "/base", "/cloud", "/offer", "/offer/flavor", "/offer/quota", "/offer/image")
TREE = [Source(f"gpustack{name}/__init__.py", "") for name in PACKAGES]


def source(path: str, text: str) -> Source:
    return Source(f"gpustack/{path}", text)


def test_tables_are_read() -> None:
    assert FLOORS == {"base": 0, "cloud": 1, "offer": 2}
    assert {"offer": [{"flavor"}, {"quota", "image"}]} == WALLS
    assert list(house.unlisted(TREE, PAGE)) == []


@pytest.mark.parametrize(
    ("path", "page", "breach"),
    [
        ("new/__init__.py", PAGE, "gpustack/new/__init__.py: new has no row in the table of the floors"),
        ("loose.py", PAGE, "gpustack/loose.py: loose has no row in the table of the floors"),
        ("offer/guest/__init__.py", PAGE, "offer/guest has no place in the table of the inner floors"),
        ("offer/guest/x.py", PAGE, "gpustack/offer/guest/__init__.py is missing"),
        ("base/x.py", f"{PAGE}| 3 | `gone` |", "the table of the floors has a row for gone, which does not exist"),
        ("base/x.py", PAGE.replace("| 2 |", "| 3 |"), "the floors have a gap: [0, 1, 3]"),
        ("base/x.py", f"{PAGE[:-3]}, `gone` |\n", "the inner floors of offer list gone, which does not exist"),
    ],
)
def test_trees_without_their_rows(path: str, page: str, breach: str) -> None:
    assert list(house.unlisted([*TREE, source(path, "")], page)) == [breach]


@pytest.mark.parametrize(
    "line",
    [
        "from gpustack.cloud.session import connect",
        "import gpustack.cloud",
        "from ..cloud import session",
        "def late():\n    from gpustack import cloud",
        "if TYPE_CHECKING:\n    from gpustack.cloud import session",
    ],
)
def test_imports_of_higher_floors(line: str) -> None:
    place = len(line.splitlines())
    breach = f"gpustack/base/x.py:{place}: base (floor 0) imports cloud (floor 1)"
    assert list(house.upward([source("base/x.py", line)], FLOORS)) == [breach]
    assert list(house.upward([source("offer/flavor/x.py", line.replace("..", "..."))], FLOORS)) == []


def test_imports_of_higher_inner_floors() -> None:
    upward = source("offer/flavor/x.py", "\nfrom gpustack.offer.quota import plan")
    beside = source("offer/image/x.py", "from gpustack.offer import quota")
    downward = source("offer/quota/x.py", "from gpustack.offer.flavor.desired import wanted\nfrom . import plan")
    problem = "imports offer/quota, which is not on a lower inner floor"
    assert list(house.inward([upward, beside, downward], WALLS)) == [
        f"gpustack/offer/flavor/x.py:2: offer/flavor {problem}",
        f"gpustack/offer/image/x.py:1: offer/image {problem}",
    ]


def test_imports_of_higher_inner_floors_of_a_subpackage() -> None:
    upward = source("prepare/host/decide/x.py", "from gpustack.prepare.host.prove import checks")
    free = source("prepare/host/plan.py", "from gpustack.prepare.host.prove import checks")
    downward = source("prepare/host/prove/x.py", "from gpustack.prepare.host.decide import ids")
    walls = house.walls("| `prepare/host` | `decide` < `prove` |\n")
    problem = "prepare/host/decide imports prepare/host/prove, which is not on a lower inner floor"
    assert list(house.inward([upward, free, downward], walls)) == [f"gpustack/prepare/host/decide/x.py:1: {problem}"]


@pytest.mark.parametrize(
    ("text", "needed"),
    [
        ("def f(x: int) -> str: ...", False),
        ("class A: ...\ndef f(*x: A) -> None: ...", False),
        ("def f():\n    def g(x: A): ...\nclass A: ...", False),
        ("class A:\n    x: A", True),
        ("class A:\n    def f(self) -> list[A]: ...", True),
        ("def f(*, x: A | None = None): ...\nclass A: ...", True),
        ("if TYPE_CHECKING:\n    from b import A", True),
    ],
)
def test_postponed_annotations_need_a_missing_name(text: str, needed: bool) -> None:
    module = source("base/x.py", f"from __future__ import annotations\n{text}")
    breach = "gpustack/base/x.py:1: imports annotations from __future__, and no annotation needs it"
    assert list(house.postponed([module])) == ([] if needed else [breach])
    assert not list(house.postponed([source("base/x.py", text)]))


def test_circles_of_three_modules_and_for_types() -> None:
    ring = [source(f"base/{one}.py", f"\nimport gpustack.base.{other}") for one, other in ("ab", "bc", "ca")]
    closes = "closes the circle gpustack.base.a → gpustack.base.b → gpustack.base.c → gpustack.base.a"
    assert list(house.circles(ring)) == [f"gpustack/base/c.py:2: {closes}"]
    assert list(house.circles(ring[:2])) == []
    types = source("base/b.py", "if TYPE_CHECKING:\n    from gpustack.base.a import Thing")
    assert list(house.circles([ring[0], types])) == [
        "gpustack/base/b.py:2: closes the circle gpustack.base.a → gpustack.base.b → gpustack.base.a"
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("import paramiko", "imports paramiko"),
        ("from paramiko.client import SSHClient", "imports paramiko.client.SSHClient"),
        ("if TYPE_CHECKING:\n    import paramiko", "imports paramiko"),
        ("importlib.import_module('paramiko.client')", "imports paramiko.client"),
        ("import os\nos.system('reboot')", "calls os.system"),
        ("run(['ssh', host])", "names the program ssh"),
    ],
)
def test_doors_that_are_walked_around(text: str, problem: str) -> None:
    door = Door(imports=("paramiko",), calls=("os.system",), strings=("ssh",), places=("gpustack/connect/",))
    line = len(text.splitlines())
    assert list(house.beside(door, [source("offer/x.py", text)])) == [
        f"gpustack/offer/x.py:{line}: {problem}, only for gpustack/connect/"
    ]
    assert list(house.beside(door, [source("connect/x.py", text)])) == []
    assert list(house.beside(door, [source("offer/x.py", "import paramikox\nos.systems()\nkind = 'ssh keys'")])) == []


def test_places_that_need_a_door_no_longer() -> None:
    door = Door(imports=("paramiko",), places=("gpustack/connect/", "gpustack/old/"))
    code = [source("connect/x.py", "import paramiko"), source("old/x.py", "")]
    assert list(house.unused(door, code)) == ["gpustack/old/: is listed as a place for paramiko, and uses none of them"]


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ('remedy = f"run: gpustack flavor delete {flavor.name}"', "flavor.name"),
        ('remedy = f"`openstack server show {x}` lists it"', "x"),
        ('remedy = f"(gpustack flavor show {quoted(a)} {b})"', "b"),
        ('remedy = "run ssh -v " + host', "host"),
        ('remedy = "systemctl disable %s" % unit', "unit"),
        ('remedy = f"run `anything {name}`"', "name"),
        ('remedy = "see `gpustack flavor show {}`".format(name)', "'see `gpustack flavor show {}`'"),
        ("remedy = f\"gpustack host undo {' '.join(hosts)}\"", "' '.join(hosts)"),
        ('advice = f"first openstack server set --state active {uuid}; then {more}"', "uuid"),
    ],
)
def test_unquoted_words_of_commands(text: str, name: str) -> None:
    breach = f"gpustack/offer/x.py:1: {name} is in a command to paste: use base.text.quoted"
    assert list(house.pasted([source("offer/x.py", text)], {"flavor", "host"})) == [breach]


@pytest.mark.parametrize(
    "text",
    [
        'f"run: gpustack flavor delete {quoted(flavor.name)}"',
        'f"`gpustack flavor apply` completes {flavor.name}"',
        'f"gpustack derives {key} from the flavor"',
        'f"gpustack host undo {join(hosts)}, then see {page}"',
        'f"openstack aggregate delete {LOCK}"',
        'word = quoted(path)\nf"mkdir -p {word}"',
    ],
)
def test_quoted_words_of_commands_and_plain_texts(text: str) -> None:
    assert list(house.pasted([source("offer/x.py", text)], {"flavor", "host"})) == []


def test_placeholders_of_findings_in_commands() -> None:
    assert house.unquoted("run `gpustack flavor show {name}` of {place}", {"flavor"}) == []
    assert house.unquoted("run gpustack flavor show {name}", {"flavor"}) == ["{name}"]
    assert house.unquoted('run `gpustack flavor show "{name}"`', {"flavor"}) == ["{name}"]


def test_a_cloud_is_changed_by_its_writers_only() -> None:
    text = """
def read(cloud): request(cloud, "GET")
def _put(cloud): request(cloud, "PUT")
def write(cloud): _put(cloud)
def may(cloud): request(cloud, "PUT")
class Nova:
    def act(self): self._nova.servers.stop()
"""
    cloud = source("cloud/compute.py", text)
    writers = house.cloud_writers([cloud, source("base/x.py", text)])
    assert writers == {"write": "gpustack.cloud.compute", "act": "gpustack.cloud.compute"}
    uses = ["self.api.act", "compute.write(c)", "change = NovaCloud(connection).act", "file.write(text)", "act()"]
    code = source("offer/x.py", "\n".join(["from gpustack.cloud import compute", *uses]))
    imported = source("offer/y.py", "from gpustack.cloud.compute import read, write")
    assert sorted(text for _, text in house.writing([cloud, code, imported], writers)) == [
        "gpustack/offer/x.py:2: uses self.api.act, which changes a cloud",
        "gpustack/offer/x.py:3: uses compute.write, which changes a cloud",
        "gpustack/offer/x.py:4: uses NovaCloud(connection).act, which changes a cloud",
        "gpustack/offer/y.py:1: imports gpustack.cloud.compute.write, which changes a cloud",
    ]


def test_a_command_that_decides() -> None:
    base = source("base/operations.py", "class Operation: ...\nclass Write(Operation): ...\nclass Mark(x.Write): ...")
    text = "Mark()\npath.read_text()\nopen(path)\nif release >= other: ...\nif count > 3: ...\nPlan()"
    classes = house.operations([base])
    assert classes == {"Operation", "Write", "Mark"}
    assert list(house.deciding([base, source("offer/x.py", text)], classes)) == []
    assert sorted(house.deciding([source("cli/x.py", text)], classes)) == [
        "gpustack/cli/x.py:1: builds the operation Mark",
        "gpustack/cli/x.py:2: opens a file: read_text",
        "gpustack/cli/x.py:3: opens a file: open",
        "gpustack/cli/x.py:4: compares versions: release >= other",
    ]


def test_modules_and_functions_above_the_ceilings() -> None:
    text = "\ndef f():\n    one()\n    two()\n"
    assert list(house.too_long([source("base/x.py", text)], module=4, function=3)) == []
    assert list(house.too_long([source("base/x.py", text)], module=3, function=2)) == [
        "gpustack/base/x.py:4: the module has 4 lines, at most 3",
        "gpustack/base/x.py:2: f has 3 lines, at most 2",
    ]


def test_class_names_of_several_modules_are_counted() -> None:
    code = [source(f"base/{name}.py", "\nclass Plan: ...\nclass _Own: ...") for name in "ab"]
    assert house.shared_class_names(code) == {"Plan": ["gpustack/base/a.py:2", "gpustack/base/b.py:2"]}


def test_plugins_beyond_the_public_modules() -> None:
    text = "from gpustack.errors import GpustackError\nfrom gpustack.prepare.host.plan import plan_host"
    assert list(house.surface(text, "playbooks/x.py", ("gpustack.errors",))) == [
        "playbooks/x.py:2: imports gpustack.prepare.host.plan.plan_host, expected one of gpustack.errors"
    ]


def test_arrows_count_pairs_of_rooms() -> None:
    code = [source("cloud/x.py", "from gpustack.base import text, errors\nfrom gpustack import __version__"), *TREE]
    assert house.arrows(code) == {("cloud", "base")}


def test_the_map_is_written_between_its_marks() -> None:
    text = f"before\n{house.START}\nstale\n{house.END}\nafter\n"
    mapped = house.with_map(text, PAGE)
    assert "| offer GPUs | `gpustack/offer` | flavors | `tests/unit/offer` |" in mapped
    assert "stale" not in mapped
    assert (mapped.startswith("before\n"), mapped.endswith("after\n")) == (True, True)
    assert house.with_map(mapped, PAGE) == mapped


DECIDES, COUNTS = "def f(x):\n    return 1 if x else 2\n", "def f(x):\n    return [y for y in x]\n"


@pytest.mark.parametrize(
    ("path", "test"),
    [
        ("offer/flavor/plan.py", "unit/offer/flavor/test_plan.py"),
        ("offer/flavor/plan.py", "unit/offer/flavor/cases/plan.yaml"),
        ("offer/flavor/plan.py", "unit/offer/test_flavor.py"),
        ("offer/flavor/__init__.py", "unit/offer/test_flavor.py"),
        ("repair/rules/c_lost_node.py", "unit/repair/test_lost_node.py"),
        ("repair/rules/c_lost_node.py", "unit/repair/cases/c-lost-node.yaml"),
        ("repair/rules/_times.py", "unit/repair/test_times.py"),
    ],
)
def test_modules_have_tests_of_their_own(path: str, test: str) -> None:
    code = [source(path, DECIDES), source("base/x.py", COUNTS)]
    assert list(house.untested(code, {test}, {})) == []
    (breach,) = house.untested(code, {"unit/offer/test_plan.py"}, {})
    assert breach.startswith(f"gpustack/{path}:1: has a decision and no test: expected tests/unit/")


def test_entries_name_tests_of_modules_without_their_own() -> None:
    entry = "offer/flavor/*.py"
    code, listed = [source("offer/flavor/plan.py", DECIDES)], {entry: ["unit/offer"]}
    assert list(house.untested(code, {"unit/offer"}, listed)) == []
    assert house.relying(code, {"unit/offer"}, listed) == ["gpustack/offer/flavor/plan.py"]
    assert list(house.untested(code, {}, listed)) == [f"tests/mirrors.toml: {entry}: unit/offer does not exist"]
    own = {"unit/offer", "unit/offer/flavor/test_plan.py"}
    assert list(house.untested(code, own, listed)) == [f"tests/mirrors.toml: {entry}: no module needs this entry"]


@pytest.mark.parametrize(
    ("text", "breach"),
    [
        ('MASK = "***"', "gpustack/cli/x.py:1: masks by itself, only for gpustack/base/door.py"),
        (
            're.compile(r"password|passwd|secret")',
            "gpustack/cli/x.py:1: masks by itself, only for gpustack/base/door.py",
        ),
        ("option.secret", "gpustack/cli/x.py:1: asks whether an option is secret, only for gpustack/base/door.py"),
        ("masking.secret(value)", None),
        ('"the password is wrong"', None),
    ],
)
def test_secrets_masked_elsewhere(text: str, breach: str | None) -> None:
    code = [source("base/door.py", 'MASK = "***"'), source("cli/x.py", text)]
    assert list(house.masks(code, "gpustack/base/door.py")) == ([breach] if breach else [])
