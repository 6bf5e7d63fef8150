"""The table of methods and rows of a user's own: what a row may say, how it is found, and what peers compare of it."""

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from p2p_tally.config import METHOD_NAMES, Federation
from p2p_tally.errors import ConfigError
from p2p_tally.learning.answers import votes
from p2p_tally.learning.consensus import histogram
from p2p_tally.learning.methods import METHODS, Method, Sends, method_of

KNOWLEDGE = {"cronus", "fd", "fedproto"}  # learning/knowledge/


def test_the_options_name_exactly_the_rows_of_the_table() -> None:
    assert tuple(METHODS) == METHOD_NAMES
    assert all(method_of(Federation(method=name)).name == name for name in METHOD_NAMES)


def test_what_only_some_methods_do() -> None:
    def those(field: str) -> set[str]:
        return {name for name, row in METHODS.items() if getattr(row, field)}

    assert those("proximal") == {"fedprox"}
    assert those("distils_merged") == {"feddf"}
    assert those("common_start") == {"diloco", "spod-gt", "fedkd"}
    assert those("weighs_disagreement") == {"tally"}
    assert those("exchange") == {"dspodfl", "pame", "spod-gt", "dpfl", "dfml", "fedkd", "fedspd"}
    assert those("local_gradient") == {"gflat", "fedkd", "fedspd"}
    assert those("second") == {"fedkd", "fedspd"}
    assert those("answering") == {"dfml", "fedspd"}
    assert METHODS.keys() - those("merges") == {"local"}
    assert those("waits") == {"tally", "no-consensus", "fedmd", "rcfd", "fedct", "dsfl", "idkd"} | KNOWLEDGE


def test_who_learns_from_probes() -> None:
    learning = {name for name, row in METHODS.items() if row.learns_from_probes}
    assert learning == {"tally", "no-consensus", "fedmd", "rcfd", "feddf", "fedct", "dsfl", "idkd"} | KNOWLEDGE
    # Whoever sends answers learns from them; learning from labels alone needs no channel.
    assert {name for name, row in METHODS.items() if row.sends is not Sends.NOTHING} == learning - {"no-consensus"}
    assert {name for name, row in METHODS.items() if row.target is not None} == learning - {"no-consensus"}


def test_every_method_has_a_colour_of_its_own() -> None:
    assert len({row.colour for row in METHODS.values()}) == len(METHODS)
    assert all(row.summary for row in METHODS.values())


def test_the_rows_are_read_without_torch() -> None:
    """The byte formulas, reports and the launcher need the rows, and torch takes a second to load."""
    code = "import sys, p2p_tally.learning.methods; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- a user's own row


def own(**fields: object) -> Method:
    given = {"sends": Sends.VOTES, "answer": votes, "target": histogram, "learns_from_probes": True}
    return Method("mine", **(given | fields))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"colour": "blue"}, "method 'mine': colour 'blue': accepted is #RRGGBB"),
        ({"target": None}, "a method that sends votes needs answer, target and learns_from_probes"),
        ({"answer": None}, "a method that sends votes needs answer, target and learns_from_probes"),
        ({"sends": Sends.FEATURES_BY_CLASS}, "method 'mine': a method that sends features-by-class needs a loss"),
        ({"learns_from_probes": False}, "a method that sends votes needs answer, target and learns_from_probes"),
    ],
)
def test_a_row_that_cannot_work_is_refused_when_it_is_made(fields: dict[str, object], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        own(**fields)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["", "a b", "-x", "x/y", "x" * 41])
def test_a_name_is_fit_for_folders_and_tables(name: str) -> None:
    with pytest.raises(ConfigError, match="accepted is a name of 1 to 40 letters, digits"):
        Method(name)


def test_a_row_of_ones_own_has_a_name_of_its_own() -> None:
    with pytest.raises(ConfigError, match="'tally': a method of p2p-tally has this name; give yours another"):
        replace(METHODS["tally"], waits=False)
    assert replace(METHODS["tally"], name="eager", waits=False).target is histogram


def test_a_row_is_shown_by_its_label_or_its_name() -> None:
    assert (own().shown_as, own(label="my votes").shown_as, f"{own(label='my votes')}") == ("mine", "my votes", "mine")


def test_a_row_given_as_an_object_is_the_row() -> None:
    row = own()
    assert method_of(Federation(method=row)) is row


def test_a_built_in_row_given_as_an_object_is_kept_by_name() -> None:
    assert Federation(method=METHODS["fedmd"]).method == "fedmd"


def write_row(folder: Path, module: str, body: str) -> None:
    (folder / f"{module}.py").write_text(
        "from p2p_tally.learning.answers import votes\n"
        "from p2p_tally.learning.methods import Method, Sends\n"
        f"{body}\n"
        "ROW = Method('mine', sends=Sends.VOTES, answer=votes, target=target, learns_from_probes=True)\n"
        "ELSE = 5\n"
    )


PLAIN = "def target(answers, classes, federation, weights):\n    return 1"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_a_row_by_import_path(here: Path) -> None:
    write_row(here, "rows_by_path", PLAIN)
    federation = Federation(method="rows_by_path:ROW")
    assert method_of(federation).name == "mine"
    assert Federation(method=method_of(federation)).method == "rows_by_path:ROW"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("rows_missing:ROW", "no module named 'rows_missing'; accepted is package.module:ROW"),
        ("rows_wrong:NONE", "module 'rows_wrong' has no ROW 'NONE'"),
        ("rows_wrong:ELSE", "accepted is a p2p_tally Method, not int"),
    ],
)
def test_a_path_that_leads_to_no_row_is_one_line(here: Path, spec: str, said: str) -> None:
    write_row(here, "rows_wrong", PLAIN)
    with pytest.raises(ConfigError) as caught:
        method_of(Federation(method=spec))
    assert str(caught.value) == f"--method {spec}: {said}"


def test_peers_compare_the_name_of_a_built_in_method_and_nothing_more() -> None:
    assert all(Federation(method=name).agreed()["method"] == name for name in METHOD_NAMES)


def test_peers_compare_what_a_row_of_ones_own_declares(here: Path) -> None:
    write_row(here, "rows_one", PLAIN)
    write_row(here, "rows_same", PLAIN)
    write_row(here, "rows_other", PLAIN.replace("return 1", "return 2"))
    one, same, other = (Federation(method=f"rows_{name}:ROW").agreed()["method"] for name in ("one", "same", "other"))
    assert one == same != other
    name, _, declared = one.partition(" ")
    assert (name, len(declared)) == ("mine", 16)
    assert int(declared, 16) >= 0


def test_every_field_that_changes_a_run_is_compared_and_no_other() -> None:
    base = own().agreed_value()
    for change in ({"waits": True}, {"merge_every": 7}, {"alpha": 0.5}, {"merges": False}, {"sends": Sends.SOFT}):
        assert own(**change).agreed_value() != base
    for change in ({"label": "x"}, {"colour": "#123456"}, {"summary": "y"}):
        assert own(**change).agreed_value() == base


def test_a_function_without_a_source_is_compared_by_name() -> None:
    namespace: dict[str, object] = {}
    exec("def target(a, c, f, w): return 1", namespace)  # as at a prompt: there is no file to read
    one = own(target=namespace["target"]).agreed_value()
    assert one == own(target=namespace["target"]).agreed_value() != own().agreed_value()


def test_the_declared_target_is_what_is_called() -> None:
    row = METHODS["tally"]
    assert row.target is not None
    np.testing.assert_array_equal(row.target([np.array([1]), np.array([1])], 2, Federation(), None), [[0, 1]])
