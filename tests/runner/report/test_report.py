"""Reports: tables and figures from folders of runs."""

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conftest import in_process
from made_up_sweep import make_sweep

from p2p_tally.errors import ConfigError, DataError, OperatorError
from p2p_tally.runner.experiments.experiment import load_experiment
from p2p_tally.runner.report.report import figures, judge_all, markdown_tables, write_report
from p2p_tally.runner.report.results import collect
from p2p_tally.runner.report.verdicts import OUTCOMES


@pytest.fixture(scope="module")
def bridge(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_sweep(tmp_path_factory.mktemp("sweeps") / "bridge", "bridge-small", leave_out=("feddf",))


def test_a_table_in_the_papers_form(bridge: Path) -> None:
    text = markdown_tables([bridge])
    assert text.startswith("## bridge-small\n\n**Table 2: CIFAR-10")
    assert "| **rounds** | 600 of 5 local steps, tail of the last 120 |" in text
    assert "No finished run: `feddf`." in text
    assert "the first 1,000 test examples" in text
    assert "did not record: private examples, engine, machine, versions" in text
    rows = {
        line.split("`")[1]: [part.strip() for part in line.split("|")]
        for line in text.splitlines()
        if line.startswith("| `")
    }
    assert list(rows)[:3] == ["local", "fedavg-fa10", "fedavg-fa40"]
    assert re.fullmatch(r"\d\d\.\d\d ± \d\.\d\d", rows["tally+fa40"][2])
    assert rows["tally+fa40"][5] == "2,188,960"  # 14 merges + 9 x 16 x 540
    assert "71.92 ± 0.38" in rows["tally+fa40"]  # the paper's, of tally+fa200
    assert "perplexity" not in text


def test_language_models_have_a_perplexity(tmp_path: Path) -> None:
    text = markdown_tables([make_sweep(tmp_path / "lm", "language-model-small", seeds=(0,))])
    assert "tail perplexity" in text
    assert "| 400.0 |" in text
    assert "| 10,087 |" in text


def test_runs_made_one_by_one_are_told_apart(bridge: Path) -> None:
    [results] = collect([bridge / "tally", bridge / "local" / "seed-1", bridge / "fedprox-fa10"])
    assert [(cell.name, len(cell.runs)) for cell in results.cells] == [("tally", 2), ("local", 1), ("fedprox-fa10", 2)]


def test_which_figures_are_drawn(bridge: Path, tmp_path: Path) -> None:
    paths = [bridge]
    presets = ("probes-per-round-small", "cross-distribution-small", "probe-pools-small", "hybrid-small")
    paths += [make_sweep(tmp_path / name, name, seeds=(0,)) for name in presets]
    names = [picture.name for _, picture in figures(collect(paths))]
    for wanted in (
        "bridge-small-pareto",
        "bridge-small-peers",
        "probes-per-round-small-probes-per-round",
        "cross-distribution-small-kl-decay",
        "probe-pools-small-probe-count",
        "ratio",
    ):
        assert wanted in names
    assert not any(name.startswith("bridge") and name.endswith(("mu", "lr", "kl-decay")) for name in names)
    twice = [picture.name for _, picture in figures(collect([bridge, bridge]))]
    assert len(set(twice)) == len(twice)


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
    assert "<td><code>tally+fa40</code></td>" in text


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


def test_findings_are_judged_and_counted(bridge: Path, tmp_path: Path) -> None:
    out = tmp_path / "results.md"
    hybrid = make_sweep(tmp_path / "hybrid", "hybrid-small", seeds=(0,))
    write_report([bridge, hybrid], out, ["A third of the data."])
    text = out.read_text()
    assert "\nA third of the data.\n" in text
    verdicts = [verdict for results in collect([bridge, hybrid]) for verdict in judge_all(results)]
    counts = [sum(one.outcome == outcome for one in verdicts) for outcome in OUTCOMES]
    beyond = text.count("undecided: would need more than 10 seeds |")
    shown = [*counts[:3], beyond, counts[3]]
    assert f"| all |  | {' | '.join(map(str, shown))} |" in text
    assert all(counts[:2])
    row = next(line for line in text.splitlines() if line.startswith("| It beats FedAvg at the same merge interval"))
    assert "`'tally+fa40'.tail > 'fedavg-fa40'.tail` | **holds** |" in row
    assert row.endswith("section 5.2: +17.3 points: 71.92 against 54.63 |")
    bytes_row = next(line for line in text.splitlines() if line.startswith("| A soft label takes 400 times"))
    assert "**holds** |" in bytes_row and "(counted)" in bytes_row
    assert "**does not hold**, on one seed" in text


def test_a_title_of_ones_own(bridge: Path, tmp_path: Path) -> None:
    write_report([bridge], tmp_path / "report.md", notes=["A word before."], title="Ours")
    assert (tmp_path / "report.md").read_text().startswith("# Ours\n")
    assert "\nA word before.\n" in (tmp_path / "report.md").read_text()


def test_a_sweep_keeps_its_own_findings_and_notes(bridge: Path, tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(
        "title = 'Mine'\nquestion = 'Why?'\nprose = 'Because.'\n[facts]\nclasses = 10\nparameters = 4_810\n"
        "[base]\nrounds = 60\n[[cells]]\nname = 'a'\n[[cells]]\nname = 'b'\nmethod = 'fedmd'\n"
        "[[findings]]\nclaim = 'A claim.'\npaper = 'nowhere'\nholds = 'a.payload < b.payload'\n"
    )
    sweep = make_sweep(tmp_path / "sweep", str(path), notes=["A note."])
    path.unlink()
    [results] = collect([sweep])
    text = markdown_tables([sweep])
    assert "**Mine.** Why?\n\nBecause.\n" in text
    assert "\n- A note.\n" in text
    assert [verdict.outcome for verdict in judge_all(results)] == ["holds"]


def test_runs_of_earlier_versions_are_read(bridge: Path, tmp_path: Path) -> None:
    """Of a sweep.json without findings the preset's are taken; a run without made.json is as old as its summary."""
    old = shutil.copytree(bridge, tmp_path / "old")
    manifest = json.loads((old / "sweep.json").read_text())
    kept = {key: manifest[key] for key in ("experiment", "title", "cells")}
    (old / "sweep.json").write_text(json.dumps(kept))
    [results] = collect([old])
    assert [one.claim for one in results.findings] == [one.claim for one in load_experiment("bridge-small").findings]
    assert results.cells[0].runs[0].provenance.date is not None
    assert results.cells[0].runs[0].provenance.engine is None


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


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("sweep.json", "{}"),
        ("sweep.json", ""),
        ("summary.json", "{}"),
        ("rounds.jsonl", '{"round": 1}'),
        ("rounds.jsonl", "3"),
        ("rounds.jsonl", b"\xff\xfe"),
        ("config.toml", "= 1"),
    ],
)
def test_a_damaged_file_is_named_in_one_line(bridge: Path, tmp_path: Path, file: str, content: str | bytes) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bridge, copy)
    path = next(copy.rglob(file))
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(OperatorError) as refusal:
        markdown_tables([copy])
    assert str(path) in str(refusal.value) and "\n" not in str(refusal.value)


def test_without_how_a_run_was_made_its_results_stay(bridge: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(bridge, copy)
    for folder in {path.parent for path in copy.rglob("summary.json")}:
        (folder / "made.json").write_text('{"x": 1}')
    assert "tail accuracy" in markdown_tables([copy])


def test_the_command(bridge: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = in_process(["report", str(bridge)], monkeypatch, capsys)
    assert code == 0, err
    assert "| `tally+fa40` |" in out
    code, _, err = in_process(["report", "nowhere"], monkeypatch, capsys)
    assert (code, err) == (2, "p2p-tally: nowhere: no such folder; accepted are folders of runs or of sweeps\n")
    code, _, err = in_process(["report", str(bridge), "--opening", "x.md"], monkeypatch, capsys)
    assert (code, err) == (2, "p2p-tally: --opening x.md: needs --out FILE, a report to begin\n")
