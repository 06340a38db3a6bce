"""A headless Chromium, driven by Selenium, for tests of pages.

Debian has both in the packages chromium and chromium-driver.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service

CHROMIUM: Final = shutil.which("chromium")
DRIVER: Final = shutil.which("chromedriver")
WHY_NOT: Final = "" if CHROMIUM and DRIVER else "chromium and chromedriver are not installed"

PATIENCE_S: Final = 110
"""Seconds that a script may take; below the two minutes that Selenium waits for an answer."""

_OPTIONS: Final = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


class Browser:
    """One window. Times of a slow machine do not matter: `run` returns when the script has run."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def resize(self, width: int, height: int) -> None:
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def open(self, where: str | Path, width: int = 1400, height: int = 900) -> None:
        """Open a file or an address, and wait until it has loaded."""
        self.resize(width, height)
        self.driver.get("about:blank")  # else only the part after # would change
        self.driver.get(where.as_uri() if isinstance(where, Path) else where)

    def run(self, script: str, *arguments: Any) -> Any:
        """Return what the body of a function returns; a promise is awaited."""
        return self.driver.execute_script(script, *arguments)

    def click(self, selector: str) -> None:
        """Click an element; once more if the page has drawn it anew meanwhile."""
        while True:
            with suppress(StaleElementReferenceException):
                self.driver.find_element("css selector", selector).click()
                return

    def complaints(self) -> list[str]:
        """Return the errors and warnings of the page since the last call."""
        entries = self.driver.get_log("browser")  # type: ignore[no-untyped-call]
        return [str(each["message"]) for each in entries]


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Yield a browser with a new profile; it ends with the block."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = CHROMIUM or ""
        for option in (*_OPTIONS, f"--user-data-dir={profile}"):
            options.add_argument(option)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(DRIVER))
        driver.set_script_timeout(PATIENCE_S)
        try:
            yield Browser(driver)
        finally:
            driver.quit()


def logged_by(page: Path) -> list[str]:
    """Load a page in a browser that Selenium does not drive; return what its console has.

    What a driven browser draws first has another size, and it may miss errors of the first frame.
    """
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ("--enable-logging=stderr", "--v=0", "--dump-dom", "--window-size=1400,1000")
        given = (CHROMIUM or "", *_OPTIONS, f"--user-data-dir={profile}", *options, page.as_uri())
        ran = subprocess.run(given, capture_output=True, check=True, timeout=PATIENCE_S)
    return [line for line in ran.stderr.decode().splitlines() if ":CONSOLE:" in line]
