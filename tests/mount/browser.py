"""A headless Chromium for tests of pages."""

from __future__ import annotations

import base64
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from selenium.webdriver import Chrome, ChromeOptions
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.remote.command import Command
from selenium.webdriver.support.ui import WebDriverWait

from tests.waiting import PATIENCE_SECONDS

#: Width and height of screens, in CSS pixels.
LAPTOP = (1366, 850)
PHONE = (390, 844)
#: Schemes of addresses that need no network.
LOCAL = ("file:", "data:", "blob:", "chrome:", "about:")


class Browser:
    """A window of Chromium."""

    def __init__(self, driver: Chrome) -> None:
        self.driver = driver

    def open(self, page: Path, size: tuple[int, int] = LAPTOP, *, dark: bool = False) -> None:
        """Opens a report on a screen of some size, and waits until its charts are drawn."""
        self.resize(size)
        self.use_scheme(dark=dark)
        self.driver.get(page.as_uri())
        self.wait("return document.documentElement.dataset.ready === 'yes'")

    def resize(self, size: tuple[int, int]) -> None:
        width, height = size
        self.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {
                "width": width,
                "height": height,
                "deviceScaleFactor": 1,
                "mobile": size == PHONE,
            },
        )

    def use_scheme(self, *, dark: bool) -> None:
        features = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})

    def run(self, script: str, *arguments: object) -> Any:
        return self.driver.execute_script(script, *arguments)

    def wait(self, script: str, *arguments: object) -> None:
        """Waits until a script returns true."""
        WebDriverWait(self.driver, PATIENCE_SECONDS, poll_frequency=0.05).until(
            lambda driver: driver.execute_script(script, *arguments)
        )

    def screenshot(self, path: Path) -> None:
        """Writes a picture of the whole page."""
        size = self.driver.execute_cdp_cmd("Page.getLayoutMetrics", {})["cssContentSize"]
        taken = self.driver.execute_cdp_cmd(
            "Page.captureScreenshot",
            {"captureBeyondViewport": True, "clip": {**size, "x": 0, "y": 0, "scale": 1}},
        )
        path.write_bytes(base64.b64decode(taken["data"]))

    def requests(self) -> list[str]:
        """Returns the addresses requested since the last call that need a network."""
        events = (json.loads(message)["message"] for message in self._log("performance"))
        urls = [
            event["params"]["request"]["url"]
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
        return [url for url in urls if not url.startswith(LOCAL)]

    def errors(self) -> list[str]:
        """Returns what the console shows since the last call."""
        return self._log("browser")

    def _log(self, kind: str) -> list[str]:
        answer = self.driver.execute(Command.GET_LOG, {"type": kind})
        return [each["message"] for each in answer["value"]]


@contextmanager
def chromium() -> Iterator[Browser]:
    """Starts Debian's Chromium, without a window."""
    options = ChromeOptions()
    binary, driver = shutil.which("chromium"), shutil.which("chromedriver")
    assert binary is not None, "tests/setup.sh installs chromium"
    assert driver is not None, "tests/setup.sh installs chromium-driver"
    options.binary_location = binary
    for argument in (
        *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
        *("--hide-scrollbars", "--disable-background-networking", "--disable-component-update"),
        "--no-first-run",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    started = Chrome(options=options, service=Service(driver))
    try:
        yield Browser(started)
    finally:
        started.quit()
