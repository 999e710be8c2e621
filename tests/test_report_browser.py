"""The report in a real browser: Chromium, headless, offline. Slow; skipped where Chromium or its driver is missing."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from alternas.results.report.page import write_report
from runs import DATA, drawn_records, made_run

webdriver = pytest.importorskip("selenium.webdriver", reason="needs selenium: pip install selenium")
CHROMIUM, DRIVER = shutil.which("chromium"), shutil.which("chromedriver")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver"),
]
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--window-size=1300,1400",
)
EVIL = "</script><img src=x onerror=alert(1)><b>"


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    options = webdriver.ChromeOptions()
    options.binary_location = CHROMIUM
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('profile')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(DRIVER))
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of a run in which every name is hostile."""
    folder, rows = tmp_path_factory.mktemp("run"), drawn_records(300)
    for row in rows:
        row["genes"] |= {EVIL: EVIL}
    rows[5] |= {"status": "error", "accuracy": None, "error": EVIL}
    made_run(folder, rows, data=DATA | {"name": EVIL}, versions={EVIL: EVIL})
    write_report(folder)
    return folder / "report.html"


def until(true: Callable[[], Any], what: str) -> None:
    end = time.monotonic() + 60
    while not true():
        assert time.monotonic() < end, f"{what}: not within a minute"


def opened(browser: Any, page: Path) -> Any:
    browser.get_log("performance")
    browser.get(page.as_uri())
    drawn = "return document.querySelectorAll('.plot .main-svg').length >= document.querySelectorAll('.plot').length"
    until(lambda: browser.execute_script(drawn), "plots are drawn")
    return browser


def test_no_error_and_no_request_leaves_the_page(browser: Any, page: Path, tmp_path: Path) -> None:
    opened(browser, page)
    assert [entry for entry in browser.get_log("browser") if entry["level"] in ("SEVERE", "WARNING")] == []
    events = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert [url.split("#")[0] for url in urls if not url.startswith(("data:", "blob:"))] == [page.as_uri()]
    assert browser.execute_script("return document.querySelectorAll('img, b').length") == 0
    assert browser.save_screenshot(str(tmp_path / "page.png"))
    assert (tmp_path / "page.png").stat().st_size > 20_000


def test_points_show_their_net(browser: Any, page: Path) -> None:
    """The mouse goes to two points of the front; the panel says their trials and shows their drawings."""
    opened(browser, page)
    where = """
        const plot = document.getElementById("plot-front"), box = plot.getBoundingClientRect();
        const found = [];
        for (const trace of plot.data.filter((t) => t.customdata && t.visible !== "legendonly")) {
            const {xaxis, yaxis} = plot._fullLayout;
            trace.customdata.forEach(([place, trial], i) => found.push([
                place, trial,
                box.left + xaxis._offset + xaxis.d2p(trace.x[i]), box.top + yaxis._offset + yaxis.d2p(trace.y[i])
            ]));
        }
        return found.sort((a, b) => a[0] - b[0]).slice(0, 2);"""
    browser.execute_script("document.getElementById('plot-front').scrollIntoView()")
    heading = "return document.querySelector('#panel h4').textContent"
    for _, trial, x, y in browser.execute_script(where):
        for dx in (40, 0):  # plotly takes no notice of a mouse that stays where it is
            move = {"type": "mouseMoved", "x": x + dx, "y": y}
            browser.execute_cdp_cmd("Input.dispatchMouseEvent", move)
        until(lambda t=trial: browser.execute_script(heading).startswith(f"trial {t}:"), f"the panel shows {trial}")
        name = browser.execute_script("return document.querySelector('#panel svg title').textContent")
        assert browser.execute_script(heading).split()[-1] in name
    assert EVIL in browser.execute_script("return document.getElementById('panel').textContent"), "as it was written"


def test_a_row_shows_its_net_and_a_heading_sorts(browser: Any, page: Path) -> None:
    opened(browser, page)
    browser.execute_script("document.querySelectorAll('button.show')[4].click()")
    shown = browser.execute_script("return document.querySelectorAll('button.show')[4].textContent")
    heading = browser.execute_script("return document.querySelector('#panel h4').textContent")
    assert heading.startswith(f"trial {shown}:")
    cells = """
        const cells = document.querySelectorAll("#table-nets tbody td:nth-child(3)");
        return [...cells].map((cell) => Number(cell.dataset.v));"""
    press = "document.querySelectorAll('#table-nets th button')[2].click()"
    browser.execute_script(press)
    rising = browser.execute_script(cells)
    browser.execute_script(press)
    assert rising == sorted(rising)
    assert browser.execute_script(cells) == sorted(rising, reverse=True)


def test_dark_and_narrow(browser: Any, page: Path) -> None:
    opened(browser, page)
    ground = "return document.getElementById('plot-front')._fullLayout.paper_bgcolor"
    light = browser.execute_script(ground)
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    until(lambda: browser.execute_script(ground) != light, "plots follow the colour scheme")
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    phone = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    until(lambda: browser.execute_script("return innerWidth") == 390, "the page is narrow")
    assert browser.execute_script("return document.documentElement.scrollWidth") == 390, "nothing hangs over"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
