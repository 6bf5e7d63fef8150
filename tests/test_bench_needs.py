"""A script that lacks what it needs says so in one line and ends."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPTS = Path(__file__).parents[1] / "scripts"

WITHOUT = """
import runpy, sys
_, missing, *sys.argv = sys.argv
sys.modules[missing] = None  # as if it were not installed
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(
    ("script", "missing", "said"),
    [
        ("bench/training.py", "torchvision", "resnet18 needs torchvision: pip install"),
        ("bench/overhead.py", "psutil", "overhead.py needs psutil"),
        ("bench/page.py", "playwright", "page.py needs playwright"),
        ("screenshots.py", "playwright", "screenshots.py needs playwright"),
    ],
)
def test_what_is_missing_is_named_and_the_script_ends(script: str, missing: str, said: str) -> None:
    command = [sys.executable, "-c", WITHOUT, missing, str(SCRIPTS / script)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode in (1, 2)
    assert said in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
