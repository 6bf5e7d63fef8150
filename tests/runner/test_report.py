"""Reports: tables and figures from folders of runs."""

import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
from runner_made_up import make_sweep

from p2p_tally.errors import ConfigError, DataError
from runner.report import figures, markdown_tables, write_report
from runner.results import collect


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sweep(tmp_path_factory.mktemp("sweeps") / "bridge", "bridge-small", leave_out=("feddf",))


def test_a_table_in_the_papers_form(bridge: Path) -> None:
    text = markdown_tables([bridge])
    assert text.startswith("## Table 2: CIFAR-10")
    assert "10 peers, 300 rounds" in text
    assert "No finished run: feddf." in text
    assert "first 1000 test examples" in text
    rows = {line.split("`")[1]: [part.strip() for part in line.split("|")] for line in text.splitlines() if "`" in line}
    assert list(rows)[:3] == ["local", "fedavg-fa5", "fedavg-fa20"]
    assert re.fullmatch(r"\d\d\.\d\d ± \d\.\d\d", rows["tally+fa20"][2])
    assert rows["tally+fa20"][5] == "2,765,632"  # 13 merges + 9 x 16 x 270
    assert "71.92 ± 0.38" in rows["tally+fa20"]  # the paper's, of tally+fa200
    assert "perplexity" not in text


def test_language_models_have_a_perplexity(tmp_path: Path) -> None:
    text = markdown_tables([make_sweep(tmp_path / "lm", "language-model-small", seeds=(0,))])
    assert "tail perplexity" in text
    assert "| 400.0 |" in text
    assert "| 10,087 |" in text


def test_runs_made_one_by_one_are_told_apart(bridge: Path) -> None:
    [results] = collect([bridge / "tally", bridge / "local" / "seed-1", bridge / "fedprox-fa5"])
    assert [(cell.name, len(cell.runs)) for cell in results.cells] == [("tally", 2), ("local", 1), ("fedprox-fa5", 2)]


def test_which_figures_are_drawn(bridge: Path, tmp_path: Path) -> None:
    paths = [bridge]
    presets = ("probes-per-round-small", "cross-distribution-small", "probe-pools-small", "hybrid-small")
    paths += [make_sweep(tmp_path / name, name, seeds=(0,)) for name in presets]
    names = [name for _, name, _, _ in figures(collect(paths))]
    for wanted in (
        "1-bridge-small-pareto",
        "1-bridge-small-peers",
        "2-probes-per-round-small-probes-per-round",
        "3-cross-distribution-small-kl-decay",
        "4-probe-pools-small-probe-count",
        "ratio",
    ):
        assert wanted in names
    assert not any(name.startswith("1-") and name.endswith(("mu", "lr", "kl-decay")) for name in names)


def test_html_is_one_file_with_ids_of_its_own(bridge: Path, tmp_path: Path) -> None:
    out = tmp_path / "report.html"
    write_report([bridge], out)
    text = out.read_text()
    assert text.count("<svg") == 2
    assert "<img" not in text
    assert not re.search(r'(src|href)="(?!#)', text)
    ids = re.findall(r'\bid="([^"]+)"', text)
    assert len(set(ids)) == len(ids)
    assert set(re.findall(r"url\(#([^)]+)\)", text)) <= set(ids)
    assert "<td>tally+fa20</td>" in text


def test_markdown_has_its_figures_beside_it_and_is_the_same_each_time(bridge: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.md"
    write_report([bridge], out)
    linked = re.findall(r"\]\((results-figures/[^)]+)\)", out.read_text())
    assert len(linked) == 2
    before = [(tmp_path / name).read_bytes() for name in linked]
    for svg in before:
        ElementTree.fromstring(svg)
    write_report([bridge], out)
    assert [(tmp_path / name).read_bytes() for name in linked] == before


def test_what_cannot_be_reported_is_one_line(bridge: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such folder"):
        collect([tmp_path / "nowhere"])
    with pytest.raises(DataError, match="holds no finished run"):
        collect([tmp_path])
    with pytest.raises(ConfigError, match=r"--out report.pdf: accepted is a file that ends in .html or .md"):
        write_report([bridge], Path("report.pdf"))
    damaged = make_sweep(tmp_path / "damaged", "rcfd-small", seeds=(0,))
    (damaged / "rcfd-k1/seed-0/summary.json").write_text("{")
    with pytest.raises(DataError, match=r"rcfd-k1/seed-0/summary.json: cannot be read"):
        collect([damaged])


def test_the_command(bridge: Path) -> None:
    command = [sys.executable, "-m", "p2p_tally", "report"]
    done = subprocess.run([*command, str(bridge)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| `tally+fa20` |" in done.stdout
    bad = subprocess.run([*command, "nowhere"], capture_output=True, text=True, check=False)
    assert bad.returncode == 2
    assert bad.stderr == "p2p-tally: nowhere: no such folder; accepted are folders of runs or of sweeps\n"
