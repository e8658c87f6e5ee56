"""Imports point one way: no package imports one above it, neither in a function nor for types alone."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.harness.sources import parse

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "headrace"

# From the bottom to the top: each package with those it may import. They all stand above it in this table, so there
# is no circle. "headrace" is the package's own __init__.py.
LAYERS = {
    "version": set(),
    "installation": set(),
    "lazy": {"installation"},
    "waits": set(),
    "notebook": set(),
    "brief": set(),
    "gpu": {"installation", "lazy", "waits"},
    "tensor": {"lazy", "notebook", "gpu"},
    "core": {"brief", "notebook", "lazy", "waits", "gpu"},
    "_runtime": {"lazy", "waits", "gpu", "tensor", "core"},
    "capture": {"lazy", "gpu", "tensor", "core", "_runtime"},
    "link": {"brief", "lazy", "waits", "gpu", "tensor", "core"},
    "replicas": {"core", "_runtime", "link"},
    "conditions": {"lazy", "gpu", "core", "_runtime"},
    "schedulers": {"core"},
    "resources": {"lazy", "waits", "gpu", "tensor", "core", "_runtime", "link", "conditions"},
    "topics": {"lazy", "waits", "tensor", "core", "_runtime", "link", "conditions"},
    "video": {"lazy", "waits"},
    "inference": {"brief", "lazy", "installation", "gpu", "tensor", "core"},
    "_web": {"lazy", "waits"},
    "viewer": {"brief", "lazy", "waits", "video", "_web"},
    "operators": {
        *("brief", "notebook", "lazy", "waits", "gpu", "tensor", "core", "_runtime", "conditions"),
        *("resources", "video", "inference", "viewer"),
    },
    "drawing": {"core", "_runtime"},
    "observe": {
        "brief",
        "notebook",
        "installation",
        "lazy",
        "waits",
        "gpu",
        "tensor",
        "core",
        "_runtime",
        "resources",
        "_web",
    },
    "planner": {"brief", "lazy", "gpu", "core", "_runtime", "capture", "resources", "observe"},
    "application": {
        "planner",
        "brief",
        "lazy",
        "notebook",
        "core",
        "_runtime",
        "capture",
        "replicas",
        "link",
        "conditions",
        "schedulers",
        "resources",
        "operators",
        "drawing",
        "observe",
        "waits",
        "topics",
    },
    "testing": {
        *("lazy", "gpu", "core", "_runtime", "conditions", "schedulers", "resources", "observe"),
        "application",
    },
    "vocabulary": {"brief", "tensor", "core", "application"},
    "cli": {
        *("version", "installation", "gpu", "core", "_runtime", "capture", "conditions", "schedulers"),
        *("waits", "operators", "topics", "observe", "application", "planner", "resources"),
    },
    "parts": {
        *("version", "waits", "gpu", "core", "_runtime", "conditions", "link", "observe", "operators"),
        *("application", "cli"),
    },
    "__main__": {"cli"},
    "cluster": {"lazy", "core", "link", "parts"},
    "headrace": {
        *("version", "tensor", "core", "conditions", "schedulers", "resources", "operators", "observe"),
        *("application", "testing"),
    },
}

# `headrace.core` offers the application, as the SDK's core does, and imports it when a program asks for it.
# The application starts the processes of its parts, which import the application.
EXCEPT = {
    ("headrace/application/runner.py", "headrace.parts.driver"),
    ("headrace/application/runner.py", "headrace.parts.agent"),
    ("headrace/application/runner.py", "headrace.parts.environment"),
    ("headrace/application/runner.py", "headrace.parts.hosting"),
    ("headrace/application/runner.py", "headrace.cluster.ray_hosting"),
    ("headrace/cli/run.py", "headrace.parts.agent"),
    ("headrace/cli/run.py", "headrace.parts.driver"),
    ("headrace/core/__init__.py", "headrace.application"),
    ("headrace/core/__init__.py", "headrace.application.parts"),
    ("headrace/core/__init__.py", "headrace.application.reload"),
}

# The same for the parts of the runtime.
PARTS_OF_RUNTIME = {
    "messages": set(),
    "streams": {"messages"},
    "contexts": {"messages", "streams"},
    "scheduling": {"messages", "streams", "contexts"},
    "lifecycle": {"messages", "streams", "contexts", "scheduling"},
}

# The most files in a cycle of imports, imports for types included.
LARGEST_CYCLE = 10


def layer_of(module: str) -> str:
    """Return the layer that a module of headrace belongs to."""
    _, _, rest = module.partition(".")
    return rest.partition(".")[0] or "headrace"


def is_module(name: str) -> bool:
    path = PACKAGE.parent / name.replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").is_file()


def name_of(file: Path) -> str:
    """Return the name of the module in a file, with ``__init__`` at its end where it is a package's."""
    return ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)


def source_of(file: Path) -> str:
    """Return the source of a module, with the stub that lists the names of a package that imports them lazily."""
    stub = file.with_suffix(".pyi")
    return file.read_text() + (stub.read_text() if stub.exists() else "")


@cache
def imported_modules(source: str, module: str) -> list[tuple[int, str]]:
    """Return every module of headrace that `module` imports, wherever the statement stands, with its line."""
    return list(_imported_modules(source, module))


STRING = re.compile(r'("""|\'\'\').*?\1', re.DOTALL)
IMPORT = re.compile(r"^[ \t]*((?:from|import)\b[^(\n]*(?:\([^)]*\))?[^\n]*)", re.MULTILINE)
INLINE = re.compile(r"[;:][ \t]*(?:from|import)\b|\\\n|import_module|__import__")


def _nodes(source: str) -> Iterator[ast.AST]:
    """Yield the import statements of a source, or all that is in it. Most can be found without a tree of it."""
    code = STRING.sub(lambda found: "\n" * found[0].count("\n"), source)
    if INLINE.search(code):
        yield from ast.walk(parse(source))
        return
    for found in IMPORT.finditer(code):
        (node,) = ast.parse(found[1]).body
        ast.increment_lineno(node, code.count("\n", 0, found.start()))
        yield node


def _imported_modules(source: str, module: str) -> Iterator[tuple[int, str]]:
    for node in _nodes(source):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                parent = module.split(".")[: -node.level]
                base = ".".join([*parent, *([base] if base else [])])
            # `from package import name` imports the module of that name, where there is one.
            names = [f"{base}.{alias.name}" for alias in node.names]
            found = [name if is_module(name) else base for name in names]
        elif is_call_of_import(node):
            found = [node.args[0].value]
        else:
            continue
        yield from ((node.lineno, name) for name in found if name.split(".")[0] == "headrace")


def is_call_of_import(node: ast.AST) -> bool:
    """Return whether a node is ``import_module("...")`` or ``__import__("...")``."""
    if not (isinstance(node, ast.Call) and node.args and isinstance(node.args[0], ast.Constant)):
        return False
    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return called in ("import_module", "__import__") and isinstance(node.args[0].value, str)


@cache
def imports() -> list[tuple[str, int, str, str]]:
    """Return file, line, importing layer and imported module of every import between the layers."""
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        module = name_of(file).removesuffix(".__init__") if file.parent == PACKAGE else name_of(file)
        layer = layer_of(module)
        for line, name in imported_modules(source_of(file), name_of(file)):
            path = str(file.relative_to(PACKAGE.parent))
            if layer_of(name) != layer and (path, name) not in EXCEPT:
                found.append((path, line, layer, name))
    return found


def test_a_layer_imports_only_what_it_stands_on() -> None:
    wrong = [
        f"{file}:{line} imports {name}, and {layer} may import {', '.join(sorted(LAYERS[layer])) or 'nothing'}"
        for file, line, layer, name in imports()
        if layer_of(name) not in LAYERS[layer]
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_table_has_every_package_and_no_circle() -> None:
    packages = {file.parent.name for file in PACKAGE.glob("*/__init__.py")}
    modules = {file.stem for file in PACKAGE.glob("*.py") if file.stem != "__init__"}
    assert set(LAYERS) == packages | modules | {"headrace"}
    below: set[str] = set()
    for layer, may_import in LAYERS.items():
        assert may_import <= below, f"{layer} may import {may_import - below}, which does not stand below it"
        below.add(layer)


def test_the_table_allows_nothing_that_is_not_used() -> None:
    used = {(layer, layer_of(name)) for _, _, layer, name in imports()}
    allowed = {(layer, other) for layer, others in LAYERS.items() for other in others}
    assert allowed - used == set()


def test_the_runtime_is_imported_by_its_face_alone() -> None:
    wrong = [
        f"{file}:{line} imports {name}; it imports from headrace._runtime what that lists"
        for file, line, _, name in imports()
        if name.startswith("headrace._runtime.")
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def part_of(module: str) -> str:
    """Return the part of the runtime that a module belongs to, or "" if it is in none."""
    names = module.split(".")
    return names[2] if names[:2] == ["headrace", "_runtime"] and len(names) > 3 else ""


def test_a_part_of_the_runtime_imports_only_those_below_it() -> None:
    wrong = [
        f"{module}:{line} imports {name}, and {part_of(module)} may import "
        f"{', '.join(sorted(PARTS_OF_RUNTIME[part_of(module)])) or 'none of the others'}"
        for module, (source, _) in modules().items()
        if part_of(module) in PARTS_OF_RUNTIME
        for line, name in imported_modules(source, module)
        if part_of(f"{name}.")
        in PARTS_OF_RUNTIME.keys() - {part_of(module)} - PARTS_OF_RUNTIME[part_of(module)]
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_table_has_every_part_of_the_runtime() -> None:
    folders = {file.parent.name for file in PACKAGE.glob("_runtime/*/__init__.py")}
    assert folders - {"capture"} == set(PARTS_OF_RUNTIME)


@cache
def modules() -> dict[str, tuple[str, set[str]]]:
    """Return the source of every module, and the modules of headrace that it imports."""
    sources = {name_of(file): source_of(file) for file in sorted(PACKAGE.rglob("*.py"))}
    return {
        module: (
            source,
            {
                name if name in sources else f"{name}.__init__"
                for _, name in imported_modules(source, module)
                if name in sources or f"{name}.__init__" in sources
            },
        )
        for module, source in sources.items()
    }


def cycles(graph: dict[str, set[str]]) -> list[set[str]]:
    """Return the sets of modules that import each other, directly or through others (Tarjan's method)."""
    number: dict[str, int] = {}
    lowest: dict[str, int] = {}
    stack: list[str] = []
    found: list[set[str]] = []

    def visit(module: str) -> None:
        number[module] = lowest[module] = len(number)
        stack.append(module)
        for other in graph[module]:
            if other not in number:
                visit(other)
            if other in stack:
                lowest[module] = min(lowest[module], lowest[other])
        if lowest[module] == number[module]:
            place = stack.index(module)
            found.append(set(stack[place:]))
            del stack[place:]

    for module in graph:
        if module not in number:
            visit(module)
    return [cycle for cycle in found if len(cycle) > 1]


def test_no_cycle_of_files_is_large() -> None:
    graph = {module: imported - {module} for module, (_, imported) in modules().items()}
    wrong = [
        f"{len(cycle)} files import each other: {', '.join(sorted(cycle))}"
        for cycle in cycles(graph)
        if len(cycle) > LARGEST_CYCLE
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_a_cycle_is_found_through_any_number_of_files() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a"}}
    assert sorted(map(sorted, cycles(graph))) == [["a", "b", "c"], ["d", "e"]]


def test_contributing_draws_the_same_layers() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    drawn = {
        layer: set(re.findall(r"\w+", below))
        for layer, below in re.findall(r"^  (\w+) +-> +(.*)$", text, re.MULTILINE)
    }
    assert {layer: below - {"nothing"} for layer, below in drawn.items()} == LAYERS
    assert list(drawn) == list(reversed(LAYERS)), "drawn from the top to the bottom"


def test_contributing_names_every_folder() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text().partition("src/headrace/\n")[2].partition("\ntests/")[0]
    named: list[Path] = []
    above = [PACKAGE]
    for indent, name in re.findall(r"^((?:  )+)(\w+)/ ", text, re.MULTILINE):
        depth = len(indent) // 2
        above[depth:] = [above[depth - 1] / name]
        named.append(above[depth])
    folders = {file.parent for file in PACKAGE.rglob("*.py")} - {PACKAGE}
    assert len(named) == len(set(named))
    assert {path.relative_to(PACKAGE) for path in named} == {path.relative_to(PACKAGE) for path in folders}


@pytest.mark.parametrize(
    "statement",
    [
        "import headrace.conditions",
        "import headrace.conditions.ending as ending",
        "from headrace import conditions",
        "from headrace.conditions import CountCondition",
        "from .. import conditions",
        "from ..conditions import ending",
        "from ..conditions.ending import CountCondition",
        "def f():\n    from headrace.conditions import CountCondition",
        "if TYPE_CHECKING:\n    from headrace.conditions import CountCondition",
        "import_module('headrace.conditions')",
    ],
)
def test_no_form_of_import_goes_unseen(statement: str) -> None:
    ((_, name),) = imported_modules(statement, "headrace.core.operator")
    assert layer_of(name) == "conditions"


def test_a_name_of_the_whole_package_counts_as_an_import_from_the_top() -> None:
    ((_, name),) = imported_modules("from headrace import Operator", "headrace.core.operator")
    assert layer_of(name) == "headrace"


def test_an_operator_and_an_input_keep_no_state_of_features() -> None:
    """Each feature keeps its state beside itself; what grows here is known to everybody."""
    from headrace import Application, Operator
    from headrace._runtime import InputPort

    kept = vars(Operator(Application())._headrace)
    assert len(kept) <= 15, sorted(kept)
    assert len(InputPort.__slots__) <= 12


def _files_with(pattern: str, *folders: str) -> set[str]:
    """Return the files whose code, without comments and docstrings, has a pattern."""
    found = set()
    for folder in folders:
        for file in (PACKAGE / folder).rglob("*.py"):
            text = file.read_text()
            if not re.search(pattern, text):  # to parse the others takes most of the time
                continue
            if re.search(pattern, ast.unparse(_without_docstrings(ast.parse(text)))):
                found.add(str(file.relative_to(PACKAGE)))
    return found


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            node.body = [
                each
                for each in node.body
                if not (isinstance(each, ast.Expr) and isinstance(each.value, ast.Constant))
            ] or [ast.Pass()]
    return tree


def test_three_files_know_that_a_run_may_be_paused() -> None:
    """Whoever wants to know whether a node may begin asks the gate; parts have pauses of several processes."""
    known = _files_with(r"(?i)paus", "core", "_runtime", "capture", "conditions", "replicas", "application")
    assert known == {"core/control.py", "_runtime/scheduling/gate.py", "application/fragment.py"}
