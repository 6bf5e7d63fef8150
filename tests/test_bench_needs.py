"""A bench that lacks what it needs says so and ends."""

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[1] / "scripts" / "bench" / "training.py"

WITHOUT_TORCHVISION = """
import runpy, sys
sys.modules["torchvision"] = None  # as if it were not installed
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_training_without_torchvision_is_one_line_and_ends() -> None:
    command = [sys.executable, "-c", WITHOUT_TORCHVISION, str(BENCH)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert "resnet18 needs torchvision: pip install" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
