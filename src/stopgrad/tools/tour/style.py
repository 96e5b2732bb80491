"""The style sheet of the page."""

from __future__ import annotations

CSS = """
:root { color-scheme: light dark; --paper: #fdfdfb; --ink: #1c2126; --faint: #8a9097; --muted: #5c636a;
  --line: #dfe1e0; --band: #f4f5f3; --accent: #0a6aa1;
  --forward: #dcebf7; --forward-line: #3a7fb5; --gradient: #fde8cf; --gradient-line: #d07a12; --stop: #c8102e;
  --hidden: #ececec; --parameter: #d8f0de;
  --parameter-line: #2a8f4f; --good: #1c7c3c; --bad: #c8102e; --code: #f5f5f2; }
@media (prefers-color-scheme: dark) { :root { --paper: #15181b; --ink: #e4e6e8; --faint: #868d94;
  --muted: #a3aab1; --line: #33383d; --band: #1b1f23; --accent: #6bb8e8;
  --forward: #17354b; --forward-line: #5aa5da; --gradient: #4a310f; --gradient-line: #f0a03c; --stop: #e5384f;
  --hidden: #2a2d30; --parameter: #143a22;
  --parameter-line: #52b877; --good: #62c983; --bad: #ff6b7d; --code: #1e2226; } }
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body {
  margin: 0; background: var(--paper); color: var(--ink);
  font: 16px/1.55 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
header, main, footer { max-width: 66rem; margin: 0 auto; padding: 0 1.25rem; }
header { padding-top: 2.5rem; }
h1 { font-size: 2rem; line-height: 1.15; margin: 0 0 .75rem; letter-spacing: -.01em; }
h2 { font-size: 1.5rem; margin: 0 0 .75rem; line-height: 1.2; }
h3 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
p, .equation { max-width: 46rem; }
section { border-top: 1px solid var(--line); margin-top: 2.5rem; padding-top: 2rem; }
.summary { font-size: 1.1rem; }
a { color: var(--accent); }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; }
pre {
  overflow-x: auto; margin: .75rem 0; padding: .85rem 1rem; background: var(--code); border-radius: 6px;
  line-height: 1.45; }
pre, code {
  font-family: ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; font-size: .85rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; }
th, td {
  padding: .35rem .9rem .35rem 0; text-align: left; vertical-align: top; border-bottom: 1px solid var(--line);
  font-weight: normal; }
thead th { color: var(--muted); vertical-align: bottom; line-height: 1.3; }
tbody th { font-weight: 600; }
.checks tbody th { font-weight: normal; }
.number { font-variant-numeric: tabular-nums; white-space: nowrap; }
.overview td:nth-child(2) { min-width: 16rem; }
.passed td:first-child { color: var(--good); }
.failed td:first-child, .failed .number { color: var(--bad); font-weight: 700; }
.hidden:is(span) { position: absolute; clip-path: inset(50%); width: 1px; height: 1px; overflow: hidden; }
.pictures { display: flex; flex-wrap: wrap; gap: 1rem 2rem; margin-top: 1.5rem; }
figure { margin: 0; }
.picture { flex: 1 1 20rem; max-width: 31rem; min-width: 0; }
.picture.wide { flex-basis: 100%; max-width: 100%; }
.picture svg { width: 100%; height: auto; display: block; }
.picture.wide svg { max-width: 54rem; min-width: 34rem; }
figcaption { font-size: .88rem; color: var(--muted); max-width: 46rem; margin-top: .25rem; }
details { margin: .5rem 0; }
summary { cursor: pointer; color: var(--accent); }
.listing td { padding-right: 1.25rem; white-space: nowrap; }
.listing .stop code { color: var(--stop); font-weight: 700; }
.listing .hidden code, .listing .input code { color: var(--muted); }
svg.graph {
  display: block; max-width: none;
  font: 11px ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
.graph .op text { text-anchor: middle; fill: var(--ink); }
.graph .head { fill: var(--muted); font-size: 12px; }
.graph .band { fill: var(--band); }
.graph rect { stroke-width: 1.2; }
.graph .forward rect { fill: var(--forward); stroke: var(--forward-line); }
.graph .gradient rect { fill: var(--gradient); stroke: var(--gradient-line); }
.graph .gradient.result rect { stroke-width: 2.6; }
.graph .parameter rect { fill: var(--parameter); stroke: var(--parameter-line); }
.graph .input rect { fill: var(--paper); stroke: var(--faint); }
.graph .gate rect { fill: var(--paper); stroke: var(--stop); }
.graph .stop rect { fill: var(--stop); stroke: var(--stop); stroke-width: 5; }
.graph .stop text { fill: #fff; font-weight: 700; }
.graph .hidden rect { fill: var(--hidden); stroke: var(--faint); stroke-dasharray: 3 2; }
.graph .edge { fill: none; stroke: var(--forward-line); stroke-width: 1.2; opacity: .75; }
.graph .edge.gradient { stroke: var(--gradient-line); opacity: .9; }
.graph .edge.use { stroke: var(--faint); opacity: .28; }
.graph .edge.hidden { stroke: var(--faint); stroke-dasharray: 3 2; }
.key.stop {
  background: var(--stop); color: #fff; padding: .05rem .4rem; border-radius: 2px; font-size: .85rem;
  font-weight: 700; }
footer { padding: 2rem 1.25rem 3rem; color: var(--muted); font-size: .85rem; }
"""
