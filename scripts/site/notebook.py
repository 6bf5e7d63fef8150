"""A notebook as a page: its text, its code, and what it printed and drew."""

import json
from pathlib import Path
from typing import Any


def as_markdown(path: Path) -> str:
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return "\n\n".join(part for cell in cells for part in _parts(cell)) + "\n"


def _parts(cell: dict[str, Any]) -> list[str]:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return [source]
    return [_fenced("python", source), *(text for output in cell["outputs"] if (text := _output(output)))]


def _output(output: dict[str, Any]) -> str:
    if output["output_type"] == "stream":
        return _fenced("text", "".join(output["text"])) if output["name"] == "stdout" else ""
    data = output.get("data", {})
    if "image/png" in data:
        return f"![what the cell draws](data:image/png;base64,{''.join(data['image/png']).strip()})"
    return _fenced("text", "".join(data["text/plain"])) if "text/plain" in data else ""


def _fenced(language: str, text: str) -> str:
    return f"```{language}\n{text.rstrip()}\n```"
