"""The shape of the code: modules of a size that can be read, and objects that nobody but themselves changes."""

import ast
from collections import Counter
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = [
    path.relative_to(ROOT)
    for folder in ("p2p_tally", "runner", "topologies")
    for path in sorted((ROOT / folder).rglob("*.py"))  # which does not follow the links in p2p_tally
]

MOST_LINES = 350
NODE = Path("p2p_tally/node/node.py")
NODE_LINES = 200

# Objects of other libraries that offer no other way: in which files, which assignments, and why.
ALLOWED = [
    ("p2p_tally/learning/norms.py", "norm.track_running_stats", "torch: a BatchNorm that writes nothing in training"),
    ("p2p_tally/learning/parameters.py", "parameter.data", "torch: the parameters become views of one vector"),
    ("p2p_tally/learning/parameters.py", "parameter.grad", "torch: the same for the gradients"),
    ("p2p_tally/node/links/http_log.py", "record.*", "logging: a filter may change and extend a record"),
    ("p2p_tally/node/service/logs.py", "record.*", "logging: a filter may change and extend a record"),
    ("p2p_tally/node/service/logs.py", "root.handlers", "logging: in place of the handlers that are there"),
    ("p2p_tally/cli_options.py", "wrapper.__*__", "inspect: the signature that typer makes options from"),
]


def assignments(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of every assignment to an attribute of an object that is not the writer's own.

    A method may assign to `self` or `cls`, and a function to an object that it has made itself by calling a class:
    until it returns nobody else knows that object.
    """
    yield from _in_scope(ast.parse(source), set())


def _in_scope(scope: ast.AST, outer: set[str]) -> Iterator[tuple[int, str]]:
    bound, fresh = _names(scope)
    made = {name for name in outer if not bound[name]} | {name for name in fresh if bound[name] == 1}
    for node in _walk_scope(scope):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield from _in_scope(node, made)
        else:
            yield from _foreign(node, made)


def _walk_scope(scope: ast.AST) -> Iterator[ast.AST]:
    """Every node of a function, class or module; inner functions and classes as one node each."""
    for node in ast.iter_child_nodes(scope):
        yield node
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.ClassDef):
            yield from _walk_scope(node)


def _names(scope: ast.AST) -> tuple[Counter[str], set[str]]:
    """How often a scope binds each name; and the names bound to the call of a class or of cls.__new__."""
    bound: Counter[str] = Counter()
    made: set[str] = set()
    for node in _walk_scope(scope):
        match node:
            case ast.Name(id=name, ctx=ast.Store()) | ast.arg(arg=name):
                bound[name] += 1
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if _makes(value):
                made.add(name)
            case ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value) if _makes(value):
                made.add(name)
    return bound, made


def _makes(value: ast.expr) -> bool:
    """A class is known by its capital letter."""
    match value:
        case ast.Call(func=ast.Name(id=name)) | ast.Call(func=ast.Attribute(attr=name)):
            return name.lstrip("_")[:1].isupper() or name == "__new__"
    return False


def _foreign(node: ast.AST, made: set[str]) -> Iterator[tuple[int, str]]:
    targets: list[ast.expr] = []
    match node:
        case ast.Attribute(ctx=ast.Store() | ast.Del()):  # plain, augmented, annotated, unpacked, in for and with
            targets = [node]
        case ast.Call(func=ast.Name(id="setattr" | "delattr"), args=[target, *_]):
            targets = [ast.Attribute(target, "")]
        case ast.Call(func=ast.Attribute(attr="__setattr__" | "__delattr__"), args=[target, *_]):
            targets = [ast.Attribute(target, "")]
    for target in targets:
        assert isinstance(target, ast.Attribute)
        owner = target.value
        own = isinstance(owner, ast.Name) and (owner.id in ("self", "cls") or owner.id in made)
        if not own:
            yield getattr(node, "lineno", 0), ast.unparse(node)


@pytest.mark.parametrize(
    "source",
    [
        "def f(x): x.y = 1",
        "def f(x): x.y += 1",
        "def f(x): x.y: int = 1",
        "def f(x): x.y, z = 1, 2",
        "def f(x):\n    for x.y in range(3): pass",
        "def f(x): del x.y",
        "def f(x): setattr(x, 'y', 1)",
        "def f(x): object.__setattr__(x, 'y', 1)",
        "class A:\n    def f(self): self.x.y = 1",
        "class A:\n    def f(self, other): other.y = 1",
        "def f():\n    x = find()\n    x.y = 1",
        "def f(x):\n    if x is None:\n        x = A()\n    x = given()\n    x.y = 1",
        "def f():\n    for x in [1]:\n        x.y = 1\n    x = A()",
        "def f():\n    x = A()\ndef g(x):\n    x.y = 1",
        "def f():\n    x = A()\n    def g(x): x.y = 1",
        "def f(x):\n    if x is None:\n        x = A()\n    x.y = 1",
        "lambda x: setattr(x, 'y', 1)",
        "x.y = 1",
    ],
)
def test_an_assignment_to_another_object_is_found(source: str) -> None:
    assert len(list(assignments(source))) == 1


@pytest.mark.parametrize(
    "source",
    [
        "class A:\n    def f(self): self.y = 1; self.z += 1",
        "class A:\n    @classmethod\n    def f(cls): cls.y = 1",
        "class A:\n    def f(self): object.__setattr__(self, 'y', 1)",
        "def f():\n    x = A()\n    x.y = 1\n    return x",
        "def f():\n    x = module.A()\n    def g(): x.y = 1",
        "class A:\n    @classmethod\n    def f(cls):\n        x = cls.__new__(cls)\n        x.y = 1",
        "def f(x): x['y'] = 1; y = x.y; x.y.append(1)",
    ],
)
def test_an_object_may_change_itself_and_be_filled_where_it_is_made(source: str) -> None:
    assert list(assignments(source)) == []


@pytest.mark.parametrize("path", SOURCES)
def test_no_attribute_of_another_object_is_assigned(path: Path) -> None:
    found = [
        f"{path}:{line}: {text}"
        for line, text in assignments((ROOT / path).read_text(encoding="utf-8"))
        if not any(path.as_posix() == file and fnmatchcase(text, pattern) for file, pattern, _ in ALLOWED)
    ]
    assert not found, "give it to the constructor, or call a method that changes it:\n" + "\n".join(found)


@pytest.mark.parametrize("path", SOURCES)
def test_a_module_can_be_read_in_one_sitting(path: Path) -> None:
    lines = len((ROOT / path).read_text(encoding="utf-8").splitlines())
    assert lines <= (NODE_LINES if path == NODE else MOST_LINES)


@pytest.mark.parametrize(("file", "pattern", "reason"), ALLOWED)
def test_what_is_allowed_is_there(file: str, pattern: str, reason: str) -> None:
    """An exception that nothing needs any more is taken out of the list."""
    texts = [text for _, text in assignments((ROOT / file).read_text(encoding="utf-8"))]
    assert any(fnmatchcase(text, pattern) for text in texts), reason


def test_the_sources_are_found() -> None:
    """Nothing would be wrong with no sources either."""
    assert NODE in SOURCES
    assert {path.parts[0] for path in SOURCES} == {"p2p_tally", "runner", "topologies"}
    assert len(SOURCES) > 100 and not any(path.parts[:2] == ("p2p_tally", "runner") for path in SOURCES)


@pytest.mark.parametrize("path", [path for path in SOURCES if path.name == "__init__.py"], ids=str)
def test_a_package_says_what_it_is_for(path: Path) -> None:
    assert ast.get_docstring(ast.parse((ROOT / path).read_text(encoding="utf-8")))


def test_every_folder_of_modules_is_a_package() -> None:
    folders = {path.parent for path in SOURCES}
    assert folders == {path.parent for path in SOURCES if path.name == "__init__.py"}
