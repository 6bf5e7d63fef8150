"""An environment for each system, made once from its pinned versions: build/peers/NAME."""

import hashlib
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
HOME = HERE.parents[2] / "build" / "peers"
OWN = "p2p-tally"  # the environment that runs this script, which scripts/setup makes from scripts/constraints.txt

# p2pfl imports torchvision for data sets that the job does not use. Beside a CPU-only torch its wheel can be imported
# only without this file, which registers operators that its compiled part did not declare.
EMPTIED = {"p2pfl": "torchvision/_meta_registrations.py"}


class NoEnvironment(Exception):
    """It could not be made. The text says why."""


def python_of(name: str, make: bool = True) -> Path:
    """Its Python. Without `make` it must be there already."""
    if name == OWN:
        return Path(sys.executable)
    pinned = HERE / "pinned" / f"{name}.txt"
    folder, wanted = HOME / name, hashlib.sha256(pinned.read_bytes()).hexdigest()
    python, stamp = folder / "bin" / "python", folder / "installed"
    if not (stamp.exists() and stamp.read_text(encoding="utf-8") == wanted):
        if not make:
            raise NoEnvironment("not installed")
        print(f"making {folder} (once; minutes where packages must be fetched)", file=sys.stderr, flush=True)
        _run(sys.executable, "-m", "venv", "--clear", folder)
        # The list is complete, so nothing is resolved: p2pfl asks for a torchvision that no current torch works with.
        _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "-r", pinned)
        if name in EMPTIED:
            (file,) = folder.glob(f"lib/python*/site-packages/{EMPTIED[name]}")
            file.write_text("", encoding="utf-8")
        stamp.write_text(wanted, encoding="utf-8")
    return python


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line for line in done.stderr.splitlines() if "ERROR" in line] or done.stderr.splitlines()
        raise NoEnvironment(f"not installed: {(said or ['no reason given'])[0]}")
