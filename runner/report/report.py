"""A report from runs: what was run, tables, figures, and which findings hold; as Markdown or as one HTML file."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from p2p_tally.errors import ConfigError
from p2p_tally.runner.report.budget_tables import budget_blocks
from p2p_tally.runner.report.budgets import placed
from p2p_tally.runner.report.document import (
    Block,
    Bullets,
    Heading,
    Picture,
    Text,
    anchor,
    as_markdown,
    write_html,
    write_markdown,
)
from p2p_tally.runner.report.figures import ACCOUNTINGS, SWEPT, along, pareto, ratio, stabilisation
from p2p_tally.runner.report.opening import read_opening
from p2p_tally.runner.report.results import Results, collect
from p2p_tally.runner.report.tables import cell_table, findings_table, provenance_table, remarks, summary_table
from p2p_tally.runner.report.time_figure import against_hours
from p2p_tally.runner.report.topologies import compares_graphs, graph_blocks
from p2p_tally.runner.report.verdicts import Verdict, judge

WRITTEN = (
    "Written by `p2p-tally report` from the folders of the runs; what it says of the findings is worked out, not typed."
)

WRITTEN_AFTER = (
    "Above, the words were typed and the figures worked out from the runs. The rest is written by `p2p-tally report` "
    "from the folders of the runs; what it says of the findings is worked out, not typed."
)

HOW_JUDGED = (
    "A finding is a claim with a check, both in the experiment's file. The checks ask for an order or a ratio, not for "
    "the paper's height. **holds** and **does not hold** mean that the margin is larger than chance makes it, "
    "undecided that it is not. With several seeds the margin is that of the means, and its ± is Student's interval "
    "(one-sided, 95 %) of the differences seed by seed: the same seed is the same split and the same start in every "
    "cell. What is undecided says how many seeds would decide it if margin and spread stayed as they are. With one "
    "seed the ± is two standard errors of the test set, taken as a binomial of its size; what another seed would give "
    "is then not known, so such a verdict is of this seed. Bytes are counted."
)

INDEXED = 4  # experiments from which on a report begins with an index
LEGIBLE = 24  # cells that a figure of all of them can tell apart


def markdown_tables(paths: Sequence[Path]) -> str:
    blocks: list[Block] = []
    for results in collect(paths):
        blocks += _tables(results)
    return as_markdown(blocks)


def write_report(
    paths: Sequence[Path],
    out: Path,
    notes: Sequence[str] = (),
    accounting: str = "payload",
    title: str | None = None,
    opening: Path | None = None,
) -> None:
    """`accounting`: the bytes that accuracy is drawn against, payload, framed or wire; `opening`: see opening.py."""
    if accounting not in ACCOUNTINGS:
        raise ConfigError(f"--bytes {accounting}: accepted is payload, framed or wire")
    writers = {".html": write_html, ".md": write_markdown}
    if out.suffix not in writers:
        raise ConfigError(f"--out {out}: accepted is a file that ends in .html or .md")
    found = collect(paths)
    first = read_opening(opening, found) if opening is not None else []
    blocks = compose(found, notes, accounting, title, first)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        writers[out.suffix](blocks, out)
    except OSError as error:
        raise ConfigError(f"--out {out}: {error.strerror}; accepted is a file that can be written") from None


def compose(
    found: Sequence[Results],
    notes: Sequence[str] = (),
    accounting: str = "payload",
    title: str | None = None,
    opening: Sequence[Block] = (),
) -> list[Block]:
    """The whole report. `opening`: what stands before all that is worked out."""
    title = title or ("Results" if len(found) > 1 else found[0].title)
    judged = [(results, judge_all(results)) for results in found]
    blocks: list[Block] = [Heading(1, title)]
    blocks += [*opening, Heading(2, "How this page was made")] if opening else []
    blocks.append(Text(WRITTEN_AFTER if opening else WRITTEN))
    blocks += [Text(note) for note in notes]
    blocks += index(found)
    asked = [(results, verdicts) for results, verdicts in judged if verdicts]
    if asked:
        blocks += [Heading(2, "What was found"), summary_table(asked), Text(HOW_JUDGED)]
    pictures = list(figures(found, accounting))
    for number, (results, verdicts) in enumerate(judged):
        blocks += _section(results, _stem(found, number))
        blocks += [picture for owner, picture in pictures if owner is results]
        if verdicts:
            blocks += [Heading(3, f"Findings of {results.name}"), findings_table(verdicts)]
    of_all = [picture for owner, picture in pictures if owner is None]
    if of_all:
        blocks += [Heading(2, "Bytes by the number of classes"), *of_all]
    return blocks


def index(found: Sequence[Results]) -> list[Block]:
    """Links to the experiments, where a report has many."""
    if len(found) < INDEXED:
        return []
    return [Heading(2, "Contents"), Bullets([f"[{one.name}](#{anchor(one.name)}): {one.title}" for one in found])]


def judge_all(results: Results) -> list[Verdict]:
    cells = {cell.name: cell for cell in results.cells}
    return [judge(finding, cells, results.papers) for finding in results.findings]


def _tables(results: Results, before_cells: Sequence[Block] = ()) -> list[Block]:
    """A section's head, and the cells."""
    blocks = _head(results)
    blocks += [*before_cells, Heading(3, "All cells")] if before_cells else []
    blocks.append(cell_table(results))
    return blocks


def _head(results: Results) -> list[Block]:
    """What was asked and run."""
    blocks: list[Block] = [Heading(2, results.name)]
    blocks.append(Text(f"**{results.title}.** {results.question}".strip()))
    blocks += [Text(results.prose)] if results.prose else []
    blocks.append(provenance_table(results))
    remarked = remarks(results)
    blocks += [Bullets(remarked)] if remarked else []
    return blocks


def _section(results: Results, stem: str) -> list[Block]:
    """A section's head and tables, by what its cells compare."""
    budgets = budget_blocks(results, stem)
    if budgets:
        return [*_head(results), *budgets]
    return _tables(results, graph_blocks(results, stem) if compares_graphs(results) else [])


def _stem(found: Sequence[Results], number: int) -> str:
    """What a results' pictures are called: its name, numbered where the report has another of that name."""
    name = found[number].name
    again = [results.name for results in found[:number]].count(name)
    return f"{name}-{again + 1}" if again else name


def figures(found: Sequence[Results], accounting: str = "payload") -> Iterator[tuple[Results | None, Picture]]:
    """Each picture with the results it belongs to (None: to all)."""
    for number, results in enumerate(found):
        if placed(results) or len(results.cells) > LEGIBLE:
            continue
        captions = {
            "hours": "Test accuracy, mean over peers, against the hours that the rounds take over the given links.",
            "pareto": "Tail accuracy against bytes sent by a peer; the dashed line joins what nothing cheaper beats.",
            "peers": "Mean over peers, band of one standard deviation between them; grey: the other cells' means.",
        }
        made = {"pareto": pareto(results, accounting), "peers": stabilisation(results), "hours": against_hours(results)}
        for option, swept in SWEPT.items():
            made[option.replace("_", "-")] = along(results, option)
            captions[option.replace("_", "-")] = f"Tail accuracy by {swept.label}."
        for name, figure in made.items():
            if figure is not None:
                yield results, Picture(f"{_stem(found, number)}-{name}", captions[name], figure)
    every = ratio(found)
    if every is not None:
        caption = "How many times the bytes of a vote a soft label takes, by the number of classes."
        yield None, Picture("ratio", caption, every)
