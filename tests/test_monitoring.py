"""The Grafana dashboard and the files for Prometheus name metrics and labels that a node really exports."""

import asyncio
import json
import re
from pathlib import Path

import pytest
import yaml
from conftest import make_daemons, run_all, small
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "docs" / "monitoring"
DASHBOARD = json.loads((FOLDER / "grafana.json").read_text(encoding="utf-8"))
ALERTS = yaml.safe_load((FOLDER / "alerts.yml").read_text(encoding="utf-8"))
QUERIES = {
    f"{panel['title']} {target['refId']}": target["expr"]
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
} | {rule["alert"]: rule["expr"] for group in ALERTS["groups"] for rule in group["rules"]}

SCRAPED = {"job", "instance"}  # labels that Prometheus itself adds
NEVER_COUNTED = {"p2p_tally_handshakes_refused_total": {"reason"}}  # in a healthy run: no sample shows its label

# By sample: its labels, and their values.
Exported = dict[str, dict[str, set[str]]]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    """What two nodes export that have played."""

    async def play() -> list[str]:
        daemons = make_daemons(small(nodes=2), tmp_path_factory.mktemp("played"))
        await run_all(daemons)
        return [generate_latest(daemon.metrics.registry).decode() for daemon in daemons]

    found: Exported = {name: {label: set() for label in labels} for name, labels in NEVER_COUNTED.items()}
    for text in asyncio.run(play()):
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                for label, value in sample.labels.items():
                    found.setdefault(sample.name, {}).setdefault(label, set()).add(value)
                found.setdefault(sample.name, {})
    return found


@pytest.mark.parametrize("query", QUERIES.values(), ids=QUERIES)
def test_a_query_names_what_is_exported(query: str, exported: Exported) -> None:
    named = re.findall(r"(p2p_tally_\w+)(?:\{([^}]*)\})?", query)
    assert named
    labels: set[str] = set()
    for metric, matchers in named:
        assert metric in exported
        labels |= set(exported[metric])
        for label, value in re.findall(r'(\w+)="([^"]*)"', matchers):
            if label not in SCRAPED:
                assert value in exported[metric][label]
    grouped = {label.strip() for by in re.findall(r"(?:by|on) \(([^)]*)\)", query) for label in by.split(",")}
    assert grouped <= labels | SCRAPED


def test_the_dashboard_shows_every_metric(exported: Exported) -> None:
    shown = " ".join(QUERIES.values())
    families = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in exported}
    assert [name for name in sorted(families) if name not in shown] == []


def test_legends_and_summaries_name_labels_that_their_query_has(exported: Exported) -> None:
    texts = [(t["expr"], t["legendFormat"]) for panel in DASHBOARD["panels"] for t in panel["targets"]]
    texts += [(r["expr"], r["annotations"]["summary"]) for group in ALERTS["groups"] for r in group["rules"]]
    for query, text in texts:
        metrics = re.findall(r"p2p_tally_\w+", query)
        known = SCRAPED.union(*(exported[metric] for metric in metrics))
        used = re.findall(r"\{\{ ?(?:\$labels\.)?(\w+) ?\}\}", text)
        assert used and set(used) <= known
        grouped = re.search(r"by \(([^)]*)\)", query)
        assert grouped is None or set(used) <= {label.strip() for label in grouped[1].split(",")}


def test_panels_do_not_overlap() -> None:
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in DASHBOARD["panels"]]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in DASHBOARD["panels"]})


def test_prometheus_reads_the_admin_addresses_of_the_page() -> None:
    config = yaml.safe_load((FOLDER / "prometheus.yml").read_text(encoding="utf-8"))
    [job] = config["scrape_configs"]
    assert f'job="{job["job_name"]}"' in DASHBOARD["panels"][0]["targets"][0]["expr"]
    assert job["metrics_path"] == "/metrics"
    operating = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    assert job["static_configs"][0]["targets"][0] in operating
    assert config["rule_files"] == ["alerts.yml"] and (FOLDER / "alerts.yml").is_file()


def test_the_page_of_metrics_explains_every_one(exported: Exported) -> None:
    page = (ROOT / "docs" / "operating.md").read_text(encoding="utf-8")
    families = {re.sub(r"_(bucket|sum|count|created)$", "", name) for name in exported}
    assert [name for name in sorted(families) if f"`{name}" not in page] == []
