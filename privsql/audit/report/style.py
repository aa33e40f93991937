"""The style of the page: light, dark, print and phone."""

from __future__ import annotations

LIGHT = """
--back: #ffffff; --card: #f6f7f9; --ink: #1b1f24; --soft: #57606a; --rule: #d5dae0;
--green: #1a7f37; --amber: #9a6700; --red: #b3261e;
--c0: #0072b2; --c1: #d55e00; --c2: #009e73; --c3: #b0568b; --c4: #b07800; --c5: #3a8fc4;
"""

DARK = """
--back: #14171b; --card: #1e2329; --ink: #e8eaed; --soft: #a8b0b9; --rule: #3a424b;
--green: #57c26f; --amber: #e0b13c; --red: #ff8a80;
--c0: #58a9e0; --c1: #ff9a4d; --c2: #3ecf9e; --c3: #e593c3; --c4: #f0c04a; --c5: #8fd0f5;
"""

LINES = "\n".join(
    f".line.c{i} {{ stroke: var(--c{i}) }} .swatch.c{i} {{ background: var(--c{i}) }}"
    for i in range(6)
)

STYLE = f"""
:root {{ {LIGHT} color-scheme: light dark }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}
* {{ box-sizing: border-box }}
body {{ font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--back);
  margin: 0 auto; max-width: 62em; padding: 1.2em 1em 3em; overflow-wrap: anywhere }}
h1 {{ font-size: 1.3em; margin: 0 }} h2 {{ font-size: 1.25em; margin: 2em 0 .6em }}
h3 {{ font-size: 1.05em; margin: 1.6em 0 .5em }}
header p, .promise, figcaption, .advice {{ color: var(--soft) }}
header p {{ margin: .2em 0 1.2em }} .promise {{ font-size: .9em }}
.front h2 {{ font-size: 1.05em; margin: 1.4em 0 .4em }}
.question {{ margin: 0; color: var(--soft) }}
.answer {{ font-size: 1.55em; line-height: 1.3; font-weight: 650; margin: .1em 0 .8em }}
.lights {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(17em, 100%), 1fr));
  gap: .8em; list-style: none; margin: 0; padding: 0 }}
.light {{ background: var(--card); border-top: 5px solid var(--shade); border-radius: 6px;
  padding: .8em 1em }}
.light h3 {{ display: flex; align-items: center; gap: .5em; margin: 0 0 .4em; font-size: 1em }}
.light p {{ margin: 0; font-size: .95em }}
.dot {{ flex: none; width: .9em; height: .9em; border-radius: 50%; background: var(--shade) }}
.word {{ margin-left: auto; color: var(--shade); font-size: .85em; white-space: nowrap }}
.green {{ --shade: var(--green) }} .amber {{ --shade: var(--amber) }}
.red {{ --shade: var(--red) }}
.figures {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(20em, 100%), 1fr));
  gap: 1.2em 2em; align-items: start }}
figure {{ margin: 0; max-width: 30em; break-inside: avoid }}
figcaption {{ font-size: .9em; margin-bottom: .5em }}
svg {{ display: block; width: 100%; height: auto; font: 12px system-ui, sans-serif }}
.ink {{ fill: var(--ink) }} .end {{ text-anchor: end }} .middle {{ text-anchor: middle }}
.grid {{ stroke: var(--rule); fill: none }} .axis {{ stroke: var(--soft); fill: none }}
.line {{ fill: none; stroke-width: 2 }}
{LINES}
.bar {{ fill: var(--c0) }} .hollow {{ fill: none; stroke: var(--c0); stroke-dasharray: 3 2 }}
.key {{ list-style: none; display: flex; flex-wrap: wrap; gap: .1em 1em; margin: 0 0 .3em;
  padding: 0; font-size: .85em }}
.swatch {{ display: inline-block; width: 1.2em; height: .25em; margin-right: .4em;
  vertical-align: middle }}
.wide {{ overflow-x: auto; max-width: 100% }}
table {{ border-collapse: collapse; margin: .6em 0; font-size: .9em; overflow-wrap: normal }}
td, th {{ border-bottom: 1px solid var(--rule); padding: .3em .7em .3em 0; text-align: right;
  vertical-align: top; white-space: nowrap }}
td:first-child, th:first-child {{ text-align: left; white-space: normal; min-width: 6em }}
th {{ font-weight: 600 }}
.finding {{ border-top: 1px solid var(--rule); padding: .4em 0; font-size: .92em }}
.finding p {{ margin: .1em 0 }}
.verdict {{ display: inline-block; min-width: 3.9em; font-weight: 600; color: var(--soft) }}
.verdict.holds, .verdict.useful {{ color: var(--green) }}
.verdict.fails, .verdict.void {{ color: var(--red) }} .verdict.open {{ color: var(--amber) }}
@media (max-width: 34em) {{
  body {{ padding: .8em .8em 2em }} .answer {{ font-size: 1.3em }}
  thead {{ display: none }} table, tbody, tr {{ display: block; width: 100% }}
  td, td:first-child {{ display: flex; justify-content: space-between; gap: 1em; min-width: 0;
    border: 0; padding: .1em 0; text-align: right; white-space: normal }}
  td::before {{ content: attr(data-name); color: var(--soft); text-align: left }}
  td:first-child {{ font-weight: 600 }}
  tr {{ border-bottom: 1px solid var(--rule); padding: .4em 0 }}
}}
@media print {{
  :root {{ {LIGHT} color-scheme: light }}
  body {{ font-size: 10.5pt; max-width: none; padding: 0 }}
  .light {{ border: 1px solid var(--rule); border-top: 5px solid var(--shade); background: none }}
  .light, .dot, .bar, .swatch {{ print-color-adjust: exact; -webkit-print-color-adjust: exact }}
  .wide {{ overflow: visible }} section + section {{ break-before: page }}
  h2, h3 {{ break-after: avoid }} .finding, .light, tr {{ break-inside: avoid }}
  .lights {{ grid-template-columns: repeat(3, 1fr) }} .figures {{ grid-template-columns: 1fr 1fr }}
  .appendix td, .appendix th {{ white-space: normal; font-size: 8.5pt }}
}}
"""
