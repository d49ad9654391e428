
"use strict";
window.addEventListener("error", (e) => document.body.setAttribute("data-error", e.message));
document.addEventListener("securitypolicyviolation", (e) => document.body.setAttribute("data-violation", e.blockedURI));

// Control characters, marks that change the direction of text, and the like become visible.
const escaped = (n) => n <= 0xff ? "\\x" + n.toString(16).padStart(2, "0") : "\\u" + n.toString(16).padStart(4, "0");
const clean = (text) => text.replace(/[\p{C}\p{Zl}\p{Zp}]/gu, (c) => escaped(c.codePointAt(0)));
const data = JSON.parse(document.getElementById("data").textContent, (key, value) => typeof value === "string" ? clean(value) : value);
const byID = (id) => document.getElementById(id);
const canvas = byID("canvas"), svg = canvas.querySelector("svg"), list = byID("list"), details = byID("details");
const find = byID("find"), count = byID("count");
const width = svg.viewBox.baseVal.width, height = svg.viewBox.baseVal.height;

// Cards, tiles and items of the list, by the number of their node.
const drawn = new Map();
for (const element of document.querySelectorAll("[data-i]")) {
  const i = Number(element.dataset.i);
  if (!drawn.has(i)) drawn.set(i, []);
  drawn.get(i).push(element);
}
const visible = (i) => drawn.has(i) ? i : data.at[i];

// Zoom and pan: the part of the picture that fills the canvas.
const view = { x: 0, y: 0, scale: 1 };
const least = 0.05, most = 8;

function show() {
  const w = canvas.clientWidth / view.scale, h = canvas.clientHeight / view.scale;
  svg.setAttribute("viewBox", [view.x, view.y, w, h].map((n) => n.toFixed(2)).join(" "));
  document.body.setAttribute("data-scale", view.scale.toFixed(3));
}

function fit() {
  const w = canvas.clientWidth, h = canvas.clientHeight, top = 58;
  const whole = Math.min(w / width, h / (height - top));
  view.scale = Math.min(1.6, Math.max(whole, Math.min(w / width, 1), 0.45));
  view.x = Math.min(0, (width - w / view.scale) / 2);
  view.y = top + Math.min(0, (height - top - h / view.scale) / 2);
  show();
}

function zoom(factor, x = canvas.clientWidth / 2, y = canvas.clientHeight / 2) {
  const scale = Math.min(most, Math.max(least, view.scale * factor));
  view.x += x / view.scale - x / scale;
  view.y += y / view.scale - y / scale;
  view.scale = scale;
  show();
}

function pan(dx, dy) {
  view.x -= dx / view.scale;
  view.y -= dy / view.scale;
  show();
}

// reveal moves the picture as far as needed to show a card at a readable size.
function reveal(element) {
  const box = element.getBBox(), readable = 0.6, space = 40;
  if (view.scale < readable) zoom(0.9 / view.scale);
  const w = canvas.clientWidth / view.scale, h = canvas.clientHeight / view.scale;
  view.x = Math.max(Math.min(view.x, box.x - space), Math.min(box.x, box.x + box.width + space - w));
  view.y = Math.max(Math.min(view.y, box.y - space), Math.min(box.y, box.y + box.height + space - h));
  show();
}

const pointers = new Map();
let moved = 0;
canvas.addEventListener("wheel", (e) => {
  e.preventDefault();
  const box = canvas.getBoundingClientRect();
  zoom(Math.exp(-e.deltaY * (e.deltaMode === 1 ? 0.05 : 0.0015)), e.clientX - box.left, e.clientY - box.top);
}, { passive: false });
canvas.addEventListener("pointerdown", (e) => {
  pointers.set(e.pointerId, { x: e.clientX, y: e.clientY });
  moved = 0;
});
window.addEventListener("pointermove", (e) => {
  const before = pointers.get(e.pointerId);
  if (!before) return;
  const others = [...pointers].filter(([id]) => id !== e.pointerId).map(([, p]) => p);
  if (others.length === 1) {
    const box = canvas.getBoundingClientRect(), o = others[0];
    const far = (p) => Math.hypot(p.x - o.x, p.y - o.y) || 1;
    const now = { x: e.clientX, y: e.clientY };
    zoom(far(now) / far(before), (now.x + o.x) / 2 - box.left, (now.y + o.y) / 2 - box.top);
  } else {
    pan(e.clientX - before.x, e.clientY - before.y);
  }
  moved += Math.abs(e.clientX - before.x) + Math.abs(e.clientY - before.y);
  pointers.set(e.pointerId, { x: e.clientX, y: e.clientY });
});
for (const name of ["pointerup", "pointercancel"]) {
  window.addEventListener(name, (e) => pointers.delete(e.pointerId));
}
document.addEventListener("click", (e) => {
  const target = e.target.closest("[data-i]");
  if (target && !(canvas.contains(target) && moved > 6)) pick(Number(target.dataset.i), false);
});

// Details of an object.
function el(name, text, className) {
  const element = document.createElement(name);
  if (text !== undefined) element.textContent = text;
  if (className) element.className = className;
  return element;
}

const names = { mtu: "MTU", mac: "MAC address", vlan: "VLAN", vlans: "VLANs", vni: "VNI", pids: "processes",
  containerID: "container", ifname: "interface", netns: "path" };

function facts(node) {
  const rows = [];
  const add = (key, value) => {
    if (value === undefined || value === null || value === "" || (Array.isArray(value) && value.length === 0)) return;
    rows.push([names[key] || key, Array.isArray(value) ? value.join("\n") : String(value)]);
  };
  for (const part of [node.attachment, node.interface, node.rule]) {
    for (const [key, value] of Object.entries(part || {})) add(key, value);
  }
  add("namespace", node.namespace);
  add("paths", node.paths);
  add("pids", node.pids);
  add("owner", node.owner && node.owner + (node.ownerBy ? " (by " + node.ownerBy + ")" : ""));
  return rows;
}

let picked = -1;
function pick(i, move) {
  picked = i;
  for (const element of document.querySelectorAll(".picked")) element.classList.remove("picked");
  details.replaceChildren();
  details.hidden = i < 0;
  if (i < 0) { show(); return; }
  const node = data.nodes[i];
  const close = el("button", "×", "close");
  close.type = "button";
  close.setAttribute("aria-label", "Close");
  close.addEventListener("click", () => pick(-1));
  details.append(close, el("h2", node.name), el("p", node.kind, "kind"));
  for (const p of node.problems || []) {
    const item = el("p", (p.severity === "error" ? "✗ " : "! ") + p.text, p.severity);
    if (p.advice) item.append(el("code", "advice  " + p.advice));
    details.append(item);
  }
  const table = el("dl");
  for (const [key, value] of facts(node)) {
    const cell = el("dd");
    value.split("\n").forEach((text) => cell.append(el("div", text)));
    table.append(el("dt", key), cell);
  }
  details.append(table);
  const related = el("ul");
  for (const [kind, from, to] of data.edges) {
    if (from !== i && to !== i || related.childElementCount > 60) continue;
    const other = from === i ? to : from;
    const button = el("button", (from === i ? kind + " → " : kind + " ← ") + data.nodes[other].name + " (" + data.nodes[other].kind + ")");
    button.type = "button";
    button.addEventListener("click", () => pick(other, true));
    const item = el("li");
    item.append(button);
    related.append(item);
  }
  if (related.childElementCount > 0) details.append(el("p", "connected with", "kind"), related);
  const elements = drawn.get(visible(i)) || [];
  show();
  for (const element of elements) {
    element.classList.add("picked");
    if (!move) continue;
    if (canvas.contains(element)) {
      if (canvas.clientWidth > 0) reveal(element);
    } else if (canvas.clientWidth === 0) {
      const fold = element.closest("details");
      if (fold) fold.open = true;
      element.scrollIntoView({ block: "start" });
      list.scrollBy(0, -60); // a sheet with details can cover the lower half
    }
  }
}

// Search.
const words = data.nodes.map((node) => {
  const texts = [node.name, node.kind, node.id, node.owner];
  for (const part of [node.attachment, node.interface, node.rule]) texts.push(...Object.values(part || {}).flat());
  for (const p of node.problems || []) texts.push(p.text);
  return texts.filter((t) => t !== undefined).join("\n").toLowerCase();
});
let hits = [], next = 0;

function search(text) {
  for (const element of document.querySelectorAll(".hit")) element.classList.remove("hit");
  const query = text.trim().toLowerCase();
  svg.classList.toggle("searching", query !== "");
  const found = new Set();
  if (query !== "") {
    words.forEach((word, i) => { if (word.includes(query) && visible(i) !== undefined) found.add(visible(i)); });
  }
  const exact = (i) => data.nodes[i].name.toLowerCase() === query ? 0 : 1;
  mark([...found].sort((a, b) => exact(a) - exact(b)));
  count.textContent = query === "" ? "" : hits.length + " found";
}

function mark(list) {
  hits = list;
  next = 0;
  for (const i of hits) for (const element of drawn.get(i) || []) element.classList.add("hit");
  document.body.setAttribute("data-hits", String(hits.length));
}

function step(by) {
  if (hits.length === 0) return;
  pick(hits[(next + hits.length) % hits.length], true);
  count.textContent = ((next + hits.length) % hits.length + 1) + " of " + hits.length;
  next += by;
}

find.addEventListener("input", () => search(find.value));
find.addEventListener("keydown", (e) => {
  if (e.key === "Enter") step(e.shiftKey ? -1 : 1);
  if (e.key === "Escape") { find.value = ""; search(""); canvas.focus(); }
});

const broken = [...new Set(data.nodes.map((n, i) => n.problems ? visible(i) : undefined).filter((i) => i !== undefined))];
const problems = byID("problems");
problems.textContent = broken.length === 0 ? "no problems" : broken.length + (broken.length === 1 ? " problem" : " problems");
problems.disabled = broken.length === 0;
problems.addEventListener("click", () => {
  const again = svg.classList.contains("searching") && find.value === "" && hits.length === broken.length;
  if (!again) {
    find.value = "";
    search("");
    svg.classList.add("searching");
    mark(broken);
  }
  step(1);
});

// Picture or list.
function asList(yes) {
  document.body.classList.toggle("as-list", yes);
  byID("view").textContent = yes ? "Picture" : "List";
  byID("view").setAttribute("aria-pressed", String(yes));
  if (!yes) fit();
}
byID("view").addEventListener("click", () => asList(!document.body.classList.contains("as-list")));
byID("in").addEventListener("click", () => zoom(1.25));
byID("out").addEventListener("click", () => zoom(0.8));
byID("fit").addEventListener("click", fit);

const order = [...canvas.querySelectorAll("[data-i]")].map((e) => Number(e.dataset.i));
const keys = {
  "+": () => zoom(1.25), "=": () => zoom(1.25), "-": () => zoom(0.8), "0": fit,
  ArrowLeft: () => pan(60, 0), ArrowRight: () => pan(-60, 0), ArrowUp: () => pan(0, 60), ArrowDown: () => pan(0, -60),
  n: () => pick(order[(order.indexOf(visible(picked)) + 1) % order.length], true),
  p: () => pick(order[(order.indexOf(visible(picked)) - 1 + order.length) % order.length], true),
};
document.addEventListener("keydown", (e) => {
  if (e.target === find || e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === "/") { e.preventDefault(); find.focus(); find.select(); return; }
  if (e.key === "Escape") { pick(-1); find.value = ""; search(""); return; }
  if (document.body.classList.contains("as-list") || !keys[e.key]) return;
  e.preventDefault();
  keys[e.key]();
});
window.addEventListener("resize", show);

// The fragment of the address can hold a search, a zoom factor and a view: #q=web&zoom=2&view=list.
function fragment() {
  const options = new URLSearchParams(location.hash.slice(1));
  svg.classList.remove("searching");
  asList(options.has("view") ? options.get("view") === "list" : matchMedia("(max-width: 720px)").matches);
  fit();
  document.body.setAttribute("data-fit", view.scale.toFixed(3));
  if (options.has("q")) {
    find.value = options.get("q");
    search(find.value);
    step(1);
  }
  if (options.has("zoom")) zoom(Number(options.get("zoom")) || 1);
}
window.addEventListener("hashchange", fragment);
fragment();
document.body.setAttribute("data-ready", "true");
