"use strict";
// What moves: theme, legend, crosshair with values, zoom of the time axis, tables of numbers. The page is complete without it.
(() => {
  const { charts, columns } = JSON.parse(document.getElementById("numbers").textContent);
  const root = document.documentElement;
  root.classList.add("live");
  const tip = document.getElementById("tip");
  const figures = Object.keys(charts).map((key) => begin(key)).filter(Boolean);

  function begin(key) {
    const card = document.getElementById(key);
    const svg = card && card.querySelector("svg.chart");
    if (!svg) return null;
    const [left, top, width, height, whole] = charts[key].plot;
    return {
      key, card, svg, left, top, width, height, whole, chart: charts[key],
      plot: svg.querySelector("svg.plot"), cross: svg.querySelector(".cross"), pick: svg.querySelector(".pick"),
      ticks: svg.querySelector(".xticks"), first: svg.querySelector(".xticks").innerHTML,
      off: new Set(), from: 0, to: 1,
    };
  }

  // -- theme ---------------------------------------------------------------------------------------------------------
  const themes = ["", "light", "dark"];
  const remembered = () => { try { return localStorage.getItem("fastllmload-theme") || ""; } catch { return ""; } };
  function dress(theme) {
    if (theme) root.dataset.theme = theme; else delete root.dataset.theme;
    document.getElementById("theme").textContent = "Theme: " + (theme || "auto");
  }
  dress(remembered());
  document.getElementById("theme").addEventListener("click", () => {
    const next = themes[(themes.indexOf(root.dataset.theme || "") + 1) % themes.length];
    try { localStorage.setItem("fastllmload-theme", next); } catch { /* a page from a file may have no storage */ }
    dress(next);
  });

  // -- values --------------------------------------------------------------------------------------------------------
  const digits = (value) => Math.abs(value) >= 100 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(3));
  function duration(ms) {
    const size = Math.abs(ms);
    if (size === 0) return "0 ms";
    if (size < 0.0009995) return digits(ms * 1e6) + " ns";
    if (size < 0.9995) return digits(ms * 1e3) + " µs";
    return size < 999.5 ? digits(ms) + " ms" : digits(ms / 1e3) + " s";
  }
  function written(value, unit) {
    if (value === null || value === undefined) return "–";
    if (unit === "ms") return duration(value);
    if (unit === "share") return +(100 * value).toPrecision(4) + " %";
    return +value.toPrecision(4) >= 1000 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(4));
  }
  const brief = (x, unit) => (Math.abs(x) >= 1e5 ? Math.round(x).toLocaleString("en") : +x.toPrecision(5)) + (unit ? " " + unit : "");
  function place(chart, x, series, index) {
    const axis = chart.x;
    if (axis.kind === "names") return axis.names[Math.floor(x)];
    if (axis.kind === "tail") return "P" + +(100 * (1 - 10 ** -x)).toFixed(Math.max(1, Math.ceil(x)));
    if (axis.unit === "share") return written(x, "share");
    if (axis.unit !== "ms") return brief(x, axis.unit);
    if (series.from === undefined) return duration(x);
    return duration(columns[series.from][index]) + " to " + duration(columns[series.to][index]);
  }

  // -- geometry ------------------------------------------------------------------------------------------------------
  const scaled = (axis, x) => axis.kind === "log"
    ? Math.log(Math.max(x, axis.low) / axis.low) / Math.log(axis.high / axis.low) : (x - axis.low) / (axis.high - axis.low);
  const toPage = (f, share) => f.left + (share - f.from) / (f.to - f.from) * f.width;
  function shareAt(f, event) {
    const box = f.svg.getBoundingClientRect();
    const x = ((event.clientX - box.left) / box.width * f.whole - f.left) / f.width;
    return f.from + Math.min(1, Math.max(0, x)) * (f.to - f.from);
  }
  function nearest(axis, xs, share) {
    let low = 0, high = xs.length - 1;
    while (high - low > 1) {
      const middle = (low + high) >> 1;
      if (scaled(axis, xs[middle]) > share) high = middle; else low = middle;
    }
    return Math.abs(scaled(axis, xs[low]) - share) <= Math.abs(scaled(axis, xs[high]) - share) ? low : high;
  }
  const linked = (f) => f.chart.group ? figures.filter((g) => g.chart.group === f.chart.group) : [f];

  // -- crosshair -----------------------------------------------------------------------------------------------------
  function show(f, event) {
    const share = shareAt(f, event);
    const shown = f.chart.series.map((s, n) => [s, n]).filter(([s, n]) => !f.off.has(n) && columns[s.x].length);
    if (!shown.length) return hide(f);
    if (shown.some(([s]) => s.points)) return point(f, event, shown.filter(([s]) => s.points));
    if (f.chart.x.kind === "names") return category(f, event, share, shown);
    const lead = shown.reduce((a, b) => columns[b[0].x].length > columns[a[0].x].length ? b : a)[0];
    const at = nearest(f.chart.x, columns[lead.x], share);
    const x = columns[lead.x][at];
    for (const g of linked(f)) cross(g, scaled(f.chart.x, x));
    tip.replaceChildren(line("b", place(f.chart, x, lead, at)));
    for (const [s] of shown) say(f, s, columns[s.y][nearest(f.chart.x, columns[s.x], scaled(f.chart.x, x))]);
    placeNear(event);
  }
  // The dot nearest to the pointer: points may come in any order.
  function point(f, event, shown) {
    const box = f.svg.getBoundingClientRect(), size = f.whole / box.width;
    const px = (event.clientX - box.left) * size - f.left, py = (event.clientY - box.top) * size - f.top;
    let best = null;
    for (const [s] of shown) columns[s.x].forEach((x, k) => {
      const y = columns[s.y][k];
      if (x === null || y === null) return;
      const away = Math.hypot(scaled(f.chart.x, x) * f.width - px, (1 - scaled(f.chart.y, y)) * f.height - py);
      if (!best || away < best.away) best = { away, s, k, x, y };
    });
    if (!best) return hide(f);
    cross(f, scaled(f.chart.x, best.x));
    const label = (best.s.labels || [])[best.k];
    tip.replaceChildren(line("b", (label ? label + ": " : "") + place(f.chart, best.x, best.s, best.k)));
    say(f, best.s, best.y);
    placeNear(event);
  }
  function category(f, event, share, shown) {
    const at = Math.min(f.chart.x.names.length - 1, Math.floor(share * f.chart.x.names.length));
    cross(f, (at + 0.5) / f.chart.x.names.length);
    tip.replaceChildren(line("b", f.chart.x.names[at]));
    for (const [s] of shown) say(f, s, columns[s.y][2 * at]);
    placeNear(event);
  }
  function say(f, s, value) {
    const row = document.createElement("div"), key = line("i", "");
    key.className = "key " + s.tone;
    row.append(key, line("span", s.name), line("span", written(value, f.chart.unit)));
    tip.append(row);
  }
  function placeNear(event) {
    tip.hidden = false;
    const wide = tip.offsetWidth, right = event.clientX + 16 + wide > innerWidth;
    tip.style.left = (right ? event.clientX - wide - 16 : event.clientX + 16) + "px";
    tip.style.top = Math.max(4, Math.min(event.clientY + 12, innerHeight - tip.offsetHeight - 6)) + "px";
  }
  function line(name, text) {
    const made = document.createElement(name);
    made.textContent = text;
    return made;
  }
  function cross(f, share) {
    const x = toPage(f, share), inside = x >= f.left - 1 && x <= f.left + f.width + 1;
    f.cross.setAttribute("x1", x);
    f.cross.setAttribute("x2", x);
    f.cross.style.visibility = inside ? "visible" : "hidden";
  }
  function hide(f) {
    tip.hidden = true;
    for (const g of linked(f)) g.cross.style.visibility = "hidden";
  }

  // -- zoom of the time axis -----------------------------------------------------------------------------------------
  function zoom(f, from, to) {
    for (const g of linked(f)) {
      g.from = from;
      g.to = to;
      g.plot.setAttribute("viewBox", `${from * g.width} 0 ${(to - from) * g.width} ${g.height}`);
      const away = from > 0 || to < 1;
      for (const word of g.svg.querySelectorAll(".words .aside")) word.style.display = away ? "none" : "";
      if (away) marks(g); else g.ticks.innerHTML = g.first;
    }
  }
  function marks(f) {
    const axis = f.chart.x, span = axis.high - axis.low;
    const low = axis.low + f.from * span, high = axis.low + f.to * span;
    const raw = (high - low) / 8, power = 10 ** Math.floor(Math.log10(raw));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999);
    const found = [];
    for (let k = Math.ceil(low / step - 1e-9); k * step <= high + step * 1e-9; k++) {
      const x = toPage(f, scaled(axis, k * step)), text = +(k * step).toPrecision(6), base = f.top + f.height;
      const last = (k + 1) * step > high + step * 1e-9 ? " " + axis.unit : "";
      found.push(`<line class="mark" x1="${x}" x2="${x}" y1="${base}" y2="${base + 4}"></line>` +
        `<text class="tick" x="${x}" y="${base + 16}" text-anchor="middle">${text}${last}</text>`);
    }
    f.ticks.innerHTML = found.join("");
  }

  // -- wiring --------------------------------------------------------------------------------------------------------
  for (const f of figures) {
    let start = null;
    f.svg.addEventListener("pointerdown", (event) => {
      if (f.chart.group !== "time" || event.button !== 0) return;
      start = shareAt(f, event);
      f.svg.setPointerCapture(event.pointerId);
    });
    f.svg.addEventListener("pointermove", (event) => {
      show(f, event);
      if (start === null) return;
      const a = toPage(f, start), b = toPage(f, shareAt(f, event));
      f.pick.setAttribute("x", Math.min(a, b));
      f.pick.setAttribute("width", Math.abs(a - b));
    });
    f.svg.addEventListener("pointerup", (event) => {
      if (start === null) return;
      const end = shareAt(f, event), from = Math.min(start, end), to = Math.max(start, end);
      f.pick.setAttribute("width", 0);
      start = null;
      if ((to - from) / (f.to - f.from) > 0.02) zoom(f, from, to);
    });
    f.svg.addEventListener("pointercancel", () => { start = null; f.pick.setAttribute("width", 0); });
    f.svg.addEventListener("pointerleave", () => hide(f));
    f.svg.addEventListener("dblclick", () => { if (f.chart.group === "time") zoom(f, 0, 1); });
    for (const button of f.card.querySelectorAll("[data-toggle]")) button.addEventListener("click", () => toggle(f, button));
    const data = f.card.querySelector(".data");
    data.addEventListener("toggle", () => { if (data.open) fill(f, data.querySelector(".numbers")); });
  }
  function toggle(f, button) {
    const on = button.getAttribute("aria-pressed") !== "true";
    button.setAttribute("aria-pressed", String(on));
    for (const n of button.dataset.toggle.split(",").map(Number)) {
      if (on) f.off.delete(n); else f.off.add(n);
      f.svg.querySelector(`[data-series="${n}"]`).classList.toggle("off", !on);
    }
  }
  function fill(f, into) {
    if (into.firstChild) return;
    const seen = new Set();
    for (const s of f.chart.series) {
      if (seen.has(s.name + s.x + "," + s.y)) continue; // a line and its dots are one
      seen.add(s.name + s.x + "," + s.y);
      const table = document.createElement("table"), body = document.createElement("tbody");
      const head = table.createTHead().insertRow();
      head.append(line("th", f.chart.x.kind === "tail" ? "percentile" : f.chart.x.unit || ""), line("th", s.name));
      columns[s.x].forEach((x, k) => {
        if (x === null || columns[s.y][k] === null) return;
        const row = body.insertRow();
        row.insertCell().textContent = place(f.chart, x, s, k);
        row.insertCell().textContent = written(columns[s.y][k], f.chart.unit);
      });
      table.append(body);
      into.append(table);
    }
  }
  addEventListener("beforeprint", () => {
    const timed = figures.find((f) => f.chart.group === "time");
    if (timed) zoom(timed, 0, 1);
    for (const folded of document.querySelectorAll(".on-paper")) folded.open = true;
  });
})();
