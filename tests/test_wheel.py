"""The installed package: one name in site-packages, and commands that run whatever lies in the working folder."""

import json
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from p2p_tally import __version__
from p2p_tally.page.document import ASSETS

ROOT = Path(__file__).parents[1]
QUICK = ["--nodes=2", "--rounds=2", "--local-steps=1", "--warmup=0"]

CELL = """
[facts]
classes = 10
parameters = 4_810
[base]
nodes = 2
rounds = 2
local_steps = 1
[[cells]]
name = "only"
"""

# Files of a user's own. Whoever imports one in the place of p2p-tally's or Python's own fails.
TRAPS = ["runner.py", "topologies.py", "json.py", "random.py", "struct.py", "typing.py", "p2p_tally.py"]

MODEL = """
from torch import nn

def model(input_shape, classes):
    return nn.Linear(input_shape[0], classes)
"""


def run(arguments: list[str | Path], folder: Path) -> str:
    """Standard output of a command that must succeed. Nothing of the environment says where modules are."""
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        arguments, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout


def build(kind: str, source: Path, into: Path) -> Path:
    """A wheel or sdist of a source tree, without a network: setuptools is one of the tests' own dependencies."""
    into.mkdir(exist_ok=True)
    program = f"import sys; from setuptools import build_meta; build_meta.build_{kind}(sys.argv[1])"
    run([sys.executable, "-P", "-c", program, str(into)], source)
    [made] = into.iterdir()
    return made


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the sources: a build leaves files in the tree."""
    copy = tmp_path_factory.mktemp("source")
    for name in ("p2p_tally", "runner", "topologies"):
        shutil.copytree(ROOT / name, copy / name, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    return copy


@pytest.fixture(scope="module")
def wheel(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build("wheel", source, tmp_path_factory.mktemp("built") / "wheel")


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A virtual environment with the wheel in it, and with the dependencies of the one that runs the tests."""
    home = tmp_path_factory.mktemp("installed")
    venv.create(home, symlinks=True)
    [packages] = home.glob("lib/python*/site-packages")
    assert list(packages.iterdir()) == []
    pip = [sys.executable, "-m", "pip", "--python", home / "bin" / "python", "--disable-pip-version-check"]
    run([*pip, "install", "--quiet", "--no-deps", "--no-index", "--no-compile", wheel], home)
    assert {path.name for path in packages.iterdir()} == {"p2p_tally", f"p2p_tally-{__version__}.dist-info"}
    # A folder that a .pth file names is searched last, and .pth files in it are not read: of the tests' environment
    # the dependencies are found, and not the project.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    yield home
    shutil.rmtree(home)


@pytest.fixture
def workplace(tmp_path: Path) -> Path:
    """A user's folder: a module of their own, and files with names that others have too."""
    for name in TRAPS:
        (tmp_path / name).write_text(f"raise AssertionError('{name} of the working folder was imported')\n")
    (tmp_path / "mine.py").write_text(MODEL)
    return tmp_path


def test_what_a_wheel_holds(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    assert {name.partition("/")[0] for name in names} == {"p2p_tally", f"p2p_tally-{__version__}.dist-info"}
    wanted = {"p2p_tally/py.typed", "p2p_tally/runner/__init__.py", "p2p_tally/topologies/__init__.py"}
    wanted |= {f"p2p_tally/runner/presets/{path.name}" for path in (ROOT / "runner" / "presets").glob("*.toml")}
    for folder in ("runner", "topologies"):
        wanted |= {f"p2p_tally/{path.relative_to(ROOT)}" for path in (ROOT / folder).rglob("*.py")}
    wanted |= {str(path.relative_to(ROOT)) for path in (ROOT / "p2p_tally").rglob("*.py")}
    wanted |= {str(path.relative_to(ROOT)) for path in ASSETS.rglob("*") if path.is_file()}
    assert wanted <= names
    assert len(wanted) > 150


def test_a_source_archive_gives_the_same_wheel(source: Path, wheel: Path, tmp_path: Path) -> None:
    """In the tree runner and topologies are links; in an archive they are folders."""
    archive = build("sdist", source, tmp_path / "sdist")
    with tarfile.open(archive) as opened:
        opened.extractall(tmp_path, filter="data")
    again = build("wheel", tmp_path / archive.name.removesuffix(".tar.gz"), tmp_path / "wheel")
    assert sorted(zipfile.ZipFile(again).namelist()) == sorted(zipfile.ZipFile(wheel).namelist())


def test_commands_run_beside_files_of_the_same_names(installed: Path, workplace: Path) -> None:
    command = installed / "bin" / "p2p-tally"
    here = run([installed / "bin" / "python", "-P", "-c", "import p2p_tally; print(p2p_tally.__file__)"], workplace)
    assert Path(here.strip()).is_relative_to(installed)
    simulated = json.loads(run([command, "simulate", *QUICK, "--json", "--out=simulated"], workplace))
    launched = json.loads(run([command, "launch", *QUICK, "--page", "--json", "--out=launched"], workplace))
    assert launched["parameters_sha256"] == simulated["parameters_sha256"]
    (workplace / "cell.toml").write_text(CELL)
    swept = json.loads(run([command, "sweep", "cell.toml", "--json", "--out=swept"], workplace))
    assert (swept["done"], swept["failed"]) == (1, 0)


def test_a_module_of_the_working_folder_is_found_by_every_process(installed: Path, workplace: Path) -> None:
    command = installed / "bin" / "p2p-tally"
    arguments = [command, "launch", *QUICK, "--model=mine:model", "--json", "--out=launched"]
    assert len(json.loads(run(arguments, workplace))["accuracy"]) == 2


def test_the_library_is_not_mistaken_for_modules_of_the_working_folder(installed: Path, workplace: Path) -> None:
    """`python -m` puts the working folder first on the path, as a script or a notebook does."""
    for name in TRAPS:
        if name not in ("runner.py", "topologies.py"):  # with the others Python itself does not start there
            (workplace / name).unlink()
    arguments = [installed / "bin" / "python", "-m", "p2p_tally", "simulate", *QUICK, "--json", "--out=simulated"]
    assert len(json.loads(run(arguments, workplace))["accuracy"]) == 2
