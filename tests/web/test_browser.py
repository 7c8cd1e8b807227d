"""The page in a real browser: every tab, links, sliders, errors, widths, keyboard, accessibility, walks of clicks."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest

from rooflm.web.tabs.table import TABS
from rooflm_fit.twelve import PAGE, QUESTIONS

AXE = (
    "return axe.run({exclude: [['.plot svg']]}, {resultTypes: ['violations'], iframes: false})"
    ".then(r => r.violations.map(v => [v.id, v.nodes[0].html]))"
)
"""What is inaccessible; the inside of a picture is hidden from readers, who get its label."""


def hosts(page: Any) -> set[str]:
    """Hosts that the browser asked."""
    found = set()
    for entry in page.driver.get_log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            url = message["params"]["request"]["url"]
            if url.startswith(("http", "ws")):
                found.add(url.split("/")[2])
    return found


def axe() -> str:
    """The script of axe-core."""
    import axe_core_python

    return (Path(axe_core_python.__file__).parent / "axe.min.js").read_text(encoding="utf-8")


def quiet(page: Any, log: Any) -> None:
    """Neither console nor log holds a fault."""
    assert page.faults() == []
    assert log.lines == []


ERRORS = {
    "fits": ("gpu", "h1000", "unknown GPU"), "speed": ("batch", "0", "must be"), "serve": ("ttft", "soon", "ttft is"),
    "search": ("find.gpus_max", "1000", "at most 64"), "train": ("train.batch", "x", "must be a number"),
    "compare": ("b.model", "gpt-9", "unknown model"), "map": ("map.xs", "1..100000", "100"),
}  # fmt: skip
"""Tab -> a field, what is wrong in it, and what is said of it."""


@pytest.mark.parametrize("tab", TABS)
def test_a_tab_at_every_width_dark_and_light_is_accessible_and_tells_errors(tab: str, page: Any, log: Any) -> None:
    page.driver.get_log("performance")
    page.open(f"/{tab}?output=16&tpot=12ms")
    assert page.verdict and tab in page.driver.current_url
    pictures = page.js(
        "return [document.querySelectorAll('.plot').length, document.querySelectorAll('.plot svg').length]"
    )
    assert pictures[0] == pictures[1] and (pictures[0] > 0 or tab in ("fits", "train"))
    error_comes_and_goes(page, *ERRORS[tab])
    page.js(axe())
    for width, scheme in ((1280, "dark"), (2560, "light"), (360, "light")):
        page.size(width, scheme)
        page.js("document.body.dataset.state = 'sized'; dispatchEvent(new Event('resize'))")
        page.wait()
        if width < 500:
            page.js("document.querySelector('.asked').open = true")
        wide = page.js("return [document.documentElement.scrollWidth, innerWidth]")
        assert wide[0] <= width and wide[1] <= width
        if width != 2560:
            assert page.js(AXE) == []
    assert hosts(page) == {page.address.removeprefix("http://")}
    quiet(page, log)


OVERLAPS = """
const shown = [...document.querySelectorAll(".plot .mark-text.role-mark text")].filter((t) => t.textContent);
const box = shown.map((t) => t.getBoundingClientRect());
return [shown.length, box.some((a, i) => box.slice(i + 1).some((b) =>
  a.left < b.right && a.right > b.left && a.top < b.bottom && a.bottom > b.top))];
"""
"""How many labels the pictures have, and whether any two lie on one another."""


@pytest.mark.parametrize("tab", ["speed", "search", "map"])
def test_no_label_lies_on_another_on_a_phone(tab: str, page: Any) -> None:
    page.size(400)
    count, overlap = page.open(f"/{tab}").js(OVERLAPS)
    assert count > 2 and not overlap


@pytest.mark.parametrize("tab", ["search", "compare", "map"])
def test_on_a_wide_screen_pictures_stand_whole_beside_the_answer(tab: str, page: Any) -> None:
    page.size(1920)
    page.open(f"/{tab}?output=16")
    answer, figure = page.js(
        "return ['#answer', '#figures'].map((s) => document.querySelector(s).getBoundingClientRect().top)"
    )
    assert abs(answer - figure) < 2
    assert page.js("return [...document.querySelectorAll('.paper')].every((p) => p.scrollWidth <= p.clientWidth)")


def test_what_the_training_tab_opens_on_fits(page: Any) -> None:
    assert page.open("/train").verdict.startswith("It fits")


def error_comes_and_goes(page: Any, key: str, text: str, sentence: str) -> None:
    """What is wrong with a field stands beside it until it is right."""
    before = page.verdict
    usual = page.js("return document.forms[0].elements[arguments[0]].value", key)
    field = "return [document.getElementById('e-' + arguments[0]).textContent, " \
            "document.forms[0].elements[arguments[0]].getAttribute('aria-invalid')]"  # fmt: skip
    page.fill(key, text)
    told, invalid = page.js(field, key)
    assert sentence in told and invalid == "true"
    page.fill(key, usual)
    assert page.js(field, key) == ["", None]
    assert page.verdict == before


def test_a_field_changes_the_answer_and_the_address_is_a_link_to_it(page: Any, log: Any) -> None:
    page.open("/fits")
    assert page.verdict.startswith("Yes, it fits")
    page.fill("model", "llama-3.1-70b")
    assert page.verdict.startswith("No, it does not fit")
    assert page.driver.title == "Fits? llama-3.1-70b on h100 · rooflm"
    assert page.js("return document.querySelector('.asked summary').textContent") == "llama-3.1-70b on h100: change"
    assert "model=llama-3.1-70b" in page.driver.current_url
    said, link = page.verdict, page.driver.current_url
    page.open("/train")
    page.open(link.removeprefix(page.address))
    assert page.verdict == said
    assert page.follow("document.querySelector('.choices a').click()").verdict.startswith("Yes, it fits")
    assert page.follow("history.back()").verdict == said
    assert (
        page.follow("document.querySelector('nav a[data-tab=speed]').click()").js(
            "return document.forms[0].elements.model.value"
        )
        == "llama-3.1-70b"
    )
    quiet(page, log)


def test_a_slider_is_dragged_and_driven_by_keys(page: Any, log: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    page.open("/speed")
    slider = page.driver.find_element("css selector", "#s-batch")
    before = page.verdict
    slider.send_keys(Keys.ARROW_RIGHT, Keys.ARROW_RIGHT)
    said = "document.querySelector('#answer .lead').textContent"
    page.until(f"return {said} !== arguments[0] && location.search.includes('batch=16')", before)
    assert page.js("return document.forms[0].elements.batch.value") == "16"
    assert slider.get_attribute("aria-valuetext") == "16"
    assert "batch=16" in page.driver.current_url
    quiet(page, log)


def test_a_search_tells_how_far_it_is_and_stops(page: Any, log: Any) -> None:
    page.driver.get(f"{page.address}/search?model=deepseek-v3&gpu=b200&find.gpus_max=64&output=40")
    told = "const w = document.getElementById('work'); return !w.hidden && w.innerText.includes('done')"
    assert any(page.js(told) or time.sleep(0.1) for _ in range(900))
    page.js(axe())
    assert page.js(AXE) == []
    page.js("document.getElementById('stop').click()")
    page.until("return document.body.dataset.state === 'shown'")
    assert page.verdict == "Stopped." and page.js("return document.getElementById('work').hidden")
    page.fill("find.gpus_max", "2")
    assert page.verdict.startswith(("Best", "Nothing"))
    quiet(page, log)


def test_the_first_key_leads_to_the_answer(page: Any) -> None:
    from selenium.webdriver.common.keys import Keys

    page.open("/fits")
    page.driver.find_element("tag name", "body").send_keys(Keys.TAB)
    assert page.js("return document.activeElement.className") == "skip"
    page.driver.switch_to.active_element.send_keys(Keys.ENTER)
    page.until("return document.activeElement.id === 'answer'")


def test_a_file_becomes_the_model_and_the_theme_stays(page: Any, log: Any, tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 1024, "num_hidden_layers": 8, "num_attention_heads": 16,
              "intermediate_size": 4096, "vocab_size": 32000, "max_position_embeddings": 8192}  # fmt: skip
    file = tmp_path / "tiny.json"
    file.write_text(json.dumps(config), encoding="utf-8")
    page.open("/fits")
    page.driver.find_element("id", "file").send_keys(str(file))
    page.until("return location.href.replaceAll('%7E', '~').includes('config~tiny.json~')")
    assert page.js("return document.forms[0].elements.model.value") == "tiny.json"
    link = page.driver.current_url
    page.js("document.getElementById('theme').click(); document.getElementById('theme').click()")
    page.open(link.removeprefix(page.address))
    assert page.js("return document.documentElement.dataset.theme") == "dark"
    assert page.js("return document.forms[0].elements.model.value") == "tiny.json"
    page.js("localStorage.removeItem('theme')")
    quiet(page, log)


STEP = """
const [kind, at] = arguments, shown = (e) => e.offsetParent !== null && !e.disabled;
const all = (s) => [...document.querySelectorAll(s)].filter(shown);
const pick = (s) => all(s)[Math.floor(at * all(s).length)];
if (kind === 'link') { const a = pick('nav a, .choices a'); a?.click(); }
if (kind === 'fold') pick('summary')?.click();
if (kind === 'button') pick('button')?.click();
if (kind === 'slide') { const s = pick('input[type=range]'); if (s) {
  s.value = Math.floor(at * 7919) % (Number(s.max) + 1);
  s.dispatchEvent(new Event('input', {bubbles: true})); s.dispatchEvent(new Event('change', {bubbles: true})); } }
if (kind === 'choose') { const s = pick('select'); if (s) { s.selectedIndex = Math.floor(at * 7919) % s.options.length;
  s.dispatchEvent(new Event('change', {bubbles: true})); } }
if (kind === 'write') { const s = pick('form input:not([type=file]):not([type=hidden])'); if (s) {
  s.value = ['2', '4', 'h200', '', '0', 'nonsense', '1..8', '1e300', 'a100,h100'][Math.floor(at * 7919) % 9];
  s.dispatchEvent(new Event('change', {bubbles: true})); } }
"""
KINDS = ("link", "fold", "button", "slide", "choose", "write")
HEAVY = ("/serve", "/search")
"""Tabs at which a walk turns back: they take a second each."""


def test_twenty_random_walks_leave_no_fault(page: Any, log: Any) -> None:
    walk = random.Random(47)
    light = [t for t in TABS if f"/{t}" not in HEAVY]
    for number in range(20):
        if number % 4 == 0 or any(
            path in page.driver.current_url for path in HEAVY
        ):  # else on from where the last ended
            page.open(f"/{walk.choice(light)}?output=16&map.xs=1,8&map.ys=256,512")
        for _ in range(4):
            page.js(STEP, walk.choice(KINDS), walk.random())
            time.sleep(0.03)
            if any(path in page.driver.current_url for path in HEAVY) and walk.random() < 0.7:
                break
            page.until("return document.querySelector('#answer .lead') !== null")
        faults = [f for f in page.faults() if "AbortError" not in f]
        assert faults == [] and log.lines == [], page.driver.current_url


def test_the_links_of_the_twelve_questions_show_their_numbers(page: Any, log: Any) -> None:
    sections = PAGE.read_text(encoding="utf-8").split("\n## ")[1:]
    for q, text in zip(QUESTIONS, sections, strict=True):
        assert q.address in text
        words = re.search(re.sub(r"\\{\d\\}", "(.+?)", re.escape(q.answer)) + " On the page", text)
        page.open(q.address)
        shown = page.js("return document.querySelector('.result').textContent")
        assert words and not [w for w in words.groups() if w not in shown], (q.text, shown[:500])
    quiet(page, log)


def test_it_prints_light_whole_and_with_its_command(page: Any) -> None:
    page.size(800, "dark")
    page.open("/search?find.gpus_max=2&output=16")
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": [
        {"name": "prefers-color-scheme", "value": "dark"}]})  # fmt: skip
    try:
        colour, wide, command, left = page.js("""
            const body = getComputedStyle(document.body), all = [...document.querySelectorAll("details.block pre")];
            return [body.backgroundColor, document.querySelector(".scroll").scrollWidth - 800,
                    all.every((e) => e.checkVisibility()), document.querySelector("nav").checkVisibility()]""")
    finally:
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})
    assert colour == "rgb(251, 250, 248)" and wide <= 0 and command and not left
