"""A browser for the tests of the page: Playwright, from the virtual environment that ./run.sh test makes, driving the
system's Chromium. Import this first: it goes on under that environment's Python."""

import os
import pathlib
import shutil
import sys
import time

BIN = pathlib.Path(os.environ["HEADSCOPE_BIN"])
PYTHON = BIN.parent / "tools" / "page" / "bin" / "python"
if PYTHON.exists() and pathlib.Path(sys.prefix) != PYTHON.parent.parent:
    os.execv(PYTHON, [str(PYTHON), *sys.argv])

try:
    from playwright.sync_api import sync_playwright
except ImportError:
    sync_playwright = None

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "support"))
from needs import need  # noqa: E402

CHROMIUM = shutil.which("chromium")


class Browser:
    """Chromium without a window. Collects what a page complains of in `complaints`."""

    def __init__(self):
        need(sync_playwright is not None, "playwright is not installed; ./run.sh test installs it")
        need(CHROMIUM is not None, "chromium is not installed; ./run.sh test installs it")
        self.playwright = sync_playwright().start()
        self.chromium = self.playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        self.complaints = []

    def open(self, url, width=1440, height=900, scheme="light", motion="no-preference"):
        context = self.chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme,
                                            reduced_motion=motion)
        page = context.new_page()
        page.set_default_timeout(60_000)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", lambda message: self.complaints.append(message.text) if message.type == "error" else None)
        page.goto(url)
        return page

    def close(self):
        self.chromium.close()
        self.playwright.stop()


def wait(page, condition, seconds=60):
    """Until a JavaScript expression is true. Playwright's own wait evaluates inside the page, whose policy forbids it."""
    deadline = time.monotonic() + seconds
    while not page.evaluate(condition):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} s: {condition}")
        time.sleep(0.1)


# For every text: [contrast with what lies behind it, text]. Backgrounds are opaque, or nothing.
CONTRASTS = """() => {
  const parse = (text) => (text.match(/[\\d.]+/g) ?? [0, 0, 0, 0]).map(Number);
  const light = ([r, g, b]) => [r, g, b].map((c) => (c /= 255) <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = parse(getComputedStyle(e).backgroundColor);
      if (colour.length < 4 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const found = [];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walk.nextNode(); node; node = walk.nextNode()) {
    const element = node.parentElement;
    const text = node.textContent.trim();
    if (!text || !element.checkVisibility() || element.closest("svg, script, .hidden, .skip, noscript")) continue;
    const [a, b] = [light(parse(getComputedStyle(element).color)), light(behind(element))];
    found.push([(Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05), text.slice(0, 40)]);
  }
  return found.sort((x, y) => x[0] - y[0]);
}"""

# Controls and pictures without a name, and ids that are there twice.
NAMELESS = """() => {
  const name = (e) => e.getAttribute("aria-label") || e.labels?.[0]?.textContent.trim() || e.textContent.trim()
    || (e.getAttribute("aria-labelledby") ?? "").split(" ").map((id) => document.getElementById(id)?.textContent).join("");
  const bad = [...document.querySelectorAll("button, select, input, a, [role=img], [role=grid], [role=gridcell], section")]
    .filter((e) => e.checkVisibility() && !name(e)).map((e) => e.outerHTML.slice(0, 100));
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  return [...bad, ...ids.filter((id, i) => ids.indexOf(id) !== i)];
}"""
