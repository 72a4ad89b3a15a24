"""A person watches a live run in a browser: the grid fills, induction is flagged, a head's charts open, the connection
drops and comes back. HEADSCOPE_SHOTS=DIR keeps screenshots."""

import os
import pathlib
import re
import subprocess
import time
import unittest

from browser import BIN, CONTRASTS, NAMELESS, Browser, wait

from demo import Demo

STEPS = 1500
SECONDS_TO_FLAG = 600
PORT = re.compile(r":(\d+)")


def endpoint(demo):
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and demo.process.poll() is None:
        try:
            return (demo.run_dir / "endpoint").read_text().strip()
        except OSError:
            time.sleep(0.1)
    raise AssertionError(f"no server came up: {demo.output()[-2000:]}")


def shoot(page, name):
    if folder := os.environ.get("HEADSCOPE_SHOTS"):
        page.screenshot(path=pathlib.Path(folder) / f"{name}.png", full_page=True)


class Serve:
    """`headscope serve` of a run directory."""

    def __init__(self, run_dir, port):
        self.process = subprocess.Popen([BIN / "headscope", "serve", run_dir, "--port", str(port)],
                                        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.url = self.process.stdout.readline().strip()

    def close(self):
        self.process.terminate()
        self.process.wait(30)
        self.process.stdout.close()


class Page(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.browser = Browser()
        cls.demo = Demo("--seed", 2, "--steps", STEPS)

    @classmethod
    def tearDownClass(cls):
        cls.demo.close()
        cls.browser.close()

    def no_complaints(self):
        self.assertEqual(self.browser.complaints, [])

    def is_accessible(self, page):
        self.assertEqual(page.evaluate(NAMELESS), [])
        contrasts = page.evaluate(CONTRASTS)
        self.assertGreater(len(contrasts), 100)
        self.assertGreaterEqual(contrasts[0][0], 4.5, contrasts[:5])

    def test_watching_a_live_run(self):
        url = endpoint(self.demo)
        page = self.browser.open(url)
        self.grid_fills(page)
        self.induction_is_flagged(page)
        self.charts_open_by_keyboard(page)
        self.is_accessible(page)
        self.no_complaints()
        shoot(page, "live")
        self.connection_drops_and_recovers(page, url)
        self.recorded_pages(url)

    def grid_fills(self, page):
        wait(page, "document.querySelectorAll('#grid td[data-member]').length === 16")
        wait(page, "[...document.querySelectorAll('#grid .value')].every((e) => /[0-9]/.test(e.textContent))")
        wait(page, "document.querySelector('#status').textContent.startsWith('live')")

    def induction_is_flagged(self, page):
        flagged = page.locator("#event-list li", has_text="induction").filter(has_text="emerging")
        flagged.first.wait_for(timeout=SECONDS_TO_FLAG * 1000)
        state = page.locator(".circuit", has=page.get_by_role("heading", name="induction", exact=True))
        self.assertRegex(state.inner_text(), "emerging|formed|verified")

    def charts_open_by_keyboard(self, page):
        page.locator("#grid td[tabindex='0']").focus()
        page.keyboard.press("Control+Home")
        page.keyboard.press("ArrowDown")
        page.keyboard.press("End")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Head 1.7 over training").wait_for()
        self.assertEqual(page.locator("#grid td[aria-selected=true]").count(), 1)
        wait(page, "document.querySelectorAll('#head-charts canvas').length >= 5")
        label = page.locator("#head-charts .plot").first.get_attribute("aria-label")
        self.assertRegex(label, r"Selectivity.*: last values induction [0-9.]+")

    def connection_drops_and_recovers(self, page, url):
        steps = page.locator("#facts dd").first
        before = int(steps.inner_text().replace(",", ""))
        self.demo.kill()
        wait(page, "document.querySelector('#status').dataset.state === 'lost'")
        self.assertIn("connection lost", page.locator("#status").inner_text())
        self.assertEqual(int(steps.inner_text().replace(",", "")) >= before, True)
        type(self).served = Serve(self.demo.run_dir, PORT.findall(url)[0])
        self.addClassCleanup(self.served.close)
        self.assertEqual(self.served.url, url + "/")
        wait(page, "document.querySelector('#status').dataset.state === 'following'")
        wait(page, f"Number(document.querySelector('#facts dd').textContent.replaceAll(',', '')) >= {before}")
        self.browser.complaints.clear()  # of requests that no server answered

    def recorded_pages(self, url):
        """The same run in the dark, on a phone and from a file."""
        dark = self.browser.open(url, scheme="dark")
        self.grid_filled(dark)
        background = dark.evaluate("getComputedStyle(document.body).backgroundColor")
        self.assertLess(max(map(int, re.findall(r"\d+", background))), 60, background)
        self.is_accessible(dark)
        shoot(dark, "dark")
        self.the_run_is_told(dark)
        self.the_axis_is_chosen(dark)
        self.the_shade_is_chosen(dark)
        phone = self.browser.open(url, width=390, height=844, motion="reduce")
        self.grid_filled(phone)
        self.assertLessEqual(phone.evaluate("document.documentElement.scrollWidth"), 390)
        self.assertGreater(phone.evaluate("document.querySelector('#grid').clientWidth"), 300)
        self.assertEqual(phone.evaluate("getComputedStyle(document.querySelector('#grid td')).transitionDuration"), "0s")
        shoot(phone, "phone")
        report = self.demo.run_dir.parent / "report.html"
        subprocess.run([BIN / "headscope", "report", self.demo.run_dir, "--html", report], check=True)
        page = self.browser.open(report.as_uri())
        self.grid_filled(page)
        page.locator("#grid td").nth(3).click()
        page.get_by_role("heading", name="Head 0.3 over training").wait_for()
        wait(page, "document.querySelectorAll('#head-charts canvas').length >= 5")
        self.the_run_is_told(page)
        self.the_shade_is_chosen(page)
        self.no_complaints()

    def the_run_is_told(self, page):
        """Who comes late reads of everything that has happened, and of what it cost."""
        for selector, least in {"#circuit-list .history li": 2, "#event-list .rule": 2, "#ablation-list .control": 1,
                                "#training-charts canvas": 3, "#null-charts canvas": 1, "#sink-bars li": 2,
                                "#definition-list dd": 10}.items():
            self.assertGreaterEqual(page.locator(selector).count(), least, selector)
        # How many control sets there are depends on the circuit: a dot each, and as many as are told.
        told = page.locator("#ablation-list li", has_text="control set").all_inner_texts()
        self.assertEqual(page.locator("#ablation-list .control").count(),
                         sum(int(re.search(r"(\d+) control set", text)[1]) for text in told), told)
        facts, health = (dict(page.evaluate(
            f"[...document.querySelectorAll('{place} > div')].map((e) => [...e.children].map((c) => c.textContent))"))
            for place in ("#facts", "#health-list"))
        for name in ("step", "tokens", "loss", "heads", "repeat gap", "cost of monitoring"):
            self.assertRegex(facts[name], r"\d", name)
        for name in ("attention calls measured", "taps missing", "snapshots dropped", "errors"):
            self.assertRegex(health[name], r"\d", name)
        leads = page.locator(".circuit .lead").all_inner_texts()
        self.assertTrue(any("the flag led" in lead for lead in leads), leads)
        self.assertRegex(page.locator("#ablation-list .badge").first.inner_text(), "verified|not causal|unspecific|inconclusive")

    def the_axis_is_chosen(self, page):
        label = lambda: page.locator("#head-charts .plot").first.get_attribute("aria-label")
        self.assertIn(" over log tokens: ", label())
        page.locator(".segments label", has_text="step").click()
        self.assertIn(" over steps: ", label())

    def the_shade_is_chosen(self, page):
        """Every choice gives other numbers, in shades that can be read; heads of a circuit have a symbol too."""
        page.select_option("#pattern", "previous-token")
        self.assertGreater(page.locator("#grid td:not([data-member='']) .mark:not(:empty)").count(), 0)
        self.assertEqual(page.locator("#grid td:not([data-member='']) .mark:empty").count(), 0)
        seen = set()
        for figure in ("selectivity", "mass", "participation_ratio", "pr_integral", "sink_mass", "class"):
            page.select_option("#figure", figure)
            seen.add(tuple(page.locator("#grid .value").all_inner_texts()))
            wait(page, "document.getAnimations().length === 0")
            self.assertGreater(page.evaluate("new Set([...document.querySelectorAll('#grid td')].map((e) =>"
                                             " getComputedStyle(e).backgroundColor)).size"), 1, figure)
            self.is_accessible(page)
        self.assertEqual(len(seen), 6)

    def grid_filled(self, page):
        wait(page, "document.querySelectorAll('#grid td[data-member]').length === 16")
        wait(page, "document.querySelectorAll('#head-charts canvas').length >= 5")


if __name__ == "__main__":
    unittest.main(verbosity=2)
