"""--link and --compute: what they mean, and what is refused."""

import pytest

from p2p_tally.config import Federation
from p2p_tally.errors import ConfigError
from p2p_tally.runner.simulation.simulate import simulate
from p2p_tally.thin_links import NO_LIMIT, Link, compute_of, links_of

NAMES = ["node-0", "node-1", "node-2"]
MS = 10**6


def test_one_link_for_all() -> None:
    assert links_of("1mbit,100ms", NAMES) == [Link(10**6, 10**6, 100 * MS)] * 3


def test_up_down_loss_and_a_node_of_its_own() -> None:
    slow = Link(64_000, 64_000, 600 * MS)
    assert links_of("1.5mbit/10Mbit,0.02s,1% node-2=64kbit,600ms", NAMES) == [
        Link(1_500_000, 10**7, 20 * MS, 0.01),
        Link(1_500_000, 10**7, 20 * MS, 0.01),
        slow,
    ]
    assert links_of("node-0=64kbit,600ms", NAMES) == [slow, NO_LIMIT, NO_LIMIT]


def test_compute() -> None:
    assert compute_of("2s node-1=300ms", NAMES) == [2000 * MS, 300 * MS, 2000 * MS]
    assert compute_of("node-1=1min", NAMES) == [None, 60_000 * MS, None]


def test_a_list_in_a_file_is_a_repeated_option() -> None:
    listed = Federation.parse({"link": ["1mbit,100ms", "node-1=64kbit,600ms"], "compute": ["2s", "node-1=3s"]})
    assert (listed.link, listed.compute) == ("1mbit,100ms node-1=64kbit,600ms", "2s node-1=3s")


@pytest.mark.parametrize(
    "text",
    [
        "", "x", "1mbit", "1mbit,5", "0mbit,5ms", "1mbit/,5ms", "-1mbit,5ms", "1mbit,5ms,60%", "1mbit,5ms,1%,2",
        "a=b=c",
        "1mbit,1ms 2mbit,1ms", "node-1=1mbit,1ms node-1=1mbit,1ms", "1mbit, 5ms", "=1mbit,5ms", "1mbit,5ms,1",
        "1mbit,99999999999999999999min", "9bit,1ms", "1e9gbit,1ms", "9999999gbit,1ms", "1mbit/10bit,1ms", "nanbit,1ms",
    ],
)  # fmt: skip
def test_nonsense_is_refused_in_one_line(text: str) -> None:
    with pytest.raises(ConfigError, match=r"^--link .*: accepted is \[NAME=\]UP\[/DOWN\],LATENCY\[,LOSS\], as in \S"):
        Federation.parse({"link": text})


def test_a_time_and_a_name_are_checked() -> None:
    with pytest.raises(ConfigError, match=r"^--compute soon: accepted is \[NAME=\]TIME, as in 2s or"):
        Federation.parse({"link": "1mbit,1ms", "compute": "soon"})
    with pytest.raises(ConfigError, match=r"^--compute 1441min: accepted is .* at most 1440min"):
        Federation.parse({"link": "1mbit,1ms", "compute": "1441min"})
    with pytest.raises(ConfigError, match=r"^--compute 2s: accepted with --link"):
        simulate(Federation.parse({"compute": "2s"}))
    with pytest.raises(ConfigError, match="no node has the name node-9; accepted are node-0, node-1, node-2"):
        links_of("node-9=1mbit,1ms", NAMES)
