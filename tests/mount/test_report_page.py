"""The page of a report: its text, its limits, and what a browser does with it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import Select

from kafkafs.mount.documents.report import MOST_BYTES, tables
from kafkafs.mount.documents.report.charts import chart_data
from kafkafs.mount.documents.report.highlights import Severity, highlights
from kafkafs.mount.documents.report.page import SECTIONS, page, script_json
from kafkafs.mount.documents.report.tables import MOST_ROWS
from kafkafs.mount.node import File
from kafkafs.mount.options import MountOptions
from kafkafs.mount.tree import Tree
from kafkafs.mount.vfs.errnos import NoSuchName
from kafkafs.storage.clock import SetClock
from kafkafs.storage.config.kafka import ConfigSource
from kafkafs.storage.format.records.record_columns import SimpleRecord
from kafkafs.storage.groups.coordinator import GroupState, GroupType
from kafkafs.storage.groups.groups import DescribedGroup
from kafkafs.storage.log_dirs.engine import Engine
from kafkafs.storage.operations.groups import GroupOffset
from kafkafs.storage.operations.report.model import (
    CodecUse,
    Disorder,
    Growth,
    LogDirReport,
    LogDirsReport,
    PartitionReport,
    SegmentReport,
    SegmentState,
    TimeGap,
    TopicReport,
)
from kafkafs.storage.operations.report.report import ReportLogDirs, report
from kafkafs.storage.operations.request import PartitionFailed
from tests.building import BatchFields, build_batch
from tests.logs import TopicSettings, write_log_dir, write_partition
from tests.mount.browser import LAPTOP, PHONE, Browser, chromium
from tests.mount.nodes import file_of

THEN = 1_790_000_000_000
HOUR_MS = 3_600_000
HOSTILE = (
    "</script><script>document.title='hit'</script><img src=x onerror=alert(1)>&amp;${x}{{7*7}}%{x}"
    "\"'`<!--]]>"
)


def report_of(path: Path, *, deep: bool = False, now_ms: int | None = None) -> LogDirsReport:
    engine = Engine(str(path))
    if now_ms is not None:
        engine.clock = SetClock(now_ms)
    *_, last = report(engine, ReportLogDirs(deep=deep))
    assert isinstance(last, LogDirsReport)
    return last


def made(topics: int, partitions: int, segments: int) -> LogDirsReport:
    """Returns a report of topics of equal shape, as of a cluster that nobody has."""
    times = THEN + HOUR_MS * np.arange(segments + 1)
    sizes = (1 << 30) * np.arange(segments + 1)
    growth = Growth(times, 1000 * np.arange(segments + 1), sizes)
    parts = tuple(
        SegmentReport(
            *(1000 * at, 1000 * at + 1000, 1 << 30, int(times[at]), int(times[at + 1])),
            SegmentState.EXPIRED if at < segments // 3 else SegmentState.LIVE,
            "no rule is breached",
            int(times[at + 1]) + 1000 * HOUR_MS if at >= segments // 3 else None,
            17 << 20,
        )
        for at in range(segments)
    )

    def partition(topic: str, number: int) -> PartitionReport:
        return PartitionReport(
            *(topic, number, "/data", 0, 1000 * segments, 1000 * segments, parts, growth),
            {"zstd": CodecUse(7, 70_000, 0)},
            (TimeGap(THEN, THEN + HOUR_MS, 7),) * 3,
            Disorder(100, 3, HOUR_MS, 12, 0),
            *((), (), None),
        )

    return LogDirsReport(
        THEN + 1000 * HOUR_MS,
        False,
        (LogDirReport("/data", "cluster", 1, True),),
        tuple(
            TopicReport(
                f"topic-{topic:04}", "", {}, (),
                tuple(partition(f"topic-{topic:04}", number) for number in range(partitions)),
            )
            for topic in range(topics)
        ),
        *((), ()),
    )  # fmt: skip


def renamed(found: LogDirsReport, name: str) -> LogDirsReport:
    """Returns a report with a text wherever a text of someone else can be: as the name of the first
    topic and of a group, in configs, messages and paths."""
    first, *rest = found.topics
    failed = PartitionFailed(name, name, name)
    parts = tuple(
        replace(
            each,
            topic=name,
            log_dir=name,
            damage=(failed,),
            segments=tuple(replace(segment, why=name) for segment in each.segments),
        )
        for each in first.partitions
    )
    group = DescribedGroup(name, GroupType.CLASSIC, GroupState.EMPTY, name, 1, 0)
    row = GroupOffset(group, name, 0, 7, None, name, THEN, 0, 1000, 993, HOUR_MS)
    configs = {name: (name, ConfigSource.TOPIC)}
    topic = replace(first, topic=name, configs=configs, problems=(name,), partitions=parts)
    return replace(
        found,
        log_dirs=(LogDirReport(name, name, 1, False),),
        topics=(topic, *rest),
        unreadable=(failed,),
        problems=(name,),
        groups=(row,),
    )


def logs_of(root: Path, timestamps: Mapping[str, Sequence[int]]) -> LogDirsReport:
    """Returns the report, as of `THEN`, of topics with a record of each timestamp."""
    for topic, times in timestamps.items():
        batches = [
            build_batch([SimpleRecord(time, None, b"v")], BatchFields(base_offset=at))
            for at, time in enumerate(times)
        ]
        write_partition(root / f"{topic}-0", batches, TopicSettings())
    write_log_dir(root, {(topic, 0): len(times) for topic, times in timestamps.items()})
    return report_of(root, now_ms=THEN)


# -- without a browser -----------------------------------------------------------------------------


def test_a_page_for_a_thousand_partitions_is_small() -> None:
    small, large = len(page(made(1, 1, 1))), len(page(made(100, 10, 100)))
    assert small < 2_500_000
    assert large < small + 2_500_000
    assert len(page(made(3000, 2, 3))) < MOST_BYTES // 4


def test_long_tables_say_what_they_leave_out() -> None:
    text = page(made(300, 1, 2)).decode()
    assert f"{300 - MOST_ROWS} more topics are not listed." in text
    assert '"293 others"' in text


@pytest.mark.parametrize("character", ["&", "\U0010ffff", "\N{GRINNING FACE}"])
def test_a_page_of_long_texts_is_small(character: str) -> None:
    found = made(500, 1, 1)
    name = 100_000 * character
    config = {f"{number}{name}": (name, ConfigSource.TOPIC) for number in range(3)}
    topics = tuple(replace(each, configs=config, problems=(name,)) for each in found.topics)
    assert len(page(replace(renamed(found, name), topics=topics))) < MOST_BYTES


def test_the_forecast_is_not_drawn_for_the_far_future() -> None:
    """One record of the future would hide all others."""
    found = made(1, 2, 300)
    [topic] = found.topics
    one, other = topic.partitions

    def forecast(*partitions: PartitionReport) -> Any:
        topics = (replace(topic, partitions=partitions),)
        return chart_data(replace(found, topics=topics))["forecast"]

    for years in (200, 7000, 200_000_000):
        later = replace(one.segments[-1], size=1, expires_at_ms=years * 365 * 24 * HOUR_MS)
        drawn = forecast(replace(one, segments=(*one.segments[:-1], later)), other)
        assert drawn["times"][-1] == one.segments[-1].expires_at_ms
        assert drawn["sizes"][-1] == 1
        assert (forecast(replace(one, segments=(later,))) is None) == (years > 8000)


def test_segments_that_are_held_after_they_expired_have_no_time_of_deletion() -> None:
    found = made(1, 1, 3)
    [topic] = found.topics
    [one] = topic.partitions
    held = replace(one.segments[1], expires_at_ms=found.at_ms - HOUR_MS)
    [first, _, last] = one.segments
    late = replace(one, segments=(first, held, last))
    found = replace(found, topics=(replace(topic, partitions=(late,)),))
    [coming] = [each.text for each in highlights(found) if "the next segment" in each.text]
    assert coming == "Retention deletes the next segment in 3 h, at 2026-11-02 09:13:20."
    assert tables.topics(found).rows[0][7].text == "2026-11-02 09:13:20"
    assert tables.partitions(found).rows[0][8].text == "2026-11-02 09:13:20"
    assert chart_data(found)["forecast"]["times"] == [
        *(found.at_ms, found.at_ms, last.expires_at_ms),
    ]


def test_tables_show_the_timestamps_that_there_are(tmp_path: Path) -> None:
    """The charts end at the time of the report, but not the tables."""
    found = logs_of(tmp_path, {"later": [THEN, THEN + HOUR_MS], "none": [-1], "one": [THEN]})
    rows = {row[0].text: [cell.text for cell in row] for row in tables.topics(found).rows}
    assert [rows[name][9:] for name in ("later", "none", "one")] == [
        ["2026-09-21 14:13:20", "2026-09-21 15:13:20"],
        ["-", "-"],
        ["2026-09-21 14:13:20", "2026-09-21 14:13:20"],
    ]
    [row] = tables.disorder(found).rows
    assert [cell.text for cell in row] == ["later/0", "-", "-", "0", "2", "1"]


def test_nothing_in_the_page_leads_elsewhere(corpus: Callable[[str], Path]) -> None:
    text = page(renamed(report_of(corpus("kafka43-clean")), HOSTILE)).decode()
    tags: list[str] = []

    class Parser(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            tags.append(tag)
            for name, value in attrs:
                assert not name.startswith("on")
                assert name not in ("src", "action")
                assert name != "href" or (value or "").startswith(("#", "data:,"))

    Parser(convert_charrefs=True).feed(text)
    assert tags.count("script") == 3
    assert "img" not in tags
    assert "http://" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)


def test_data_cannot_end_its_element() -> None:
    text = script_json({"name": HOSTILE})
    assert "<" not in text
    assert json.loads(text) == {"name": HOSTILE}


def test_the_summary_names_what_matters_worst_first(corpus: Callable[[str], Path]) -> None:
    found = highlights(report_of(corpus("kafka43-torn"), deep=True, now_ms=THEN))
    assert found[0].severity is Severity.BAD
    assert "damaged, in " in found[0].text
    order = list(Severity)
    for one, other in pairwise(found):
        assert order.index(one.severity) <= order.index(other.severity)
    assert {each.section for each in found} <= {"top", *SECTIONS}
    groups = highlights(report_of(corpus("groups43")))
    assert any("17 groups have not read everything" in each.text for each in groups)
    clean = highlights(report_of(corpus("kafka43-clean")))
    assert any("transaction is open, in txn-open/0" in each.text for each in clean)
    assert clean[-1].text == "No damage was found. Only headers were read."


def test_a_mount_has_the_page(
    corpus: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = Tree(Engine(str(corpus("kafka28"))), MountOptions())
    found = file_of(tree, ".kafkafs/report.html").fixed()
    assert isinstance(found, File)
    assert found.attributes().size == MOST_BYTES
    data = bytes(found.open().read(0, MOST_BYTES))
    assert data.startswith(b"<!DOCTYPE html>")
    assert found.attributes().size == len(data)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(NoSuchName):
        tree.resolve(".kafkafs/report.html")


# -- in a browser ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as started:
        yield started


@pytest.fixture
def pictures(tmp_path: Path) -> Path:
    """The directory for screenshots; KAFKAFS_SCREENSHOTS overrides it."""
    directory = Path(os.environ.get("KAFKAFS_SCREENSHOTS") or tmp_path / "pictures")
    directory.mkdir(parents=True, exist_ok=True)
    return directory


def check_quiet(browser: Browser) -> None:
    assert browser.requests() == []
    assert browser.errors() == []


def names_of(browser: Browser, chart: str) -> list[str]:
    """Returns the names of a chart's visible series."""
    script = """
        const chart = document.getElementById(arguments[0]);
        const isShown = (each) => each.visible !== "legendonly";
        return (chart.data || []).filter(isShown).map((each) => each.name);
    """
    found: list[str] = browser.run(script, chart)
    return found


def hover(browser: Browser, chart: str) -> list[str]:
    """Puts the pointer on the first point of each series of a chart; returns what is shown."""
    script = """
        const chart = document.getElementById(arguments[0]);
        const found = chart.data.flatMap((each, curveNumber) => {
          Plotly.Fx.hover(chart, [{ curveNumber, pointNumber: 0 }]);
          return [...chart.querySelectorAll(".hoverlayer text")].map((text) => text.textContent);
        });
        Plotly.Fx.unhover(chart);
        return found;
    """
    found: list[str] = browser.run(script, chart)
    return found


def click_through(browser: Browser) -> None:
    """Uses everything on a page that can be used."""
    driver = browser.driver
    for link in driver.find_elements(By.CSS_SELECTOR, "nav a"):
        link.click()
    for name in ("growth-topic", "skew-topic", "map-topic"):
        choice = Select(driver.find_element(By.ID, name))
        for index in range(min(len(choice.options), 4)):
            choice.select_by_index(index)
    for metric in ("offsets", "size", "rate"):
        browser.run(f"document.querySelector('input[value={metric}]').click()")
    for heading in driver.find_elements(By.CSS_SELECTOR, "th:nth-child(2) button"):
        browser.run("arguments[0].click(); arguments[0].click()", heading)


@pytest.mark.slow
def test_a_browser_shows_the_page_without_network_or_errors(
    browser: Browser, corpus: Callable[[str], Path], tmp_path: Path, pictures: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(page(report_of(corpus("kafka43-clean"), deep=True)))
    colors = "return [document.body, document.querySelector('#growth-chart .xtick text')]"
    colors += ".map((each) => [getComputedStyle(each).backgroundColor, each.style.fill])"
    for name, size in (("laptop", LAPTOP), ("phone", PHONE)):
        browser.open(path, size)
        assert browser.run("return document.querySelectorAll('.chart svg').length") >= 6
        assert browser.run("return document.documentElement.scrollWidth") <= size[0]
        browser.screenshot(pictures / f"{name}-light.png")
        page_light, chart_light = browser.run(colors)
        browser.use_scheme(dark=True)
        browser.wait(f"{colors}[1][1] !== arguments[0]", chart_light[1])
        assert browser.run(colors)[0] != page_light
        browser.screenshot(pictures / f"{name}-dark.png")
        click_through(browser)
        check_quiet(browser)


@pytest.mark.slow
@pytest.mark.parametrize(
    "timestamps", [{}, {"a": [-1], "b": [THEN, 1 << 62, 0], "c": [], "d": [THEN]}]
)
def test_a_browser_shows_next_to_nothing_without_errors(
    browser: Browser, tmp_path: Path, timestamps: Mapping[str, Sequence[int]]
) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(page(logs_of(tmp_path / "data", timestamps)))
    browser.open(path)
    click_through(browser)
    check_quiet(browser)
    for choice in browser.driver.find_elements(By.TAG_NAME, "select"):
        assert choice.is_displayed() == bool(choice.find_elements(By.TAG_NAME, "option"))
    texts = "return [...document.querySelectorAll('p, .chart')].map((each) => each.innerText)"
    shown = [text for text in browser.run(texts) if text]
    assert len(shown) == len(set(shown))


@pytest.mark.slow
def test_legends_headings_and_choices_work(
    browser: Browser, corpus: Callable[[str], Path], tmp_path: Path
) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(page(report_of(corpus("kafka43-clean"))))
    browser.open(path)
    driver = browser.driver
    before = names_of(browser, "growth-chart")
    driver.find_element(By.CSS_SELECTOR, "#growth-chart .legendtoggle").click()
    browser.wait("return document.getElementById('growth-chart').data[0].visible === 'legendonly'")
    assert names_of(browser, "growth-chart") == before[1:]
    Select(driver.find_element(By.ID, "growth-topic")).select_by_visible_text("orders")
    assert names_of(browser, "growth-chart") == [f"partition {number}" for number in range(3)]
    heading = driver.find_element(By.XPATH, "//section[@id='growth']//button[.='size']")
    column = "return [...document.querySelectorAll('#growth td:nth-child(4)')]"
    numbers = f"{column}.map((each) => Number(each.dataset.order))"
    for reverse in (True, False):
        browser.run("arguments[0].click()", heading)
        found = browser.run(numbers)
        assert found == sorted(found, reverse=reverse)
    browser.use_scheme(dark=True)
    browser.wait("return document.getElementById('skew-chart').layout.font.color === '#a9a79f'")
    check_quiet(browser)


@pytest.mark.slow
def test_hostile_names_are_shown_and_do_nothing(browser: Browser, tmp_path: Path) -> None:
    path = tmp_path / "report.html"
    path.write_bytes(page(renamed(made(2, 3, 4), HOSTILE)))
    browser.open(path)
    click_through(browser)
    Select(browser.driver.find_element(By.ID, "growth-topic")).select_by_index(0)
    assert browser.driver.title.startswith("Kafka log directories")
    assert browser.run("return document.querySelectorAll('img').length") == 0
    cells = "return [...document.querySelectorAll('td')].map((each) => each.textContent)"
    assert HOSTILE in browser.run(cells)
    assert any("img src=x" in name for name in names_of(browser, "growth-chart"))
    [label] = browser.driver.find_elements(By.CSS_SELECTOR, "#lag-chart .ytick text")
    assert label.text == HOSTILE
    Select(browser.driver.find_element(By.ID, "map-topic")).select_by_index(0)
    for chart in ("growth-chart", "map-chart", "lag-chart", "gap-chart"):
        assert any(HOSTILE in text for text in hover(browser, chart)), chart
    deleted = "retention.ms deletes it at 2026-11-02 08:13:20"
    assert any(deleted in text for text in hover(browser, "map-chart"))
    assert browser.run("return document.querySelectorAll('img').length") == 0
    check_quiet(browser)
