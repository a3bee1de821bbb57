"""Takes the screenshots of docs/page.md: `python docs/screenshots.py [--seconds 230] [--to FOLDER] [--site site]`.

Starts `python -m examples.shop`, waits until tastes have changed, and looks at the page with Chromium: light, dark,
narrow, and the latest impressions. With `--site`, the folder that `make docs` has built, it looks at that
instead. Needs Chromium and playwright (extra `dev`).
"""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from argparse import ArgumentParser
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from playwright.sync_api import sync_playwright

FIGURES = Path(__file__).with_name("figures")
FLAGS = ["--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-sync"]


def demo() -> tuple[subprocess.Popen[str], str]:
    """A running demo and its address."""
    command = [sys.executable, "-m", "examples.shop", "--no-browser", "--port", "0"]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    for line in process.stderr:
        if found := re.search(r"http://[\w.:]+", line):
            return process, found[0]
    raise SystemExit("the demo did not start")


def shoot(browser: Any, url: str, to: Path, name: str, width: int, height: int, **options: Any) -> None:
    """One picture of the top of the page, or of a part of it."""
    part = options.pop("part", None)
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    page = context.new_page()
    page.goto(f"{url}/#/hybrid")
    page.locator("li.shown").first.wait_for()
    page.locator(".versions").wait_for()
    page.wait_for_timeout(1500)
    path = to / f"page-{name}.png"
    if part:
        page.get_by_role("region", name=part).screenshot(path=path)
    else:
        page.screenshot(path=path)
    context.close()
    shrink(path)


def shoot_site(browser: Any, folder: Path, to: Path) -> None:
    """The first page of the documentation: light, dark, narrow."""
    handler = partial(SimpleHTTPRequestHandler, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name, width, height, options in (
        ("light", 1280, 900, {}),
        ("dark", 1280, 900, {"color_scheme": "dark"}),
        ("narrow", 390, 844, {"device_scale_factor": 1.5}),
    ):
        context = browser.new_context(viewport={"width": width, "height": height}, **options)
        page = context.new_page()
        page.goto(f"http://127.0.0.1:{server.server_port}/index.html")
        page.wait_for_load_state("networkidle")
        page.screenshot(path=to / f"site-{name}.png")
        context.close()
        shrink(to / f"site-{name}.png")
    server.shutdown()


def shrink(path: Path) -> None:
    """Few colors are enough for a page, and a quarter of the bytes."""
    from PIL import Image

    with Image.open(path) as picture:
        picture.convert("RGB").quantize(256, dither=Image.Dither.NONE).save(path, optimize=True)


def main() -> None:
    """Parse, wait, shoot."""
    parser = ArgumentParser("python docs/screenshots.py", description=__doc__)
    parser.add_argument("--seconds", type=float, default=230.0, help="of demo before the pictures are taken")
    parser.add_argument("--to", type=Path, default=FIGURES)
    parser.add_argument("--site", type=Path, help="what `make docs` has built, in the place of the demo")
    options = parser.parse_args()
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    if chromium is None:
        raise SystemExit("no Chromium on this machine: apt-get install chromium")
    if options.site is not None:
        with sync_playwright() as engine:
            browser = engine.chromium.launch(executable_path=chromium, args=FLAGS)
            shoot_site(browser, options.site, options.to)
            browser.close()
        return
    process, url = demo()
    try:
        time.sleep(options.seconds)
        with sync_playwright() as engine:
            browser = engine.chromium.launch(executable_path=chromium, args=FLAGS)
            shoot(browser, url, options.to, "light", 1360, 1130)
            shoot(browser, url, options.to, "dark", 1360, 1130, color_scheme="dark")
            shoot(browser, url, options.to, "narrow", 390, 844, device_scale_factor=1.5)
            shoot(browser, url, options.to, "lists", 1100, 900, part="Latest impressions")
            browser.close()
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(30)


if __name__ == "__main__":
    main()
