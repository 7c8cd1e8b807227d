"""The page in a real browser: first paint, slider to picture, and the server's memory with ten people at it.

Prints the time to the first contentful paint of a fresh profile and of a second visit, the time from moving a slider to
the painted answer (95th percentile over all sliders of two tabs), and the server's largest resident memory once ten
windows are open and dragged. Needs Chromium and its driver, and the extras `web` and `test`.
"""

from __future__ import annotations

import re
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
         "--disable-background-networking", "--disable-component-update", "--disable-sync",
         "--window-size=1280,900")  # fmt: skip
TABS = ("fits", "speed", "train", "compare", "map", "search", "serve", "fits", "speed", "train")
DRAG = """
const done = arguments[arguments.length - 1];
const painted = () => new Promise((f) => requestAnimationFrame(() => setTimeout(f)));
(async () => {
  const took = [];
  for (const s of document.querySelectorAll('input[type=range]')) {
    s.dispatchEvent(new Event('pointerenter'));
    await new Promise((f) => setTimeout(f, 1500));
    for (let round = 0; round < 2; round++) for (let at = 0; at <= Number(s.max); at++) {
      const start = performance.now();
      s.value = at; s.dispatchEvent(new Event('input', {bubbles: true}));
      await painted();
      took.push(performance.now() - start);
    }
  }
  done(took);
})();
"""


def browser() -> Any:
    """A browser with a profile of its own."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or "chromium"
    for flag in (*FLAGS, f"--user-data-dir={tempfile.mkdtemp()}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_script_timeout(120)
    return driver


@contextmanager
def served() -> Iterator[tuple[str, int]]:
    """`rooflm web` as people start it: its address and process number."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "rooflm", "web", "--no-browser", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    address = f"http://127.0.0.1:{port}"
    try:
        for _ in range(200):
            try:
                urllib.request.urlopen(f"{address}/static/icon.svg", timeout=5).close()
                break
            except OSError:
                time.sleep(0.1)
        time.sleep(3)  # what the first answers need is made in the meantime
        yield address, process.pid
    finally:
        process.terminate()
        process.wait(10)


def shown(driver: Any, seconds: float = 60) -> None:
    """Wait for answer and pictures."""
    until = time.monotonic() + seconds
    while driver.execute_script("return document.body.dataset.state") != "shown" and time.monotonic() < until:
        time.sleep(0.02)


PAINT = "return performance.getEntriesByName('first-contentful-paint')[0]?.startTime ?? 0"


def first_paint(driver: Any, address: str) -> float:
    """Seconds from the request to the first contentful paint."""
    driver.get(address)
    shown(driver)
    until = time.monotonic() + 10
    while not driver.execute_script(PAINT) and time.monotonic() < until:
        time.sleep(0.02)
    return float(driver.execute_script(PAINT)) / 1e3


def memory(pid: int) -> tuple[float, float]:
    """Resident and largest resident memory of a process (MB)."""
    text = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    now, most = (float(re.findall(rf"{key}:\s+(\d+) kB", text)[0]) * 1024 / 1e6 for key in ("VmRSS", "VmHWM"))
    return now, most


def main() -> None:
    """Print the figures."""
    with served() as (address, pid):
        driver = browser()
        fresh = first_paint(driver, f"{address}/fits")
        again = [first_paint(driver, f"{address}/{tab}") for tab in ("fits", "speed", "train", "fits", "speed")]
        print(f"first paint: {fresh:.2f} s in a fresh browser, {statistics.median(again):.2f} s on the next pages")
        took: list[float] = []
        for tab in ("fits", "speed"):
            driver.get(f"{address}/{tab}")
            shown(driver)
            took += driver.execute_async_script(DRAG)
        took.sort()
        print(f"slider to painted answer: median {statistics.median(took):.0f} ms, 95th percentile "
              f"{took[int(0.95 * len(took))]:.0f} ms, worst {took[-1]:.0f} ms ({len(took)} moves)")  # fmt: skip
        print(f"server before the ten: {memory(pid)[0]:.0f} MB")
        for n, tab in enumerate(TABS):
            driver.switch_to.new_window("tab")
            driver.get(f"{address}/{tab}?batch={n + 2}&output={64 + n}")
            shown(driver)
            driver.execute_script("for (const s of document.querySelectorAll('input[type=range]')) s.focus()")
        time.sleep(5)
        now, most = memory(pid)
        print(f"server with ten windows: {now:.0f} MB, at most {most:.0f} MB")
        driver.quit()


if __name__ == "__main__":
    main()
