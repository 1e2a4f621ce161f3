"""Style sheet and script of the pages, as Python, because Flower packs no such files into an app."""

from ..results.report.style import STYLE

STYLES = f"""{STYLE}
main {{ max-width: 90rem; padding-top: 1.5rem; }}
.choices {{ display: flex; flex-wrap: wrap; gap: .6rem 1rem; align-items: end; margin: 1rem 0; }}
.choices label {{ display: grid; gap: .15rem; font-size: .8125rem; color: var(--quiet); }}
.choices .tick {{ display: flex; align-items: center; padding-bottom: .4rem; }} .wide {{ flex: 1 1 20rem; }}
input, select, button, textarea {{ font: inherit; color: var(--ink); background: var(--card);
  border: 1px solid var(--quiet); border-radius: .3rem; padding: .3rem .5rem; max-width: 100%; }}
:focus-visible {{ outline: 3px solid var(--accent); outline-offset: 1px; }}
th button, .star {{ border: 0; background: none; padding: 0; color: inherit; cursor: pointer; }}
td, th {{ padding-right: 1rem; }}
tbody th {{ color: inherit; font-size: inherit; border-bottom-color: var(--rule); vertical-align: top; }}
table:has(td.number) td:first-child {{ min-width: 0; }}
.swatch {{ display: inline-block; width: .8rem; height: .8rem; border-radius: .2rem; }}
figure {{ margin: 1rem 0 2rem; }} figure p {{ display: flex; gap: .5rem; align-items: center; }}
#status {{ position: sticky; bottom: 0; padding: .3rem 0; background: var(--paper); color: var(--quiet); }}
#status.gone {{ color: var(--warning); }} textarea {{ width: 44rem; }}
"""

SCRIPT = """"use strict";
const EVERY = 2000;  // milliseconds between two looks at the folders
const form = document.forms[0], said = document.getElementById("status");
const dark = matchMedia("(prefers-color-scheme: dark)"), known = new WeakMap();
let again = false, busy = false;
function say(text, kind = "") { said.textContent = text; said.className = kind; }
const asked = () => `${new URLSearchParams([...new FormData(form)].filter(([, value]) => value !== ""))}`;
async function get(element, path) {
  const query = asked(), last = known.get(element) ?? {}, headers = {"X-Shape": last.shape ?? ""};
  const address = `${path}?${query}${dark.matches ? "&dark=on" : ""}`;
  if (last.address === address) headers["If-None-Match"] = last.tag;
  const answer = await fetch(address, {headers, cache: "no-store"});
  if (answer.status === 304) return null;
  if (!answer.ok) throw new Error(await answer.text());
  const body = await (path.endsWith(".json") ? answer.json() : answer.text());
  if (asked() !== query) { again = true; return null; }
  known.set(element, {...last, address, tag: answer.headers.get("ETag")});
  return body;
}
async function part(element) {
  const html = await get(element, element.dataset.part);
  if (html === null) return;
  const key = element.contains(document.activeElement) && document.activeElement.dataset.key;
  element.innerHTML = html;
  if (key) element.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus();
}
async function picture(element) {
  const found = await get(element, element.dataset.picture);
  if (found === null) return;
  const state = known.get(element), place = element.querySelector("div");
  element.querySelector("figcaption").textContent = found.caption;
  if (found.item) {
    if (state.view) Bokeh.documents.splice(Bokeh.documents.indexOf(state.view.model.document), 1);
    state.view?.remove();
    place.replaceChildren();
    state.view = [...(await Bokeh.embed.embed_item(found.item, place))][0];
    state.shape = found.shape;
  } else for (const [name, data] of Object.entries(found.data))
    state.view.model.document.get_model_by_name(name).data = data;
}
async function look() {
  again = busy;
  if (busy) return;
  busy = true;
  try {
    do {
      again = false;
      const all = (name, load) => [...document.querySelectorAll(`[data-${name}]`)].map(load);
      await Promise.all([...all("picture", picture), ...all("part", part)]);
    } while (again);
    say("Follows the folder.");
  } catch (error) { say(error instanceof TypeError ? `No answer: ${error.message}` : error.message, "gone"); }
  busy = false;
}
function changed() { history.replaceState(null, "", `?${asked()}`); look(); }
async function note(run, what) {
  const answer = await fetch("note", {method: "POST", body: JSON.stringify({run, ...what})});
  if (answer.ok) look(); else say(await answer.text(), "gone");
}
function save(element, kind) {
  const layer = known.get(element).view.export(kind), link = document.createElement("a");
  link.download = element.dataset.picture.replace("json", kind);
  link.href = kind === "png" ? layer.canvas.toDataURL()
    : URL.createObjectURL(new Blob([layer.ctx.get_serialized_svg(true)], {type: "image/svg+xml"}));
  link.click();
}
document.addEventListener("click", ({target}) => {
  const {sort, star, save: kind, note: run, csv} = target.dataset, field = form.elements.sort;
  if (sort) { field.value = field.value === sort ? `${sort}:down` : sort; changed(); }
  if (star) note(star, {starred: target.getAttribute("aria-pressed") !== "true"});
  if (kind) save(target.closest("figure"), kind);
  if (run) note(run, {note: document.getElementById("note").value});
  if (csv) target.href = `${csv}?${asked()}`;
});
form.addEventListener("change", changed);
form.addEventListener("submit", event => {
  if (event.submitter?.formAction === form.action) { event.preventDefault(); changed(); }
});
dark.addEventListener("change", look);
look();
setInterval(() => { if (!document.hidden) look(); }, EVERY);
"""
