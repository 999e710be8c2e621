"""The report in a real browser: Chromium, headless, offline. Slow; skipped where Chromium or its driver is missing."""

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
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not (CHROMIUM and DRIVER), reason="needs chromium and chromedriver")]
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1300,1400",
)  # fmt: skip
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
    until(lambda: browser.execute_script("return document.querySelectorAll('#panel h4').length"), "the script has run")
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


def mouse(browser: Any, kind: str, x: float, y: float) -> None:
    pressed = {"button": "left", "clickCount": 1} if kind != "mouseMoved" else {}
    browser.execute_cdp_cmd("Input.dispatchMouseEvent", {"type": kind, "x": x, "y": y, **pressed})


def on_screen(browser: Any) -> list[tuple[int, float, float]]:
    """The trial of each net of the front that is shown, and where its mark lies in the window."""
    where = """
        const svg = document.querySelector("#plot-front .desk svg"), ctm = svg.getScreenCTM();
        const take = new Set(DATA.nets.rows.filter((row) => row[10] === 1).map((row) => row[0]));
        return pointsOf(svg).map(({x, y, net}) => [DATA.nets.rows[net][0], new DOMPoint(x, y).matrixTransform(ctm)])
            .filter(([trial]) => take.has(trial)).map(([trial, at]) => [trial, at.x, at.y]);"""
    browser.execute_script("document.getElementById('plot-front').scrollIntoView()")
    return browser.execute_script(where)


HEADING = "return document.querySelector('#panel h4').textContent"


def test_points_show_their_net_and_a_click_holds_it(browser: Any, page: Path) -> None:
    opened(browser, page)
    (trial, x, y), (other, x2, y2), *_ = sorted(on_screen(browser), key=lambda point: point[1])
    for shown, a, b in ((trial, x, y), (other, x2, y2)):
        mouse(browser, "mouseMoved", a, b)
        until(lambda t=shown: browser.execute_script(HEADING).startswith(f"trial {t}:"), f"the panel shows {shown}")
        name = browser.execute_script("return document.querySelector('#panel svg title').textContent")
        assert browser.execute_script(HEADING).split()[-1] in name
        assert browser.execute_script("return document.getElementById('tip').textContent").startswith(f"net {shown},")
    for kind in ("mousePressed", "mouseReleased"):
        mouse(browser, kind, x2, y2)
    mouse(browser, "mouseMoved", x, y)
    until(
        lambda: browser.execute_script("return document.getElementById('tip').textContent").startswith(f"net {trial},"),
        "the mouse is on the other net",
    )
    assert browser.execute_script(HEADING).startswith(f"trial {other}:"), "held"
    assert EVIL in browser.execute_script("return document.getElementById('panel').textContent"), "as it was written"


def test_a_name_in_the_legend_shows_and_hides(browser: Any, page: Path) -> None:
    opened(browser, page)
    early = "[...document.querySelectorAll('#plot-front .desk .p-k')].find((k) => k.textContent === 'stopped early')"
    shown = "return getComputedStyle(key.closest('svg').querySelector(`.p-s[data-s=\"${key.dataset.s}\"]`)).display"
    state = f"const key = {early}; {shown}"
    assert browser.execute_script(state) == "none"
    browser.execute_script(f"{early}.dispatchEvent(new Event('click'))")
    assert browser.execute_script(state) != "none"


@pytest.mark.parametrize("nets", [1, 16])
def test_small_runs_have_no_empty_places(browser: Any, tmp_path: Path, nets: int) -> None:
    write_report(made_run(tmp_path, drawn_records(nets + 4, stops=False)[-nets:]))
    opened(browser, tmp_path / "report.html")
    empty = """
        const parts = [...document.querySelectorAll(".part")];
        return parts.filter((part) => !part.querySelector("svg, table, img")).length;"""
    assert browser.execute_script(empty) == 0


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


@pytest.mark.parametrize("nets", [4, 16])
def test_no_row_and_no_column_of_the_leaderboard_is_hidden(browser: Any, tmp_path: Path, nets: int) -> None:
    """In a window of 1,280 pixels, with ties, intervals, retrainings and gains, which take the most columns."""
    rows = drawn_records(nets + 4, stops=False)
    for row in rows[:4]:
        row["accuracies"] = {"0": row["accuracy"] - 0.01, "1": row["accuracy"] + 0.01}
        row["lineage"] = {}
    folder = made_run(tmp_path / "mine", rows)
    again = [row | {"trial": i, "kind": "retrain", "seed": 7, "factors": {"trial": row["trial"]},
                    "metrics": {"test_accuracy": 0.8}, "training_id": f"{i:012x}"}
             for i, row in enumerate(rows[:8])]  # fmt: skip
    made_run(folder / "retrain", [*again, *(row | {"trial": 8 + row["trial"], "seed": 8} for row in again)])
    write_report(folder)
    wide = {"width": 1280, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", wide)
    opened(browser, folder / "report.html")
    hidden = """
        const frame = document.querySelector("#table-nets").parentNode;
        return [frame.scrollWidth - frame.clientWidth, frame.scrollHeight - frame.clientHeight];"""
    assert browser.execute_script(hidden) == [0, 0]
    heads = "return [...document.querySelectorAll('#table-nets th')].map((head) => head.textContent)"
    assert {"\u00b1", "retrained", "test", "gain", "note", "net"} <= {*browser.execute_script(heads)}
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_dark_and_narrow(browser: Any, page: Path) -> None:
    opened(browser, page)
    ink = "return getComputedStyle(document.querySelector('#plot-front .p-text')).color"
    light = browser.execute_script(ink)
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
    until(lambda: browser.execute_script(ink) != light, "plots follow the colour scheme")
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    phone = {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", phone)
    until(lambda: browser.execute_script("return innerWidth") == 390, "the page is narrow")
    assert browser.execute_script("return document.documentElement.scrollWidth") == 390, "nothing hangs over"
    letters = """
        const seen = [...document.querySelectorAll(".plot svg text")].filter((text) => text.getClientRects().length);
        return Math.min(...seen.map((text) => 12 * text.getScreenCTM().a));"""
    assert browser.execute_script(letters) >= 11, "pixels of text in plots"
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
