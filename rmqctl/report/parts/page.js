"use strict";
(() => {
const data = JSON.parse(document.getElementById("data").textContent);
const NS = "http://www.w3.org/2000/svg";
const WIDTH = 1200, LEFT = 250, RIGHT = 20, ROW = 22;
const number = new Intl.NumberFormat("en");

function element(parent, name, attributes = {}, text = null) {
  const made = parent.namespaceURI === NS || name === "svg" ? document.createElementNS(NS, name) : document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  if (text !== null) made.textContent = text;
  parent.append(made);
  return made;
}

function moment(ms) {
  const date = new Date(ms);
  return Number.isNaN(date.getTime()) ? String(ms) : date.toISOString();
}

function shortened(text, most) {
  const letters = [...text];
  return letters.length <= most ? text : letters.slice(0, most - 1).join("") + "\u2026";
}

/* A panel: lanes over one axis, with zoom. `draw` fills a lane, given where a value lies. */
class Panel {
  constructor(home, title, lanes, span, label, draw, axis) {
    Object.assign(this, {title, lanes, whole: span, label, draw, axis, view: [...span]});
    this.box = element(home, "div");
    const bar = element(this.box, "div", {class: "bar"});
    element(bar, "b", {}, title);
    for (const [name, text, act] of [
      ["Zoom in", "+", () => this.zoom(0.5)], ["Zoom out", "\u2212", () => this.zoom(2)],
      ["Earlier", "\u2190", () => this.move(-0.25)], ["Later", "\u2192", () => this.move(0.25)],
      ["All", "all", () => this.show(this.whole)],
    ]) element(bar, "button", {type: "button", "aria-label": `${name}: ${title}`}, text).addEventListener("click", act);
    const scroll = element(this.box, "div", {class: "scroll"});
    this.svg = element(scroll, "svg", {role: "group", "aria-label": `${title}; the tables below hold the same`, tabindex: "0"});
    this.hint = element(this.box, "p", {class: "hint", "aria-live": "polite"});
    this.svg.addEventListener("keydown", (event) => {
      const acts = {"+": () => this.zoom(0.5), "-": () => this.zoom(2), ArrowLeft: () => this.move(-0.25), ArrowRight: () => this.move(0.25), "0": () => this.show(this.whole)};
      if (acts[event.key]) { acts[event.key](); event.preventDefault(); }
    });
    this.svg.addEventListener("wheel", (event) => {
      if (!event.ctrlKey) return;
      event.preventDefault();
      this.zoom(event.deltaY < 0 ? 0.7 : 1.4, this.value(event));
    }, {passive: false});
    this.svg.addEventListener("dblclick", (event) => this.zoom(0.3, this.value(event)));
    this.svg.addEventListener("pointerover", (event) => this.say(event.target));
    this.svg.addEventListener("focusin", (event) => this.say(event.target.querySelector?.("[data-text]") ?? event.target));
    this.render();
  }
  say(target) { if (target.dataset?.text) this.hint.textContent = target.dataset.text; }
  value(event) {
    const box = this.svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * WIDTH;
    return this.view[0] + (x - LEFT) / (WIDTH - LEFT - RIGHT) * (this.view[1] - this.view[0]);
  }
  show([low, high]) {
    const least = Math.min(this.whole[1] - this.whole[0], 8);
    if (high - low < least) high = low + least;
    const size = Math.min(high - low, this.whole[1] - this.whole[0]);
    low = Math.max(Math.min(low, this.whole[1] - size), this.whole[0]);
    this.view = [low, low + size];
    this.render();
  }
  zoom(factor, at = (this.view[0] + this.view[1]) / 2) {
    const [low, high] = this.view;
    this.show([at - (at - low) * factor, at + (high - at) * factor]);
  }
  move(part) {
    const size = this.view[1] - this.view[0];
    this.show([this.view[0] + part * size, this.view[1] + part * size]);
  }
  render() {
    const [low, high] = this.view, room = WIDTH - LEFT - RIGHT, height = this.lanes.length * ROW + 34;
    const at = (value) => LEFT + (value - low) / Math.max(high - low, 1) * room;
    this.svg.replaceChildren();
    this.svg.setAttribute("viewBox", `0 0 ${WIDTH} ${height}`);
    for (let n = 0; n <= 4; n++) {
      const value = low + (high - low) * n / 4, x = at(value);
      element(this.svg, "line", {class: "grid", x1: x, x2: x, y1: 4, y2: height - 26});
      element(this.svg, "text", {class: "dim", x, y: height - 8, "text-anchor": n === 0 ? "start" : n === 4 ? "end" : "middle"}, this.axis(value));
    }
    this.lanes.forEach((lane, n) => {
      const y = 6 + n * ROW;
      const label = element(this.svg, "text", {x: LEFT - 8, y: y + 13, "text-anchor": "end"}, lane.label === undefined ? shortened(lane.name, 34) : `${shortened(lane.name, 20)} ${shortened(lane.label, 13)}`);
      element(label, "title", {}, lane.label === undefined ? lane.name : `${lane.name} of ${lane.label}`);
      if (lane.label !== undefined && n > 0 && lane.name !== this.lanes[n - 1].name) element(this.svg, "line", {class: "grid", x1: 0, x2: WIDTH, y1: y - 3, y2: y - 3});
      this.draw(this, lane, y, at, low, high);
    });
  }
  bar(kind, y, at, low, high, begin, end, text, tall = 16) {
    if (end < low || begin > high) return;
    const x = at(Math.max(begin, low)), right = at(Math.min(end, high));
    const made = element(this.svg, "rect", {class: kind, x, y: y + (16 - tall) / 2, width: Math.max(right - x, 0.8), height: tall, "data-text": text});
    element(made, "title", {}, text);
  }
}

function lane(prefix) {
  return (panel, one, y, at, low, high) => {
    const unit = one.unit;
    if (!one.blocks.length && one.end > one.begin) panel.bar("used", y, at, low, high, one.begin, one.end, `${one.name}: ${number.format(one.begin)} to ${number.format(one.end)}`, 12);
    for (const block of one.blocks) {
      const when = block.time === null ? "" : `, from ${moment(block.time)}`;
      const text = `${block.file}: ${unit} ${number.format(block.begin)} to ${number.format(block.used)}${when}`;
      panel.bar("block", y, at, low, high, block.begin, block.end, text);
      if (block.used > block.begin) panel.bar("used", y, at, low, high, block.begin, block.used, text, 10);
    }
    if (one.cut) panel.bar("gone", y, at, low, high, one.cut[0], one.cut[1], `a start takes away ${unit} ${number.format(one.cut[0])} to ${number.format(one.cut[1])}`);
    for (const mark of one.marks) {
      if (mark.at < low || mark.at > high) continue;
      const x = at(mark.at), text = `${mark.text} (${unit} ${number.format(mark.at)})`;
      let home = panel.svg;
      const to = mark.finding === undefined ? mark.to : `${one.prefix ?? prefix}-f${mark.finding}`;
      if (to !== undefined) {
        home = element(panel.svg, "a", {href: `#${to}`, "aria-label": text});
        element(home, "circle", {class: `mark m-${mark.kind}`, cx: x, cy: y + 8, r: 5, "data-text": text});
      } else element(home, "line", {class: `mark m-${mark.kind}`, x1: x, x2: x, y1: y - 2, y2: y + 18, "data-text": text});
      element(home.lastChild, "title", {}, text);
    }
  };
}

/* What the marks and colours of lanes mean, of those that are there. */
const SIGNS = [
  ["used", "written"], ["block", "room of a file"], ["gone", "a start takes it away"], ["error", "error"], ["warning", "warning"], ["note", "note"],
  ["cut", "a start ends here"], ["checkpoint", "checkpoint, high watermark, log start"], ["group", "consumer group"],
  ["anomaly", "group where no message is"], ["open", "open transaction"], ["pending", "timer, delayed, half or popped message"], ["epoch", "leader epoch"],
];
function legend(home, lanes) {
  const there = new Set(lanes.flatMap((one) => [...one.marks.map((mark) => mark.kind), ...(one.blocks.length ? ["block"] : []), ...(one.cut ? ["gone"] : []), "used"]));
  const box = element(home, "p", {class: "legend"});
  for (const [kind, text] of SIGNS) {
    if (!there.has(kind)) continue;
    const svg = element(element(box, "span"), "svg", {viewBox: "0 0 16 16", "aria-hidden": "true"});
    if (["error", "warning", "note"].includes(kind)) element(svg, "circle", {class: `mark m-${kind}`, cx: 8, cy: 8, r: 5});
    else if (["used", "block", "gone"].includes(kind)) element(svg, "rect", {class: kind, width: 16, height: 16});
    else element(svg, "line", {class: `mark m-${kind}`, x1: 8, x2: 8, y1: 0, y2: 16});
    svg.parentNode.append(text);
  }
}

function times(found) {
  const most = Math.max(1, ...found.lanes.flatMap((one) => one.counts.map(([, n]) => n)));
  return (panel, one, y, at, low, high) => {
    for (const [when, count] of one.counts) {
      panel.bar("cell", y, at, low, high, when, when + found.step, `${one.name}: ${number.format(count)} messages from ${moment(when)}`, 14);
      const made = panel.svg.lastChild;
      if (made.classList.contains("cell")) made.setAttribute("fill-opacity", (0.15 + 0.85 * Math.sqrt(count / most)).toFixed(2));
    }
  };
}

for (const home of document.querySelectorAll(".picture")) {
  const found = data.pictures[Number(home.dataset.store)], draw = lane(home.dataset.prefix);
  const bar = element(home, "div", {class: "bar"}), views = {};
  const body = element(home, "div");
  element(home, "p", {class: "hint keys"}, "Zoom: + and \u2212, or Ctrl and the wheel; arrows move; 0 shows all. A dot is a finding and leads to it.");
  const span = (lanes) => [Math.min(...lanes.map((one) => one.begin)), Math.max(1, ...lanes.map((one) => one.end ?? 0), ...lanes.flatMap((one) => (one.marks ?? []).map((mark) => mark.at)))];
  const offset = (value) => number.format(Math.round(value));
  if (found.log.length || found.queues.length) views["by offset"] = (to) => {
    if (found.log.length) new Panel(to, "The log, in bytes", found.log, span(found.log), "bytes", draw, offset);
    if (found.queues.length) new Panel(to, found.log.length ? "Queues, in messages" : "Partitions, in messages", found.queues, span(found.queues), "messages", draw, offset);
    legend(to, [...found.log, ...found.queues]);
  };
  if (found.times) views["by time"] = (to) => new Panel(to, "Messages by time", found.times.lanes, [found.times.begin, found.times.end], "time", times(found.times), moment);
  const buttons = Object.entries(views).map(([name, fill]) => {
    const button = element(bar, "button", {type: "button"}, name);
    button.addEventListener("click", () => {
      for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
      body.replaceChildren();
      fill(body);
    });
    return button;
  });
  bar.hidden = buttons.length < 2;
  if (buttons.length) buttons[0].click(); else element(body, "p", {}, "Nothing is there to be drawn.");
}

for (const form of document.querySelectorAll(".filter")) {
  const all = [...document.getElementById(form.dataset.for).children], output = form.querySelector("output");
  const search = form.querySelector("input[type=search]"), boxes = [...form.querySelectorAll("input[type=checkbox]")];
  const filter = () => {
    const wanted = new Set(boxes.filter((box) => box.checked).map((box) => box.value)), words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    for (const one of all) {
      const text = one.textContent.toLowerCase();
      one.hidden = !wanted.has(one.dataset.severity) || !words.every((word) => text.includes(word));
      shown += !one.hidden;
    }
    output.textContent = `${number.format(shown)} shown`;
  };
  form.addEventListener("input", filter);
  form.addEventListener("submit", (event) => event.preventDefault());
  filter();
}

function open() {
  let at = null;
  try { at = document.getElementById(decodeURIComponent(location.hash.slice(1))); } catch { return; }
  if (at === null) return;
  if (!at.matches("details")) { at.focus(); return; }
  at.hidden = false;
  at.open = true;
  at.scrollIntoView({block: "start"});
  at.querySelector("summary").focus({preventScroll: true});
}
addEventListener("hashchange", open);
open();
addEventListener("beforeprint", () => { for (const one of document.querySelectorAll(".finding.error, .finding.warning, .part")) one.open = true; });
})();
