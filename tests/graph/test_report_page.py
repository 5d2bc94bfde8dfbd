"""The page in a browser: what is drawn, what is said, what a hostile log can do to it."""

import json
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, sync_playwright

from langchain_spectool.bench.report_page import render, write

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report_page"))

from page_data import HOSTILE, hostile_log, paper

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
PATIENCE_MS = 30_000
POLL_MS = 50
MOST_BYTES = 6_000_000
FIGURES = [
    "plot-paper-saved-by-latency",
    "plot-calibration",
    "plot-arms",
    "plot-timeline-1",
    "plot-timeline-2",
    "plot-samples",
    "plot-agents",
    "plot-timeline",
    "plot-saved-by-latency",
    "plot-seconds-by-tool",
    "plot-speedup-by-alpha",
]

LOOK_AT_FIGURES = """
[...document.querySelectorAll("figure")].map((figure) => ({
  id: figure.querySelector(".plot").id,
  drawn: figure.querySelectorAll(".plot .main-svg").length > 0,
  marks: figure.querySelectorAll(".plot .point, .plot .js-line").length,
  width: figure.querySelector(".plot .main-svg").getBoundingClientRect().width,
  summary: figure.querySelector("figcaption").textContent,
  rows: figure.querySelectorAll("tbody tr").length,
  buttons: [...figure.querySelectorAll(".modebar-btn")].map((b) => b.dataset.title),
}))
"""
LOOK_AT_NAMES = """
[...document.querySelectorAll("#plot-seconds-by-tool .ytick text")].map((tick) => tick.textContent)
"""
LOOK_AT_CELLS = """
[...document.querySelectorAll("#scorecard table:first-of-type tbody th")].map((e) => e.textContent)
"""
LOOK_FOR_INTRUDERS = """
[...document.querySelectorAll("script, img, a, iframe, object, embed, form, [onload], [onerror]")]
  .map((element) => element.outerHTML.slice(0, 40))
"""
SHORT_BARS = """
[...document.querySelectorAll("#plot-timeline .barlayer .point path")].map((path) => {
  const box = path.getBoundingClientRect();
  return { x: box.x + 3, y: box.y + box.height / 2 };
})
"""
TIME_RANGE = "document.querySelector('#plot-timeline')._fullLayout.xaxis.range"


@dataclass
class Visit:
    """What a visit to the page found."""

    size: int
    complaints: list[str] = field(default_factory=list[str])
    """Of the console, and what was thrown."""
    dialogs: list[str] = field(default_factory=list[str])
    requests: list[str] = field(default_factory=list[str])
    figures: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    names: list[str] = field(default_factory=list[str])
    cells: list[str] = field(default_factory=list[str])
    intruders: list[str] = field(default_factory=list[str])
    backgrounds: dict[str, str] = field(default_factory=dict[str, str])
    violations: dict[str, list[str]] = field(default_factory=dict[str, list[str]])
    hovered: str = ""
    ranges: list[list[float]] = field(default_factory=list[list[float]])
    printed: bytes = b""
    widths: tuple[list[float], list[float]] = ([], [])
    """Of the plots on paper, and after."""


@pytest.fixture(scope="module")
def visit(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Visit:
    """Write a page from hostile events, and let a browser look at it once for all tests."""
    found = next(filter(None, map(shutil.which, BROWSERS)), None)
    if found is None:
        reason = "the report page was not tested in a browser: no Chromium (apt install chromium)"
        capture = request.config.pluginmanager.getplugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"\n{reason}", file=sys.stderr)  # noqa: T201 - seen even where skips are not listed
        pytest.skip(reason)
    path = tmp_path_factory.mktemp("page") / "report.html"
    write(render(paper(), hostile_log()), str(path))
    with ThreadPoolExecutor(1) as elsewhere:  # the browser's library runs a loop of its own
        return elsewhere.submit(_visit, path, found).result()


def _visit(path: Path, executable: str) -> Visit:
    seen = Visit(size=path.stat().st_size)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            page = _opened(browser, scheme, path, seen)
            seen.backgrounds[scheme] = page.evaluate("getComputedStyle(document.body).background")
            seen.violations[scheme] = _violations(page)
            if scheme == "light":
                _look(page, seen)
            page.context.close()
        browser.close()
    return seen


def _opened(browser: Browser, scheme: Any, path: Path, seen: Visit) -> Page:
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1200, "height": 900})
    page = context.new_page()
    page.set_default_timeout(PATIENCE_MS)
    page.on("console", lambda message: seen.complaints.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on("request", lambda request: seen.requests.append(request.url))

    def dismiss(dialog: Any) -> None:
        seen.dialogs.append(dialog.message)
        dialog.dismiss()

    page.on("dialog", dismiss)
    page.goto(path.as_uri())
    page.wait_for_selector("html[data-drawn]")
    return page


def _violations(page: Page) -> list[str]:
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    found = Axe().run(page).response["violations"]
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = false))")
    return [
        f"{each['id']}: {each['nodes'][0]['html']}"
        for each in found
        if each["impact"] in ("serious", "critical")
    ]


def _look(page: Page, seen: Visit) -> None:
    seen.figures = page.evaluate(LOOK_AT_FIGURES)
    seen.names = page.evaluate(LOOK_AT_NAMES)
    seen.cells = page.evaluate(LOOK_AT_CELLS)
    seen.intruders = page.evaluate(LOOK_FOR_INTRUDERS)
    _touch(page, seen)
    widths = (
        "[...document.querySelectorAll('.plot .main-svg:first-child')].map((e) => e.clientWidth)"
    )
    page.evaluate(f"addEventListener('beforeprint', () => (window.printed = {widths}))")
    seen.printed = page.pdf()
    seen.widths = (page.evaluate("window.printed"), page.evaluate(widths))


def _touch(page: Page, seen: Visit) -> None:
    """Rest on the first bar, then drag over it to zoom in, then double-click to zoom out."""
    page.locator("#plot-timeline").scroll_into_view_if_needed()
    bar = page.evaluate(SHORT_BARS)[0]
    seen.ranges.append(page.evaluate(TIME_RANGE))
    page.mouse.move(bar["x"], bar["y"])
    page.wait_for_selector("#plot-timeline .hoverlayer .hovertext")
    seen.hovered = page.locator("#plot-timeline .hoverlayer").text_content() or ""
    page.mouse.down()
    page.mouse.move(bar["x"] + 120, bar["y"], steps=4)
    page.mouse.up()
    _until(page, f"{TIME_RANGE}[1] < {seen.ranges[0][1]}")
    seen.ranges.append(page.evaluate(TIME_RANGE))
    page.mouse.dblclick(bar["x"] + 200, bar["y"])
    _until(page, f"{TIME_RANGE}[1] === {seen.ranges[0][1]}")
    seen.ranges.append(page.evaluate(TIME_RANGE))


def _until(page: Page, holds: str) -> None:
    """Wait for an expression; the page's policy forbids to poll within it."""
    for _ in range(PATIENCE_MS // POLL_MS):
        if page.evaluate(holds):
            return
        page.wait_for_timeout(POLL_MS)
    pytest.fail(f"never came true: {holds}")


def test_every_figure_is_drawn(visit: Visit) -> None:
    """Each figure has its plot, one sentence and its data as a table."""
    assert [figure["id"] for figure in visit.figures] == FIGURES
    for figure in visit.figures:
        assert figure["drawn"], figure["id"]
        assert figure["marks"] > 0, figure["id"]
        assert figure["width"] > 500, figure["id"]
        assert figure["summary"].endswith("."), figure["id"]
        assert figure["rows"] > 0, figure["id"]


def test_the_console_stays_empty(visit: Visit) -> None:
    """Nothing is thrown, and nothing is complained about: no policy is broken either."""
    assert visit.complaints == []


def test_the_page_asks_nobody(visit: Visit) -> None:
    """Its file is all that is ever requested; no button sends anything."""
    assert {url.partition(":")[0] for url in visit.requests} <= {"file", "data", "blob"}
    assert sum(url.startswith("file:") for url in visit.requests) == 2
    buttons = {title for figure in visit.figures for title in figure["buttons"]}
    assert buttons
    assert not [title for title in buttons if "hare" in title or "loud" in title]
    assert visit.size <= MOST_BYTES


def test_hostile_names_are_seen_as_they_are(visit: Visit) -> None:
    """Markup, formulas and templates in a tool's name are text in plots and tables."""
    assert sorted(visit.names) == sorted(HOSTILE)
    assert sorted(visit.cells[: len(HOSTILE)]) == sorted(HOSTILE)


def test_hostile_names_do_nothing(visit: Visit) -> None:
    """No dialog opens, and the page has no element but its own."""
    assert visit.dialogs == []
    assert [each for each in visit.intruders if not each.startswith('<a href="#')] == [
        '<script type="application/json" id="figu',
        *[each for each in visit.intruders if each.startswith("<script>")],
    ]
    assert len([each for each in visit.intruders if each.startswith("<script>")]) == 2


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_serious_barrier(visit: Visit, scheme: str) -> None:
    """Axe finds nothing serious or critical, with all tables open."""
    assert visit.violations[scheme] == []


def test_light_and_dark_differ(visit: Visit) -> None:
    """The page follows the theme of its reader."""
    assert "rgb(255, 255, 255)" in visit.backgrounds["light"]
    assert "rgb(20, 23, 28)" in visit.backgrounds["dark"]


def test_the_timeline_tells_and_zooms(visit: Visit) -> None:
    """A bar under the pointer says what it is; dragging zooms in, a double click out."""
    assert "model (model writes)" in visit.hovered
    assert "turn 1" in visit.hovered
    before, zoomed, after = visit.ranges
    assert zoomed[1] - zoomed[0] < (before[1] - before[0]) / 2
    assert after == before


def test_it_prints(visit: Visit) -> None:
    """On paper every plot fits, and the screen is as before once it is printed."""
    assert visit.printed.startswith(b"%PDF-")
    on_paper, after = visit.widths
    assert len(on_paper) == len(FIGURES)
    assert max(on_paper) <= 660
    assert min(after) > 900


def test_figures_are_what_plotly_knows() -> None:
    """The library's own check accepts every trace and every layout."""
    objects = pytest.importorskip("plotly.graph_objects")
    page = render(paper(), hostile_log())
    data = page.partition('id="figures">')[2].partition("</script>")[0]
    for figure in json.loads(data).values():
        objects.Figure(data=figure["data"], layout=figure["layout"])
