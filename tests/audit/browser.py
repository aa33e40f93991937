"""A page in a real browser: what is wider than its frame, and which words lie on others.

The page is put into a frame of a given width, since a headless window cannot be as narrow as a
phone, and a script beside it writes what it measured into the document, which is printed.
"""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

BROWSER = shutil.which("chromium") or shutil.which("google-chrome") or shutil.which("chrome")

OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--hide-scrollbars", "--virtual-time-budget=10000"),
)

MEASURE = """
function measured() {
  const frame = document.getElementById('frame'), page = frame.contentDocument;
  const root = page.documentElement, found = {overlap: [], outside: [], onLine: [], wide: []};
  const box = each => each.getBoundingClientRect();
  const meet = (a, b) => Math.min(a.right, b.right) - Math.max(a.left, b.left) > 1
    && Math.min(a.bottom, b.bottom) - Math.max(a.top, b.top) > 2;
  for (const svg of page.querySelectorAll('svg')) {
    const texts = [...svg.querySelectorAll('text')], whole = box(svg);
    texts.forEach((text, i) => {
      const own = box(text);
      if (own.left < whole.left - 1 || own.right > whole.right + 1
          || own.top < whole.top - 1 || own.bottom > whole.bottom + 1)
        found.outside.push(text.textContent);
      for (const other of texts.slice(i + 1))
        if (meet(own, box(other))) found.overlap.push([text.textContent, other.textContent]);
      for (const line of svg.querySelectorAll('polyline')) {
        const all = line.getTotalLength(), matrix = line.getScreenCTM();
        for (let k = 0; k <= 100; k++) {
          const p = line.getPointAtLength(all * k / 100).matrixTransform(matrix);
          if (p.x > own.left + 1 && p.x < own.right - 1
              && p.y > own.top + 2 && p.y < own.bottom - 2)
            { found.onLine.push(text.textContent); break; }
        }
      }
      for (const bar of svg.querySelectorAll('rect'))
        if (meet(own, box(bar))) found.onLine.push(text.textContent);
    });
  }
  for (const each of page.querySelectorAll('body *'))
    if (!each.closest('.wide') && box(each).right > root.clientWidth + 1)
      found.wide.push(each.tagName + ': ' + each.textContent.slice(0, 40));
  found.scroll = root.scrollWidth; found.client = root.clientWidth;
  found.texts = page.querySelectorAll('svg text').length;
  const style = frame.contentWindow.getComputedStyle(page.body);
  found.back = style.backgroundColor; found.ink = style.color;
  const out = document.createElement('script');
  out.type = 'application/json'; out.id = 'measured';
  out.textContent = JSON.stringify(found); document.body.append(out);
}
"""


def measure(page: str, width: int, folder: Path, *, dark: bool) -> dict[str, Any]:
    """What a browser says about a page in a frame of this width."""
    assert BROWSER
    shown = folder / "frame.html"
    shown.write_text(
        f'<!doctype html><meta charset="utf-8"><script>{MEASURE}</script><body>'
        f'<iframe id="frame" width="{width}" height="900" style="border:0"'
        f' onload="measured()" srcdoc="{html.escape(page)}"></iframe>'
    )
    done = subprocess.run(
        [BROWSER, *OPTIONS, f"--user-data-dir={folder / 'profile'}", *["--force-dark-mode"] * dark,
         "--window-size=1400,1000", "--dump-dom", shown.as_uri()],
        capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    told = re.search(r'id="measured">(.*?)</script>', done.stdout, re.S)
    assert told, done.stderr[-2_000:]
    found: dict[str, Any] = json.loads(told.group(1))
    return found
