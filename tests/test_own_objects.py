"""A user's own function by import path, and one line for every way that can go wrong."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from p2p_tally.errors import ConfigError
from p2p_tally.own_objects import import_object

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
