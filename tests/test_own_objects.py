"""A user's own function by import path, and one line for every way that can go wrong."""

import functools
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from p2p_tally.errors import ConfigError
from p2p_tally.own_objects import fingerprint, import_object, import_path

Write = Callable[[str, str], None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Writes a module into the working folder; search path and loaded modules are as before afterwards."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))

    def write(name: str, text: str) -> None:
        monkeypatch.delitem(sys.modules, name, raising=False)
        path = tmp_path / (name.replace(".", "/") + ".py")
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    return write


def test_a_function_of_the_working_folder(write: Write) -> None:
    write("users_functions_a", "def answer():\n    return 42\n")
    assert import_object("users_functions_a:answer", "--model")() == 42


def test_a_function_of_a_package(write: Write) -> None:
    write("users_package_b.inner", "def answer():\n    return 43\n")
    assert import_object("users_package_b.inner:answer", "--model")() == 43


def test_the_working_folder_is_put_on_the_path_once(write: Write, tmp_path: Path) -> None:
    write("users_functions_c", "def answer():\n    return 44\n")
    for _ in range(3):
        import_object("users_functions_c:answer", "--model")
    assert sys.path.count(str(tmp_path)) == 1


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("no_such_module_d:answer", "no module named 'no_such_module_d'"),
        ("json.no_such_part:answer", "no module named 'json.no_such_part'"),
        ("json:no_such_function", "has no function 'no_such_function'"),
        ("json:", "has no function ''"),
        (":answer", "accepted is package.module:function"),
        (".relative:answer", "accepted is package.module:function"),
        ("..:answer", "accepted is package.module:function"),
    ],
)
def test_bad_paths_are_one_line(spec: str, said: str, write: Write) -> None:
    with pytest.raises(ConfigError) as caught:
        import_object(spec, "--model")
    message = str(caught.value)
    assert message.startswith(f"--model {spec}: ")
    assert said in message
    assert "\n" not in message


def test_a_module_that_the_users_module_misses_is_the_one_named(write: Write) -> None:
    write("users_functions_e", "import no_such_dependency_e\n")
    with pytest.raises(ConfigError, match="no module named 'no_such_dependency_e'"):
        import_object("users_functions_e:answer", "--data")


# --- the name of an object


def test_what_stands_at_the_top_of_a_module_has_a_name(write: Write) -> None:
    write("users_objects_f", "def function():\n    pass\n\nclass Net:\n    pass\n\nROW = Net()\n_HIDDEN = Net()\n")
    objects = import_object("users_objects_f:function", "--model")
    assert import_path(objects) == "users_objects_f:function"
    module = sys.modules["users_objects_f"]
    assert import_path(module.Net) == "users_objects_f:Net"
    assert import_path(module.ROW) == "users_objects_f:ROW"
    assert import_path(module._HIDDEN) is None
    assert import_object("users_objects_f:ROW", "--method", "ROW") is module.ROW


def test_what_is_made_inside_a_function_has_none() -> None:
    def inner() -> None: ...

    assert import_path(inner) is None
    assert import_path(lambda: 0) is None
    assert import_path(object()) is None


@pytest.mark.parametrize("start", [["users_main_g.py"], ["-m", "users_main_g"]])
def test_what_the_main_script_defines_has_none(start: list[str], write: Write, tmp_path: Path) -> None:
    """Another process would import another main script, or run this one again."""
    write(
        "users_main_g",
        "from p2p_tally.own_objects import import_path\n\ndef own():\n    pass\n\nROW = [1]\n"
        "print(import_path(own), import_path(ROW))\n",
    )
    done = subprocess.run([sys.executable, *start], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout == "None None\n"


def test_the_fingerprint_of_a_partial_is_that_of_its_parts() -> None:
    one, same, other = (functools.partial(json.dumps, indent=indent) for indent in (1, 1, 2))
    assert fingerprint(one) == fingerprint(same) != fingerprint(other)
    assert fingerprint(one) != fingerprint(functools.partial(json.dump, indent=1))
