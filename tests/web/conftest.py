"""The page under test: a server of its own, and one real browser for all tests that need one."""

from __future__ import annotations

import logging
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
import uvicorn

from rooflm.web.server import make_app

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync", "--window-size=1280,900",
)  # fmt: skip


SHOWN = """
const done = arguments[1], shown = () => document.body.dataset.state === "shown";
if (shown()) done(true);
const watch = new MutationObserver(() => { if (shown()) { watch.disconnect(); done(true); } });
watch.observe(document.body, { attributes: true, attributeFilter: ["data-state"] });
setTimeout(() => done(false), 1000 * (arguments[0] - 1));
"""
"""Waits in the page until it shows its answer: true, or false where none comes."""
PATIENCE = 90
"""s until what does not come is a fault: only a broken page takes so long, however busy the machine is."""


class Kept(logging.Handler):
    """Keeps what the server logs."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture(scope="session")
def log() -> Kept:
    """What the server logged."""
    return Kept()


@pytest.fixture(scope="session")
def address(log: Kept) -> Iterator[str]:
    """A running server."""
    bound = socket.socket()  # bound here: nobody else can take the port meanwhile
    bound.bind(("127.0.0.1", 0))
    port = bound.getsockname()[1]
    config = uvicorn.Config(make_app(), log_level="warning", access_log=False)
    server = uvicorn.Server(config)
    logging.getLogger("uvicorn.error").addHandler(log)
    thread = threading.Thread(target=server.run, args=([bound],), daemon=True)
    thread.start()
    until = time.monotonic() + PATIENCE
    while not server.started and time.monotonic() < until:
        time.sleep(0.02)
    assert server.started
    yield f"http://127.0.0.1:{port}"
    server.should_exit = True
    thread.join(PATIENCE)


class Page:
    """The page in a browser."""

    def __init__(self, driver: Any, address: str) -> None:
        self.driver, self.address = driver, address

    def js(self, script: str, *given: Any) -> Any:
        """What a script in the page returns."""
        return self.driver.execute_script(script, *given)

    def open(self, path: str) -> Page:
        """Open an address and wait for its answer and pictures."""
        self.driver.get(self.address + path)
        return self.wait()

    def wait(self) -> Page:
        """Wait until nothing is being asked."""
        from selenium.common.exceptions import JavascriptException

        for _ in range(5):
            try:
                assert self.driver.execute_async_script(SHOWN, PATIENCE), f"no answer at {self.driver.current_url}"
                return self
            except JavascriptException:  # the page went on to another while it was watched
                continue
        raise AssertionError(f"no page stays at {self.driver.current_url}")

    def follow(self, script: str) -> Page:
        """Run a script that leads to another page, and wait for that."""
        mark = time.monotonic()  # a page that comes back as it was left has an older one
        self.js(f"window.left = {mark}; {script}")
        return self.until("return window.left !== arguments[0] && document.readyState !== 'loading'", mark)

    def until(self, script: str, *given: Any) -> Page:
        """Wait until a script in the page returns something true, and the page shows its answer."""
        from selenium.common.exceptions import JavascriptException

        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            with suppress(JavascriptException):  # the page goes on to another
                if self.js(script, *given):
                    return self.wait()
            time.sleep(0.02)
        raise AssertionError(f"never so at {self.driver.current_url}: {script}")

    def size(self, width: int, scheme: str = "light") -> None:
        """The screen's width in pixels and its colour scheme."""
        cdp = self.driver.execute_cdp_cmd
        cdp("Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 500})  # fmt: skip
        cdp("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})

    def fill(self, key: str, text: str) -> Page:
        """Write into a field and leave it."""
        self.js("const e = document.forms[0].elements[arguments[0]]; e.value = arguments[1];"
                "e.dispatchEvent(new Event('change', {bubbles: true}));", key, text)  # fmt: skip
        return self.wait()

    @property
    def verdict(self) -> str:
        """The first sentence of the answer."""
        return str(self.js("return document.querySelector('#answer .lead').textContent"))

    def faults(self) -> list[str]:
        """What the browser's console holds."""
        return [entry["message"] for entry in self.driver.get_log("browser")]


@pytest.fixture(scope="session")
def browser(address: str) -> Iterator[Any]:
    """Debian's Chromium, with a profile of its own."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    chromium, driver_path = shutil.which("chromium"), shutil.which("chromedriver")
    assert chromium and driver_path, "the tests of the page need Debian's packages chromium and chromium-driver"
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = chromium
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.add_experimental_option("perfLoggingPrefs", {"enableNetwork": True, "enablePage": False})
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        driver = webdriver.Chrome(options=options, service=Service(driver_path))
        driver.set_script_timeout(PATIENCE)
        yield driver
        driver.quit()


@pytest.fixture
def page(browser: Any, address: str) -> Page:
    """The page, at the width of a laptop, with nothing kept from the test before."""
    found = Page(browser, address)
    found.size(1280)
    found.faults()
    return found
