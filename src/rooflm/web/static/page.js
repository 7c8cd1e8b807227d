// The page: fields ask, sliders read what was worked out, pictures are drawn. Everything that is said comes from the server.
const form = document.getElementById("form"), answer = document.getElementById("answer");
const figures = document.getElementById("figures"), rest = document.getElementById("rest"), tab = document.body.dataset.tab;
const fields = () => [...form.elements].filter((e) => e.name);

/** What is asked, as the address has it: only what is not as at first. leave: a field to leave out. */
function query(leave) {
  const found = new URLSearchParams();
  for (const e of fields()) {
    const text = e.dataset.token && e.value === e.dataset.shown ? e.dataset.token : e.value.trim();
    if (text !== (e.dataset.usual ?? "") && e.name !== leave) found.set(e.name, text);
  }
  return found.toString();
}

const address = (q, path = `/${tab}`) => path + (q ? `?${q}` : "");

/** Fields show what is wrong with them. */
function mark(errors) {
  for (const e of fields()) {
    const place = document.getElementById(`e-${e.name}`);
    if (!place) continue;
    place.textContent = errors[e.name] ?? "";
    if (errors[e.name]) e.setAttribute("aria-invalid", "true"); else e.removeAttribute("aria-invalid");
  }
}

/** The answer in its place, and what is folded below it; what was unfolded stays so. */
function put(html, below = "") {
  const open = [...rest.querySelectorAll("details[open] > summary")].map((s) => s.textContent);
  answer.innerHTML = html;
  rest.innerHTML = below;
  for (const s of rest.querySelectorAll("details > summary")) s.parentElement.open = open.includes(s.textContent);
}

const work = document.getElementById("work");
/** What a reply says last; the lines before say how much is done. */
async function last(reply) {
  const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader(), begun = performance.now();
  for (let text = ""; ;) {
    const { done, value } = await reader.read();
    if (done) return JSON.parse(text);
    const lines = (text + value).split("\n");
    text = lines.pop();
    if (lines.length) progress(JSON.parse(lines.at(-1)), performance.now() - begun);
  }
}

function progress({ done, total }, ms) {
  const bar = work.querySelector("progress"), of = total ? ` of ${total.toLocaleString("en")}` : "";
  document.getElementById("done").textContent = `${Math.round(ms / 1000)} s${done ? `, ${done.toLocaleString("en")}${of} done` : ""}`;
  if (total && done) Object.assign(bar, { max: total, value: done }); else bar.removeAttribute("value");
}

let asking = null, here = location.pathname + location.search;
/** Ask for the answer to what the fields hold. */
async function ask(push = true) {
  asking?.abort();
  const own = (asking = new AbortController()), q = query();
  document.body.dataset.state = "asking";
  progress({}, 0);
  const slow = setTimeout(() => { answer.setAttribute("aria-busy", "true"); work.hidden = false; }, 200);
  try {
    const reply = await fetch(address(q, `/${tab}/answer`), { signal: own.signal });
    if (!reply.ok) throw new Error(await reply.text());
    const told = await last(reply);
    if (told.refused) throw new Error(told.refused);
    put(told.html, told.rest);
    mark(told.errors);
    figures.innerHTML = told.pictures;
    history[push && location.search.slice(1) !== q ? "pushState" : "replaceState"](null, "", address(q));
    here = location.pathname + location.search;
    const about = `${form.elements.model.value} on ${form.elements.gpu.value}`;
    document.title = `${document.querySelector("nav [aria-current]").textContent} ${about} · rooflm`;
    form.querySelector(".asked > summary").textContent = `${about}: change`;
    for (const a of document.querySelectorAll("nav a")) a.href = address(q, `/${a.dataset.tab}`);
    await draw(told.figures);
  } catch (error) {
    const stopped = own.signal.reason === "stop";
    if (stopped) figures.innerHTML = "";
    if (stopped) put(`<div class="verdict"><p class="lead">Stopped.</p><p><a href="${address(q)}">Ask again</a>, or change what is asked.</p></div>`);
    else if (!own.signal.aborted) put(`<div class="verdict bad"><p class="lead">No answer came.</p><p>${error.message.replace(/[<&]/g, "")}</p></div>`);
  } finally {
    clearTimeout(slow);
    if (asking === own) {
      answer.removeAttribute("aria-busy");
      if (work.contains(document.activeElement)) answer.focus();
      work.hidden = true;
      document.body.dataset.state = "shown";
      asking = null;
    }
  }
}

// Pictures

let vega = null;
const library = () => (vega ??= new Promise((done, failed) => {
  const script = Object.assign(document.createElement("script"), { src: "/vega.js", onload: done, onerror: failed, type: "module" });
  document.head.append(script);
}));

const pen = document.createElement("canvas").getContext("2d");
/** What is written in cells of so many pixels: all of it, the values alone, or nothing. */
function written(values, step) {
  pen.font = "10.5px sans-serif";
  const fits = (of) => of.every((v) => pen.measureText(v.text ?? "").width <= step - 2);
  return fits(values) ? "true" : fits(values.filter((v) => v.value !== null)) ? "datum.value !== null" : "false";
}

/** A specification by so many pixels narrower (or wider), its panels in so many columns. */
function resized(spec, less, columns, stretch = 1) {
  const s = structuredClone(spec), by = less / columns;
  if (s.concat) s.columns = columns;
  for (const p of s.concat ?? [s.spec ?? s]) {
    if (typeof p.width === "number") p.width = Math.max(140, Math.min(p.width - by, 900));
    else if (p.width?.step) {
      p.width.step = Math.max(6, Math.min(p.width.step * stretch, 72));
      const filter = written(p.data?.values ?? [], p.width.step);
      for (const l of p.layer ?? []) if (l.mark.type === "text") l.transform = [{ filter }];
    }
  }
  return s;
}

/** Hide labels beside points that touch another or leave the picture. */
function uncovered(svg) {
  const edge = svg.getBoundingClientRect(), kept = [];
  for (const tick of svg.querySelectorAll(".role-axis-label text")) kept.push(tick.getBoundingClientRect());
  for (const label of svg.querySelectorAll(".mark-text.role-mark text")) {
    const b = label.getBoundingClientRect();
    const meets = (o) => b.left < o.right && b.right > o.left && b.top < o.bottom && b.bottom > o.top;
    if (b.left < edge.left || b.right > edge.right || kept.some(meets)) label.remove();
    else kept.push(b);
  }
}

/** Draw a specification as wide as its place: drawn once as it is, then by what it was too wide or has to spare. */
async function drawn(place, spec) {
  const wide = place.clientWidth, small = wide < 600, options = { actions: false, renderer: "svg", tooltip: { theme: "light" } };
  const columns = spec.concat ? Math.max(1, Math.min(spec.columns ?? spec.concat.length, Math.floor(wide / 330))) : 1;
  let s = resized(spec, 0, columns);
  if (small) s.config = { ...s.config, padding: 2, axisY: { ...s.config?.axisY, labelLimit: 0.4 * wide }, legend: { ...s.config?.legend, orient: "bottom", columns: 1, offset: 6 } };
  for (let tries = 0; tries < 2; tries++) {
    const { view } = await window.vegaEmbed(place, s, options);
    const svg = place.querySelector("svg"), less = Number(svg.getAttribute("width")) - wide;
    svg.setAttribute("aria-hidden", "true");
    for (const [k, v] of Object.entries({ role: "img", "aria-label": place.dataset.label })) place.setAttribute(k, v);
    place.removeAttribute("aria-roledescription");
    if (tries || (less <= 0 && less > -40)) return uncovered(svg);
    const frame = spec.concat ? 140 : wide + less - view.width(); // axes and legend, which keep their size
    view.finalize();
    s = resized(s, less + 4, columns, (wide - frame - 4) / Math.max(wide + less - frame, 1));
  }
}

let specs = [];
/** Draw the pictures into their places. */
async function draw(given) {
  specs = given;
  if (!given.length) return;
  await library();
  const places = [...figures.querySelectorAll(".plot")];
  for (const [i, place] of places.entries()) {
    if (specs !== given || !given[i]) return;
    await drawn(place, given[i]);
  }
}

let pending = 0, wide = innerWidth;
addEventListener("resize", () => {
  clearTimeout(pending);
  pending = setTimeout(async () => {
    if (innerWidth !== wide) await draw(specs);
    wide = innerWidth;
    if (!asking) document.body.dataset.state = "shown";
  }, 150);
});

// Sliders: the answers at all stops are fetched when a hand or the focus comes near, and dragging only reads them.

const sliders = [...document.querySelectorAll("input[type=range]")];
const stops = (s) => s.dataset.stops.split(",");
const frames = new Map();

function fetched(s) {
  const q = query(s.dataset.key), key = `${s.dataset.key}?${q}`;
  if (!frames.has(key)) {
    if (frames.size > 40) frames.delete(frames.keys().next().value);
    frames.set(key, fetch(address(q, `/${tab}/frames/${s.dataset.key}`)).then((r) => r.json())
      .then((list) => { const found = new Map(list.map((f) => [f.value, f])); frames.set(key, found); return found; })
      .catch(() => { frames.delete(key); return new Map(); }));
  }
  return frames.get(key);
}

function place(s) {
  const field = form.elements[s.dataset.key], value = Number(field?.value), list = stops(s).map(Number);
  const near = list.reduce((best, v, i) => (Math.abs(Math.log(v / value)) < Math.abs(Math.log(list[best] / value)) ? i : best), 0);
  s.value = Number.isFinite(value) && value > 0 ? near : 0;
  said(s, field?.value || field?.placeholder || "not set");
}

function said(s, text) {
  document.getElementById(`o-${s.dataset.key}`).value = text;
  s.setAttribute("aria-valuetext", text);
}

function read(s, found, text) {
  const frame = found.get(text);
  if (!frame || form.elements[s.dataset.key].value !== text) return;
  answer.innerHTML = frame.html;
  mark(frame.errors);
}

for (const s of sliders) {
  place(s);
  for (const near of ["pointerenter", "pointerdown", "focus"]) s.addEventListener(near, () => fetched(s));
  s.addEventListener("input", () => {
    const text = stops(s)[s.value], found = fetched(s);
    form.elements[s.dataset.key].value = text;
    said(s, text);
    if (found instanceof Map) read(s, found, text); else found.then((f) => read(s, f, text));
  });
  s.addEventListener("change", () => ask());
}

if (innerWidth <= 760 && !form.querySelector("[aria-invalid]")) form.querySelector(".asked").open = false;

// Fields, links, files, theme

form.addEventListener("change", (event) => {
  if (event.target.type === "file") return;
  sliders.forEach(place);
  ask();
});
form.addEventListener("focusin", ({ target }) => { if (target.list) target.select(); });
form.addEventListener("submit", (event) => { event.preventDefault(); ask(); });
document.getElementById("stop").addEventListener("click", () => asking?.abort("stop"));
addEventListener("popstate", () => { if (location.pathname + location.search !== here) location.reload(); });

document.addEventListener("click", async (event) => {
  const button = event.target.closest("[data-copy],[data-link]");
  if (!button) return;
  const text = button.dataset.link === undefined ? button.parentElement.querySelector("code").textContent : location.href;
  const before = button.textContent;
  try { await navigator.clipboard.writeText(text); button.textContent = "Copied"; } catch { button.textContent = "Select and copy"; }
  setTimeout(() => { button.textContent = before; }, 1500);
});

/** A dropped file becomes the model. */
async function dropped(file) {
  if (!file) return;
  const most = /\.gguf$/i.test(file.name) ? 48 << 20 : 4 << 20, model = form.elements.model;
  const reply = await fetch(`/drop?name=${encodeURIComponent(file.name)}`, { method: "POST", body: file.slice(0, most) });
  const told = await reply.json();
  if (told.error) { mark({ model: told.error }); model.focus(); return; }
  model.dataset.token = told.model;
  model.dataset.shown = model.value = told.model.split("~")[1];
  ask();
}
document.getElementById("file")?.addEventListener("change", (event) => dropped(event.target.files[0]));
addEventListener("dragover", (event) => { event.preventDefault(); document.body.classList.add("dropping"); });
addEventListener("dragleave", (event) => { if (!event.relatedTarget) document.body.classList.remove("dropping"); });
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  dropped(event.dataTransfer.files[0]);
});

const theme = document.getElementById("theme"), kinds = ["auto", "light", "dark"];
const named = () => { theme.textContent = { auto: "Theme: auto", light: "Theme: light", dark: "Theme: dark" }[document.documentElement.dataset.theme] ?? "Theme: auto"; };
theme.addEventListener("click", () => {
  const root = document.documentElement;
  root.dataset.theme = kinds[(kinds.indexOf(root.dataset.theme) + 1) % kinds.length];
  localStorage.setItem("theme", root.dataset.theme);
  named();
});
named();
if ("later" in document.body.dataset) ask(false);
else draw(JSON.parse(document.getElementById("first").textContent)).then(() => { document.body.dataset.state = "shown"; });
