"""The style sheet of the pages, as Python, because Flower packs no CSS files into an app."""

STYLE = """\
:root {
  color-scheme: light dark;
  --paper: #ffffff;
  --card: #f6f7f9;
  --ink: #1d2129;
  --quiet: #5a6372;
  --rule: #e1e4e9;
  --accent: #0b62a4;
  --best: #e3f1e6;
  --warning: #b3261e;
  --warned: #fdecea;
}
@media (prefers-color-scheme: dark) {
  :root {
    --paper: #14171c;
    --card: #1c2027;
    --ink: #e4e7ec;
    --quiet: #9aa4b2;
    --rule: #2f353f;
    --accent: #6db6f2;
    --best: #1f3a2a;
    --warning: #ff8a80;
    --warned: #331b1b;
  }
}
* { box-sizing: border-box; }
body {
  margin: 0;
  background: var(--paper);
  color: var(--ink);
  font: 16px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Liberation Sans", sans-serif;
}
main { max-width: 88rem; margin: 0 auto; padding: 2.5rem 1.25rem 4rem; }
h1 { margin: 0 0 .5rem; font-size: 1.6rem; font-weight: 650; line-height: 1.25; overflow-wrap: anywhere; }
h2 { margin: 2.75rem 0 .9rem; font-size: 1.1rem; font-weight: 650; }
p, li { max-width: 44rem; text-wrap: pretty; overflow-wrap: anywhere; }
p { margin: .5rem 0; }
a { color: var(--accent); text-underline-offset: .15em; }
.note { color: var(--quiet); font-size: .875rem; }
.facts {
  display: grid;
  grid-template-columns: repeat(auto-fill, minmax(9.5rem, 1fr));
  gap: 1rem 1.5rem;
  margin: 1.5rem 0 0;
}
dl.facts > div { display: flex; flex-direction: column-reverse; justify-content: flex-end; }
dt { color: var(--quiet); font-size: .8125rem; }
dd { margin: 0; font-size: 1.25rem; line-height: 1.3; font-variant-numeric: tabular-nums; }
.scroll { overflow-x: auto; }
.warning { margin-top: 2rem; padding: .25rem 1.25rem 1.25rem; background: var(--warned); }
.warning { border-left: .3rem solid var(--warning); }
.warning h2 { margin: .75rem 0 .5rem; color: var(--warning); }
td { overflow-wrap: break-word; max-width: 24rem; }
.sentences td { max-width: none; }
.sentences td:last-child { overflow-wrap: anywhere; }
table:has(td.number) td:first-child { min-width: 8.5rem; }
.best td { background: var(--best); font-weight: 600; }
table { border-collapse: collapse; font-size: .9375rem; font-variant-numeric: tabular-nums; }
th, td { padding: .35rem 1rem .35rem 0; text-align: left; vertical-align: top; }
th:last-child, td:last-child { padding-right: 0; }
th { border-bottom: 1px solid var(--quiet); vertical-align: bottom; }
th { color: var(--quiet); font-size: .8125rem; font-weight: 500; }
td { border-bottom: 1px solid var(--rule); }
.number { text-align: right; }
td.number { white-space: nowrap; }
.coloured td { padding: .6rem 1.1rem; border: 2px solid var(--paper); }
.coloured td { text-align: center; white-space: nowrap; }
.scale { display: flex; align-items: center; gap: .6rem; margin-top: .75rem; }
.scale { font-size: .8125rem; color: var(--quiet); }
.scale i { width: 12rem; height: .7rem; border-radius: .2rem; }
.scale i, .coloured td { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.coloured th { padding: .35rem 1.1rem; border: 0; text-align: center; }
.coloured tbody th { padding-left: 0; text-align: left; vertical-align: middle; }
.figures {
  margin-top: 1.75rem;
  display: grid;
  grid-template-columns: repeat(auto-fill, minmax(min(23rem, 100%), 1fr));
  gap: 1.75rem 2rem;
  align-items: start;
}
.figures.wide { grid-template-columns: 1fr; }
figure { margin: 0; min-width: 0; }
.wide figure { max-width: 48rem; }
figcaption { margin-bottom: .35rem; font-size: .9375rem; font-weight: 600; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: currentColor; font-family: inherit !important; }
svg image { image-rendering: pixelated; }
pre {
  margin: .5rem 0;
  padding: .9rem 1rem;
  overflow-x: auto;
  background: var(--card);
  border-radius: .4rem;
  font: .8125rem/1.5 ui-monospace, SFMono-Regular, Menlo, Consolas, "Liberation Mono", monospace;
  white-space: pre-wrap;
  overflow-wrap: anywhere;
}
pre > span { white-space: nowrap; }
details { margin: .9rem 0; }
summary { color: var(--accent); cursor: pointer; font-size: .9375rem; }
details[open] summary { margin-bottom: .5rem; }
@media (max-width: 40rem) {
  th, td { padding-right: .75rem; }
  table.folds thead { display: none; }
  .folds, .folds tbody, .folds tr, .folds td { display: block; }
  .folds tr { padding: .5rem 0; border-bottom: 1px solid var(--rule); }
  .folds td { display: flex; gap: .4rem; justify-content: flex-end; padding: .1rem .3rem; border: 0; }
  .folds td:first-child { justify-content: flex-start; font-weight: 600; }
  .folds td:not(:first-child)::before {
    content: attr(data-column);
    margin-right: auto;
    color: var(--quiet);
    text-align: left;
    white-space: normal;
  }
  .folds td:empty { display: none; }
}
@page { margin: 16mm; }
@media print {
  :root {
    --paper: #ffffff;
    --card: #f6f7f9;
    --ink: #000000;
    --quiet: #444444;
    --rule: #cccccc;
    --accent: #000000;
    --best: #eeeeee;
    --warning: #000000;
    --warned: #ffffff;
    color-scheme: light;
  }
  body { font-size: 10.5pt; }
  main { max-width: none; padding: 0; }
  h2 { margin-top: 1.5rem; break-after: avoid; }
  figure, tr, .facts > div { break-inside: avoid; }
  .figures { grid-template-columns: 1fr 1fr; gap: 1rem; }
  .scroll { overflow: visible; }
  details:not([open]) { display: none; }
  pre > span { white-space: normal; }
}
"""
