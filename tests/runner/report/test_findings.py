"""Findings: the language of their checks, what is refused, and the verdicts."""

import statistics
import tomllib
from collections.abc import Collection, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_up_sweep import make_sweep

from p2p_tally.errors import ConfigError
from p2p_tally.runner.experiments.experiment import PRESETS, load_experiment, preset_names
from p2p_tally.runner.report.findings import Comparison, parse_finding
from p2p_tally.runner.report.results import CellResults, Measured, Results, collect
from p2p_tally.runner.report.tables import findings_table, summary_table
from p2p_tally.runner.report.verdicts import MORE_SEEDS, STUDENT, Judged, Verdict, judge, on_paper

CELLS = ["tally", "tally+fa20", "fedavg-fa5", "fedavg-fa20"]
FIGURES = {"tally": 60.0, "tally+fa20": 72.0, "fedavg-fa5": 55.0, "fedavg-fa20": 50.0}


def finding(holds: str, **others: object) -> list[Comparison]:
    table = {"claim": "c", "paper": "p", "holds": holds, **others}
    return list(parse_finding(table, CELLS, "file.toml: finding 1").comparisons)


@pytest.mark.parametrize(
    ("holds", "margins"),
    [
        ("tally.tail > 50", [10.0]),
        ("tally.tail < 50", [-10.0]),
        ("'tally+fa20'.tail >= max('fedavg-*'.tail, tally.tail)", [12.0]),
        ("'tally+fa20'.tail > tally.tail > 'fedavg-fa5'.tail", [12.0, 5.0]),
        ("tally.tail > 1 and abs('fedavg-fa5'.tail - tally.tail) < 2 * 3", [59.0, 1.0]),
        ("-tally.tail + 2.5 < min('fedavg-fa*'.tail) / 10", [62.5]),
        ("tally.tail / 0 > 1", [float("nan")]),
    ],
)
def test_checks_are_worked_out(holds: str, margins: list[float]) -> None:
    found = [comparison.margin(lambda cell, metric: FIGURES[cell]) for comparison in finding(holds)]
    assert found == pytest.approx(margins, nan_ok=True)


@pytest.mark.parametrize(
    ("holds", "message"),
    [
        ("tally.tail", "accepted are comparisons, joined by and"),
        ("tally.tail > 1 or 2 > 1", "accepted are comparisons, joined by and"),
        ("tally.tail == 1", "accepted are the comparisons < <= > >="),
        ("tally.tall > 1", "unknown metric 'tall' of tally; known: tail, peak"),
        ("taly.tail > 1", "unknown cell 'taly'; known cells: tally, tally\\+fa20"),
        ("max('x-*'.tail, 1) > 1", "unknown cell 'x-\\*'"),
        ("tally.tail ** 2 > 1", "accepted are CELL.METRIC, numbers"),
        ("max(1) > 1", "min and max of several"),
        ("open('x') > 1", "accepted are CELL.METRIC, numbers"),
        ("__import__('os').system('true') > 1", "accepted are CELL.METRIC|unknown"),
        ("True > 1", "accepted are CELL.METRIC, numbers"),
        ("tally.tail >", "cannot be read"),
        ("-" * 900 + "1 > 0", "cannot be read"),
        ("1 > 0" * 300, "at most 1000 characters"),
    ],
)
def test_what_the_language_does_not_know_is_refused(holds: str, message: str) -> None:
    with pytest.raises(ConfigError, match=rf"file\.toml: finding 1, holds: .*({message})"):
        finding(holds)


@given(st.text(max_size=60) | st.text("tally.i()<>+-*/'and 019", max_size=60))
def test_any_text_is_read_or_refused(holds: str) -> None:
    try:
        for comparison in finding(holds):
            comparison.margin(lambda cell, metric: 1.0)
    except ConfigError:
        pass


def test_a_bad_key_names_file_and_key(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"file.toml: finding 1: unknown key 'hold'; known keys: claim, holds, paper"):
        finding("1 > 0", hold="x")
    with pytest.raises(ConfigError, match=r"file.toml: finding 1: claim: accepted is a text"):
        finding("1 > 0", claim=1)
    path = tmp_path / "mine.toml"
    path.write_text(
        "[facts]\nclasses = 10\nparameters = 1\n[[cells]]\nname = 'a'\n"
        "[[findings]]\nclaim = 'x'\npaper = 'y'\nholds = 'b.tail > 1'\n"
    )
    with pytest.raises(ConfigError, match=r"mine.toml: finding 1, holds: unknown cell 'b'; known cells: a"):
        load_experiment(str(path))


@pytest.mark.parametrize("name", preset_names())
def test_every_finding_holds_on_the_papers_own_numbers(name: str) -> None:
    experiment = load_experiment(name)
    papers = {cell.name: cell.paper for cell in experiment.cells}
    for one in experiment.findings:
        assert all(judged.outcome == "holds" for judged in on_paper(one, papers)), one.claim


def test_a_twin_that_makes_a_claim_anew_has_it_once() -> None:
    """Byte counts are of a model and its rounds."""
    fulls = {one.claim: one.holds for one in load_experiment("merge-precision").findings}
    twin = load_experiment("merge-precision-small").findings
    assert len(twin) == len(fulls)
    assert [one.holds != fulls[one.claim] for one in twin] == [False, False, True, True]


@pytest.mark.parametrize("name", [name for name in preset_names() if not name.endswith(("-small", "-features"))])
def test_a_twin_has_the_findings_of_its_full_experiment_in_its_own_names(name: str) -> None:
    full, small = load_experiment(name), PRESETS / f"{name}-small.toml"
    assert full.question
    if small.is_file() and "full" in tomllib.loads(small.read_text()):
        twin = load_experiment(small.stem)
        assert [one.claim for one in twin.findings] == [one.claim for one in full.findings]
        names = {cell.name for cell in twin.cells}
        assert all(one.cells <= names for one in twin.findings)


def test_patterns_stay_patterns_where_they_mean_the_same() -> None:
    checks = [one.holds for one in load_experiment("bridge-small").findings]
    assert checks[0] == "'tally+fa20'.tail > max('fedavg-*'.tail, 'fedprox-*'.tail, feddf.tail)"
    pools = [one.holds for one in load_experiment("probe-pools-small").findings]
    assert any("'cifar100-20k-anchor2k'.tail" in check and "'in-*'.tail" in check for check in pools)


@pytest.mark.parametrize(
    ("margin", "noise", "sign", "outcome"),
    [
        (1.0, 0.5, ">", "holds"),
        (-1.0, 0.5, ">", "does not hold"),
        (0.4, 0.5, ">", "undecided"),
        (5.0, None, ">", "undecided"),
        (float("nan"), 0.0, ">", "undecided"),
        (0.0, 0.0, "≥", "holds"),
        (0.0, 0.0, ">", "does not hold"),
    ],
)
def test_an_outcome_by_margin_and_noise(margin: float, noise: float | None, sign: str, outcome: str) -> None:
    assert Judged(1.0, 1.0, sign, margin, noise).outcome == outcome


def results_of(tmp_path: Path, seeds: tuple[int, ...], **options: tuple[str, ...]) -> Results:
    [results] = collect([make_sweep(tmp_path / "sweep", "hybrid-small", seeds, **options)])
    return results


def verdict(results: Results, holds: str) -> tuple[str, float, float | None]:
    names = [cell.name for cell in results.cells]
    one = parse_finding({"claim": "c", "paper": "p", "holds": holds}, names, "here")
    judged = judge(one, {cell.name: cell for cell in results.cells}, {})
    return judged.outcome, judged.judged[0].margin, judged.judged[0].noise


def test_one_seed_is_judged_by_the_error_of_its_test_set(tmp_path: Path) -> None:
    results = results_of(tmp_path, (0,))
    tail = results.cells[0].metric("tail")
    assert tail is not None and results.cells[0].tested == 1000
    error = 100 * (tail.mean / 100 * (1 - tail.mean / 100) / 1000) ** 0.5
    outcome, margin, noise = verdict(results, f"tally.tail > {tail.mean - 1.9 * error}")
    assert (outcome, margin, noise) == ("undecided", pytest.approx(1.9 * error), pytest.approx(2 * error))
    assert verdict(results, f"tally.tail > {tail.mean - 2.1 * error}")[0] == "holds"
    assert verdict(results, f"tally.tail > {tail.mean + 2.1 * error}")[0] == "does not hold"
    assert verdict(results, "fedmd.payload > tally.payload")[2] == 0


def test_several_seeds_are_compared_seed_by_seed(tmp_path: Path) -> None:
    results = results_of(tmp_path, (0, 1, 2))
    tails = {seed: results.cells[0].metric("tail", seed) for seed in (0, 1, 2)}
    assert len({tail.mean for tail in tails.values() if tail}) == 3
    # All cells move alike with the seed, so the difference of two has next to no spread.
    outcome, _, noise = verdict(results, "fedmd.tail > tally.tail")
    assert outcome == "holds" and noise is not None and noise < 0.1
    spread = results.cells[0].metric("tail_std")
    _, _, alone = verdict(results, "tally.tail > 1")
    assert spread is not None and alone == pytest.approx(STUDENT[1] * spread.mean / 3**0.5)
    assert verdict(results, "tally.tail_std < 2 * fedmd.tail_std")[0] == "undecided"


class Made(CellResults):
    """A cell whose tails are given."""

    def __init__(self, name: str, tails: dict[int, float]) -> None:
        super().__init__(name, [])
        self.tails = tails

    @property
    def seeds(self) -> list[int]:
        return list(self.tails)

    def of_seeds(self, seeds: Collection[int]) -> CellResults:
        return Made(self.name, {seed: tail for seed, tail in self.tails.items() if seed in seeds})

    def metric(self, name: str, seed: int | None = None) -> Measured | None:
        tails = [tail for own, tail in self.tails.items() if seed in (None, own)]
        return Measured(statistics.stdev(self.tails.values()) if name == "tail_std" else statistics.fmean(tails))

    def standard_error(self, name: str) -> float:
        return 0.0


def made_verdict(holds: str, **cells: Sequence[float]) -> Verdict:
    table = {"claim": "c", "paper": "p", "holds": holds}
    made = {name: Made(name, dict(enumerate(tails))) for name, tails in cells.items()}
    return judge(parse_finding(table, list(cells), "here"), made, {})


def test_seeds_that_differ_both_ways_make_no_distance() -> None:
    """The mean of |a - b| over seeds is 1.2, and more seeds would only make that surer; the means are the same."""
    a, b = (80, 82, 81, 83), (81.2, 80.8, 82.2, 81.8)
    found = made_verdict("abs(a.tail - b.tail) < 1", a=a, b=b)
    one_sided = made_verdict("a.tail - b.tail < 1 and b.tail - a.tail < 1", a=a, b=b)
    assert found.outcome == one_sided.outcome == "undecided"
    [judged] = found.judged
    assert (judged.left, judged.margin) == (pytest.approx(0, abs=1e-9), pytest.approx(1))
    assert judged.noise == pytest.approx(one_sided.judged[0].noise)


def test_the_larger_of_two_is_the_one_with_the_larger_mean() -> None:
    """On every seed the larger of b and c is 82; on average both are 81."""
    b, c = (80, 82, 80, 82), (82, 80, 82, 80)
    found = made_verdict("a.tail > max(b.tail, c.tail)", a=(82, 82, 82, 82), b=b, c=c)
    assert [judged.margin for judged in found.judged] == [pytest.approx(1)]
    assert found.outcome == "undecided"
    assert made_verdict("a.tail > max(b.tail, c.tail)", a=(84, 84, 84, 84), b=b, c=c).outcome == "holds"


@given(
    st.lists(st.tuples(*[st.floats(0, 100)] * 2), min_size=2, max_size=9),
    st.sampled_from(["a.tail > b.tail", "a.tail - 1 > b.tail", "2 * a.tail > b.tail + 3"]),
)
def test_without_abs_min_and_max_it_is_students_interval(tails: list[tuple[float, float]], holds: str) -> None:
    a, b = zip(*tails, strict=True)
    verdict = made_verdict(holds, a=a, b=b)
    [judged], [comparison] = verdict.judged, verdict.finding.comparisons
    by_seed = [dict(zip("ab", pair, strict=True)) for pair in tails]
    margins = [comparison.margin(lambda cell, _, tails=tails: tails[cell]) for tails in by_seed]  # type: ignore[misc]
    assert judged.margin == pytest.approx(statistics.fmean(margins), abs=1e-9)
    interval = STUDENT[len(tails) - 2] * statistics.stdev(margins) / len(tails) ** 0.5
    assert judged.noise == pytest.approx(interval, abs=1e-9)


def test_seeds_are_paired() -> None:
    """Worked by hand: the cells move by ten points from seed to seed, their difference is 1, 2 and 3."""
    found = made_verdict("a.tail > b.tail", a=(51, 62, 73), b=(50, 60, 70))
    [judged] = found.judged
    assert (found.outcome, judged.margin) == ("holds", pytest.approx(2))
    assert judged.noise == pytest.approx(2.920 * 1 / 3**0.5)  # that of independent means would be 17


@pytest.mark.parametrize(
    ("holds", "differences", "wanted"),
    [
        # Mean 2, deviation 2. Three seeds: 2.920 x 2 / 1.732 = 3.37; four 2.353 x 2 / 2 = 2.35; five 1.91.
        ("a.tail > b.tail", (0, 2, 4), 5),
        ("a.tail < b.tail", (0, 2, 4), 5),
        ("b.tail > a.tail", (0, 2, 4), 5),
        ("a.tail > b.tail", (1, 2, 3), None),  # 1.69: decided
        ("a.tail > b.tail", (-2, 1, 2), MORE_SEEDS),  # mean 0.33, deviation 2.08: ten seeds give 1.21
        ("a.tail > b.tail", (-1, 0, 1), MORE_SEEDS),  # never
        # Both must hold, and the second takes more.
        ("a.tail > b.tail and 2 * a.tail > 2 * b.tail + 3.5", (0, 2, 4), MORE_SEEDS),
        # The second fails, which five seeds would show; that the first may hold would take more than ten.
        ("a.tail > b.tail + 1.9 and a.tail > b.tail + 4", (0, 2, 4), 5),
    ],
)
def test_an_undecided_finding_says_how_many_seeds_it_would_take(
    holds: str, differences: tuple[float, ...], wanted: int | None
) -> None:
    b = [10.0 * seed for seed in range(len(differences))]
    found = made_verdict(holds, a=[base + by for base, by in zip(b, differences, strict=True)], b=b)
    assert found.seeds_wanted == wanted
    assert (found.outcome == "undecided") == (wanted is not None)


@given(st.lists(st.integers(-40, 40), min_size=2, max_size=9), st.integers(1, 60))
def test_the_seeds_wanted_are_the_fewest_that_would_do(differences: list[int], above: int) -> None:
    found = made_verdict(f"a.tail > {above / 4}", a=[difference / 4 for difference in differences])
    [judged] = found.judged
    if found.outcome != "undecided":
        assert found.seeds_wanted is None
        return
    deviation = statistics.stdev(differences) / 4

    def decides(seeds: int) -> bool:
        return STUDENT[seeds - 2] * deviation / seeds**0.5 < abs(judged.margin)

    wanted = found.seeds_wanted
    assert wanted is not None and len(differences) < wanted <= MORE_SEEDS
    assert wanted == MORE_SEEDS or decides(wanted)
    assert not any(decides(seeds) for seeds in range(len(differences), wanted))


def test_tables_say_how_many_seeds_it_would_take() -> None:
    cells = {"a": (0.0, 2.0, 4.0), "b": (-2.0, 1.0, 2.0)}
    verdicts = [made_verdict(f"{name}.tail > {above}", **cells) for name, above in (("a", 0), ("b", 0), ("a", -9))]
    told = [row[1] for row in findings_table(verdicts).rows]
    assert told == [
        "undecided: would need about 5 seeds",
        "undecided: would need more than 10 seeds",
        "**holds**",
    ]
    both = [(Results("x", "x", []), verdicts), (Results("y", "y", []), verdicts[1:])]
    summary = summary_table(both)
    assert summary.header[2:] == [
        "findings that hold",
        "do not hold",
        "undecided",
        "of these, beyond 10 seeds",
        "not run",
    ]
    assert [row[2:] for row in summary.rows] == [list("10210"), list("10110"), list("20320")]


def test_a_spread_over_seeds_is_surer_with_more_of_them(tmp_path: Path) -> None:
    results = results_of(tmp_path, (0, 1, 2))
    cells = {cell.name: cell for cell in results.cells}
    holds = "tally.tail_std < 2.6 * fedmd.tail_std"
    one = judge(parse_finding({"claim": "c", "paper": "p", "holds": holds}, list(cells), "here"), cells, {})
    # Equal deviations s: margin 1.6 s; noise 2 s x sqrt((1 + 2.6^2) / 2 (n - 1)), 2.8 s with three seeds, 1.5 s with 8.
    assert (one.outcome, one.seeds_wanted) == ("undecided", 8)


def test_one_seed_says_nothing_of_how_many_it_would_take(tmp_path: Path) -> None:
    results = results_of(tmp_path, (0,))
    cells = {cell.name: cell for cell in results.cells}
    tail = results.cells[0].metric("tail")
    assert tail is not None
    table = {"claim": "c", "paper": "p", "holds": f"tally.tail > {tail.mean - 0.1}"}
    one = judge(parse_finding(table, list(cells), "here"), cells, {})
    assert (one.outcome, one.seeds_wanted) == ("undecided", None)


def test_a_spread_over_seeds_is_of_the_seeds_that_both_cells_have() -> None:
    finding = parse_finding({"claim": "c", "paper": "p", "holds": "a.tail_std < b.tail_std"}, ["a", "b"], "here")
    cells = {"a": Made("a", {0: 80, 1: 81, 2: 99}), "b": Made("b", {0: 80, 1: 82})}
    [judged] = judge(finding, cells, {}).judged
    assert judged.margin > 0


def test_what_was_not_run_is_named(tmp_path: Path) -> None:
    results = results_of(tmp_path, (0,), leave_out=("fedmd",))
    cells = {cell.name: cell for cell in results.cells}
    judged = [judge(one, cells, results.papers) for one in results.findings]
    assert [one.outcome for one in judged[:3]] == ["not run", "not run", "does not hold"]
    assert judged[0].missing == ["fedmd"]
    assert [round(one.margin, 2) for one in judged[0].paper] == [1.35]
