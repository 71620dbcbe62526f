#!/usr/bin/env python3
"""Looks at a report with headless Chromium, over the WebDriver protocol (standard library only).

Usage: check_report.py REPORT_DIR RUNS_DIR [--shots DIR]

Fails unless the plots are there, a value appears when it is pointed at, nothing is asked of the network, nothing is said on the
console, no text from outside became markup, the page fits a phone, and dark mode and printing look as they should.
"""
import argparse
import base64
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
FLAGS = [
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--disable-extensions", "--hide-scrollbars",
    "--force-color-profile=srgb", "--window-size=1280,1000",
]
DESK = {"width": 1280, "height": 1000, "deviceScaleFactor": 1, "mobile": False}
PHONE = {"width": 390, "height": 844, "deviceScaleFactor": 2, "mobile": True}
failures = []


def check(good, what):
    print(("ok      " if good else "FAILED  ") + what)
    if not good:
        failures.append(what)


class Browser:
    """One session of a chromedriver of our own."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="tprop-browser-")
        self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.session = None
        self.opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        self.base = f"http://127.0.0.1:{self.port()}"
        options = {"args": FLAGS + [f"--user-data-dir={self.profile}"], "binary": shutil.which("chromium")}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options,
                  "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        self.session = self.call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def port(self):
        """Chromedriver says which port it took."""
        found, lines = [], []

        def read():
            for line in self.driver.stdout:
                lines.append(line)
                if match := re.search(r"started successfully on port (\d+)", line):
                    found.append(int(match[1]))

        threading.Thread(target=read, daemon=True).start()
        until = time.monotonic() + 120
        while not found:
            if time.monotonic() > until or self.driver.poll() is not None:
                sys.exit("chromedriver did not start:\n" + "".join(lines))
            time.sleep(0.05)
        return found[0]

    def call(self, method, path, body=None):
        data = None if method == "GET" else json.dumps(body or {}).encode()
        where = self.base + (f"/session/{self.session}" if self.session else "") + path
        request = urllib.request.Request(where, data=data, method=method, headers={"Content-Type": "application/json"})
        try:
            with self.opener.open(request, timeout=180) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{method} {path}: {error.read().decode()[:600]}") from None

    def run(self, script, *args):
        return self.call("POST", "/execute/sync", {"script": script, "args": list(args)})

    def devtools(self, command, **params):
        return self.call("POST", "/goog/cdp/execute", {"cmd": command, "params": params})

    def open(self, path):
        self.call("POST", "/url", {"url": pathlib.Path(path).resolve().as_uri()})

    def find(self, selector):
        return self.call("POST", "/element", {"using": "css selector", "value": selector})[ELEMENT]

    def point_at(self, selector, kind="mouse"):
        element = {ELEMENT: self.find(selector)}
        self.run("arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})", element)
        moves = [{"type": "pointerMove", "duration": 0, "origin": element, "x": 0, "y": 0}]
        if kind == "touch":
            moves += [{"type": "pointerDown", "button": 0}, {"type": "pointerUp", "button": 0}]
        source = {"type": "pointer", "id": kind, "parameters": {"pointerType": kind}, "actions": moves}
        self.call("POST", "/actions", {"actions": [source]})

    def log(self, kind):
        return self.call("POST", "/se/log", {"type": kind})

    def shot(self, path, width, height):
        picture = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True,
                                clip={"x": 0, "y": 0, "width": width, "height": height, "scale": 1})
        pathlib.Path(path).write_bytes(base64.b64decode(picture["data"]))

    def close(self):
        try:
            if self.session:
                self.call("DELETE", "")
        finally:
            self.driver.terminate()
            self.driver.wait(timeout=60)
            shutil.rmtree(self.profile, ignore_errors=True)


def light(browser):
    """How light the page's background is, from 0 to 255."""
    colour = browser.run("return getComputedStyle(document.body).backgroundColor")
    return sum(map(int, re.findall(r"\d+", colour)[:3])) / 3


def look(browser, report, runs, shots):
    page = report / "report.html"
    browser.devtools("Emulation.setDeviceMetricsOverride", **DESK)
    browser.open(page)
    check(browser.run("return document.title") == "Tiny <b>runs</b>", "the title is text")
    check(browser.run("return [typeof window.hacked, document.images.length, document.scripts.length]") == ["undefined", 0, 1],
          "no text from outside became markup or ran")
    text = browser.run("return document.body.innerText")
    check("<img src=x onerror" in text and "<script>window.hacked = 2</script>" in text, "it is shown as text")
    check(not re.search("[\u0000-\u0008\u000b-\u001f\u202a-\u202e\u2066-\u2069]", text), "no control or direction marks")
    check("record.jsonl: line" in text, "the broken line is named")

    plots = browser.run("""return [...document.querySelectorAll('figure')].map(f => {
        const svg = f.querySelector('.wide svg'), box = svg.getBoundingClientRect();
        return [f.id, box.width, box.height, svg.querySelectorAll('.pt').length, svg.querySelectorAll('.tick').length]})""")
    names = [plot[0] for plot in plots]
    for name in ["plot-valid-ppl", "plot-train-ppl", "plot-loss", "plot-residual", "plot-positions", "plot-comparison"]:
        check(name in names, f"{name} is there")
    check(all(w > 300 and h > 80 and points > 0 and ticks > 1 for _, w, h, points, ticks in plots), f"{len(plots)} plots are drawn")
    over = browser.run("""return [...document.querySelectorAll('.wide svg')].flatMap(svg => {
        const box = svg.getBoundingClientRect();
        return [...svg.querySelectorAll('text')].filter(t => {
            const b = t.getBoundingClientRect();
            return b.left < box.left - 1 || b.right > box.right + 1 || b.top < box.top - 1 || b.bottom > box.bottom + 1;
        }).map(t => t.textContent)})""")
    check(not over, f"no label leaves its plot {over or ''}")
    number = browser.run("""return [...document.querySelectorAll('#plot-valid-ppl .wide .series')]
        .find(s => s.textContent.trim() === 'bptt').dataset.s""")
    browser.point_at(f"#plot-valid-ppl .wide .series[data-s='{number}'] circle.pt")
    seen = browser.run("const r = document.getElementById('readout'); return [r.hidden, r.textContent]")
    evals = []
    for seed in (1, 2):
        lines = (runs / f"bptt-s{seed}" / "record.jsonl").read_text(encoding="utf-8").splitlines()
        evals.append(next(e["valid_ppl"] for e in map(json.loads, lines) if e["event"] == "eval"))
    shown = re.search(r"bptt\nepoch 1: validation ([\d.]+) ± ([\d.]+) \(2 seeds\)", seen[1])
    mean = sum(evals) / 2
    check(not seen[0] and shown and abs(float(shown[1]) - mean) < 0.006, f"pointing at a value shows it: {seen[1]!r}")
    check(browser.run("return document.querySelectorAll('.pt.near').length") == len(seen[1].splitlines()) / 2, "and marks it")
    if shots:
        height = browser.run("return document.documentElement.scrollHeight")
        browser.point_at("h1")
        browser.shot(shots / "light.png", 1280, height)

    browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "light"}])
    bright = light(browser)
    browser.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    dark = light(browser)
    check(bright > 200 and dark < 60, f"dark mode is dark ({bright:.0f} and {dark:.0f})")
    ink = browser.run("return getComputedStyle(document.querySelector('.plot .title')).fill")
    check(sum(map(int, re.findall(r"\d+", ink)[:3])) / 3 > 180, f"and so are its plots' letters light ({ink})")
    if shots:
        browser.shot(shots / "dark.png", 1280, height)
    browser.devtools("Emulation.setEmulatedMedia", media="print", features=[{"name": "prefers-color-scheme", "value": "dark"}])
    check(browser.run("return getComputedStyle(document.querySelector('nav')).display") == "none" and light(browser) > 200,
          "on paper it is light and has no menu")
    browser.devtools("Emulation.setEmulatedMedia", media="", features=[{"name": "prefers-color-scheme", "value": "light"}])

    browser.devtools("Emulation.setDeviceMetricsOverride", **PHONE)
    browser.devtools("Emulation.setTouchEmulationEnabled", enabled=True)
    browser.open(page)
    wide = browser.run("return [document.documentElement.scrollWidth, innerWidth, document.body.scrollWidth]")
    check(wide[0] <= 390 and wide[2] <= 390, f"a phone need not scroll sideways {wide}")
    small = browser.run("""return Math.min(...[...document.querySelectorAll('.narrow text')].filter(t => t.getClientRects().length)
        .map(t => parseFloat(getComputedStyle(t).fontSize) * t.ownerSVGElement.getBoundingClientRect().width / t.ownerSVGElement.viewBox.baseVal.width))""")
    check(small >= 9, f"letters of plots are {small:.1f} pixels there")
    browser.point_at(f"#plot-valid-ppl .narrow .series[data-s='{number}'] circle.pt", "touch")
    seen = browser.run("const r = document.getElementById('readout'); return [r.hidden, r.textContent]")
    check(not seen[0] and "bptt\nepoch 1" in seen[1], f"touching a value shows it: {seen[1]!r}")
    if shots:
        height = browser.run("return document.documentElement.scrollHeight")
        browser.shot(shots / "phone.png", 390, min(height, 6000))

    for svg in sorted((report / "report").glob("*.svg")):
        browser.open(svg)
        found = browser.run("return [document.documentElement.nodeName, document.querySelectorAll('.pt, .tick').length, document.querySelectorAll('parsererror').length]")
        check(found[0] == "svg" and found[1] > 0 and found[2] == 0, f"{svg.name} stands alone")

    said = [entry for entry in browser.log("browser") if entry["level"] in ("SEVERE", "WARNING")]
    check(not said, f"nothing on the console {said or ''}")
    asked = set()
    for entry in browser.log("performance"):
        message = json.loads(entry["message"])["message"]
        if message["method"] == "Network.requestWillBeSent":
            asked.add(message["params"]["request"]["url"])
    ours = report.resolve().as_uri()
    # The page that a new window begins with is the browser's own.
    asked = {url for url in asked if not url.startswith(("chrome:", "chrome-untrusted:", "chrome-extension:"))}
    strange = [url for url in asked if not url.startswith((ours, "data:"))]
    check(asked and not strange, f"{len(asked)} files were read and nothing else {strange or ''}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("report", type=pathlib.Path)
    parser.add_argument("runs", type=pathlib.Path)
    parser.add_argument("--shots", type=pathlib.Path)
    args = parser.parse_args()
    if args.shots:
        args.shots.mkdir(parents=True, exist_ok=True)
    browser = Browser()
    try:
        look(browser, args.report, args.runs, args.shots)
    finally:
        browser.close()
    if failures:
        sys.exit(f"{len(failures)} checks failed")


main()
