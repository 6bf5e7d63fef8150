"""docs/notebooks/first-hour.ipynb runs from its first cell to its last, and what it shows is what it prints.

`python tests/test_notebook.py` writes the outputs of a fresh run into the file.
"""

import re
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOK = Path(__file__).parents[1] / "docs" / "notebooks" / "first-hour.ipynb"


def executed(folder: Path) -> Any:
    """A copy of the notebook with the outputs of a run, in a kernel whose working folder this is."""
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    resources = {"metadata": {"path": str(folder)}}
    NotebookClient(notebook, timeout=300, startup_timeout=300, resources=resources).execute()
    return notebook


def printed(notebook: Any) -> list[str]:
    """What each cell printed on standard output."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return ["".join(output.text for output in cell.outputs if output.get("name") == "stdout").strip() for cell in cells]


def test_the_notebook_runs_and_prints_what_it_shows(tmp_path: Path) -> None:
    shown = nbformat.read(NOTEBOOK, as_version=4)
    ran = executed(tmp_path)
    # Another processor may give other digits: the words and the number of lines are compared.
    assert [_without_numbers(text) for text in printed(ran)] == [_without_numbers(text) for text in printed(shown)]
    drawn = [
        cell for cell in ran.cells if any("image/png" in output.get("data", {}) for output in cell.get("outputs", []))
    ]
    assert len(drawn) == 1
    errors = [output for cell in ran.cells for output in cell.get("outputs", []) if output.get("name") == "stderr"]
    assert errors == []


def _without_numbers(text: str) -> str:
    return re.sub(r"[\d.,]+", "#", text)


def test_what_is_committed_is_small_and_whole() -> None:
    shown = nbformat.read(NOTEBOOK, as_version=4)
    nbformat.validate(shown)
    assert NOTEBOOK.stat().st_size < 60_000
    assert all(cell.outputs for cell in shown.cells if cell.cell_type == "code")
    headings = [line for cell in shown.cells for line in cell.source.splitlines() if line.startswith("## ")]
    assert headings == [
        "## Simulate",
        "## Look",
        "## Your own model",
        "## Your own rule",
        "## Real nodes, from here",
        "## Load and predict",
        "## Where to go on",
    ]


if __name__ == "__main__":
    import tempfile

    fresh = executed(Path(tempfile.mkdtemp()))
    for cell in fresh.cells:
        cell.metadata.pop("execution", None)
    nbformat.write(fresh, NOTEBOOK)
