// Curves over time: one line per ranker, the chosen one strong, the others faint. Each chart has a table with the same numbers.

// Round numbers that enclose [low, high], two or three of them.
function ticks(low, high, least) {
  const span = Math.max(high - low, least);
  const rough = span / 2.2;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((n) => n * power).find((n) => n >= rough);
  const first = Math.floor(low / step + 1e-9) * step;
  const found = [];
  for (let value = first; found.length < 2 || found[found.length - 1] < high - 1e-9; value += step) {
    found.push(Number(value.toPrecision(12)));
  }
  return found;
}

const TIMES = [60, 120, 300, 600, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 345600, 604800];

function timeTicks(since, now, most) {
  const step = TIMES.find((seconds) => (now - since) / seconds <= most) ?? 604800;
  const offset = new Date(since * 1000).getTimezoneOffset() * 60; // whole hours and days of the reader's own clock
  const found = [];
  for (let t = Math.ceil((since - offset) / step) * step + offset; t < now; t += step) found.push(t);
  return [found, step >= 86400 ? day : clock];
}

// Labels at these heights, moved apart so that none covers another.
function apart(heights, gap, low, high) {
  const order = heights.map((y, i) => [y, i]).sort((a, b) => a[0] - b[0]);
  const placed = [];
  for (const [y] of order) placed.push(Math.max(y, placed.length ? placed[placed.length - 1] + gap : low));
  for (let i = placed.length - 1, limit = high; i >= 0; i -= 1, limit = placed[i + 1] - gap) {
    placed[i] = Math.min(placed[i], limit);
  }
  const found = [];
  order.forEach(([, i], at) => { found[i] = placed[at]; });
  return found;
}

const STROKE = 4; // points that are needed for a stroke
const short = (name) => (name.length > 18 ? `${name.slice(0, 17)}…` : name);

class LineChart {
  constructor({ field, title, help, format, least, zero = false, large = false }) {
    Object.assign(this, { field, title, format, least, zero, large });
    this.value = h("output", { class: "value" });
    this.period = h("small", {});
    this.toggle = h("button", { type: "button", class: "quiet small", "aria-pressed": "false", onclick: () => this.flip() },
      "Table");
    this.plot = h("div", { class: "plot", tabindex: "0", role: "img" });
    this.tip = h("div", { class: "tip", hidden: true, "aria-hidden": "true" });
    this.table = h("div", { class: "scroll", hidden: true, tabindex: "0", role: "region", "aria-label": `${title}, as a table` });
    this.said = h("p", { class: "unseen", "aria-live": "polite" });
    this.element = h("section", { class: large ? "card large" : "card" },
      h("header", {}, h("h3", {}, title), h("div", { class: "figure" }, this.value, this.period)), h("p", { class: "help" }, help),
      h("div", { class: "frame" }, this.plot, this.tip), this.table, this.toggle, this.said);
    this.plot.addEventListener("pointermove", (event) => this.point(event.clientX));
    this.plot.addEventListener("pointerleave", () => this.leave());
    this.plot.addEventListener("blur", () => this.leave());
    this.plot.addEventListener("keydown", (event) => this.step(event));
    new ResizeObserver(() => this.data && this.draw()).observe(this.plot);
  }

  flip() {
    const shown = this.table.hidden;
    this.table.hidden = !shown;
    this.plot.parentElement.hidden = shown;
    this.toggle.setAttribute("aria-pressed", String(shown));
    if (this.data) this.draw();
  }

  // data: { lines: [{ name, color, points }], selected, since, now, step, markers: [{ at, text }], value, period }
  update(data) {
    this.data = data;
    for (const line of data.lines) {
      line.known = line.points.filter((point) => typeof point[this.field] === "number");
      // The current step is not complete: leave it out, unless it is the only one.
      if (line.known.length > 1 && line.known[line.known.length - 1].start + data.step > data.now) {
        line.known = line.known.slice(0, -1);
      }
    }
    this.chosen = data.lines.find((line) => line.name === data.selected) ?? { known: [] };
    const empty = data.value === null || data.value === undefined;
    this.value.textContent = empty ? "no data yet" : this.format(data.value);
    this.value.classList.toggle("none", empty);
    this.value.setAttribute("aria-label", `${this.title}, ${data.period}`);
    this.period.textContent = empty ? "" : data.period;
    this.draw();
  }

  get any() { return this.data.lines.some((line) => line.known.length > 0); }

  draw() {
    const known = this.chosen.known;
    this.describe(known);
    if (!this.table.hidden) this.tabulate();
    const width = this.plot.clientWidth;
    if (!width) return;
    if (!this.any) {
      this.plot.replaceChildren(h("p", { class: "nothing" }, "No data yet."));
      return;
    }
    const { since, now, lines, markers } = this.data;
    const labels = this.large && lines.length > 1;
    const longest = Math.max(...lines.filter((line) => line.known.length).map((line) => short(line.name).length));
    const [top, right, bottom, left] = [this.large ? 16 : 8, labels ? 16 + 6.6 * longest : 8, 20, 40];
    const height = this.large ? 210 : 120;
    const values = lines.flatMap((line) => line.known.map((point) => point[this.field]));
    const low = this.zero ? 0 : Math.min(...values);
    const marks = ticks(low, Math.max(...values), this.least);
    const [floor, ceiling] = [marks[0], marks[marks.length - 1]];
    const x = (t) => left + ((t - since) / (now - since)) * (width - left - right);
    const y = (v) => height - bottom - ((v - floor) / (ceiling - floor)) * (height - top - bottom);
    Object.assign(this, { x, y, left, right, width });

    const parts = marks.flatMap((value) => [
      svg("line", { class: "grid", x1: left, x2: width - right, y1: y(value), y2: y(value) }),
      svg("text", { class: "tick", x: left - 8, y: y(value) + 4, "text-anchor": "end" }, this.format(value)),
    ]);
    const [times, form] = timeTicks(since, now, (width - left - right) / 70);
    for (const t of times) {
      parts.push(svg("text", { class: "tick", x: x(t), y: height - 4, "text-anchor": "middle" }, form.format(t * 1000)));
    }
    let clear = width; // markers come newest first; a note that would cover the one to its right is left to the pointer
    for (const { at, text } of markers.filter((marker) => marker.at > since)) {
      parts.push(svg("line", { class: "marker", x1: x(at), x2: x(at), y1: top - 4, y2: height - bottom }));
      if (!this.large || x(at) + 3 * text.length > clear) continue;
      parts.push(svg("text", { class: "note", x: x(at), y: top - 7, "text-anchor": "middle" }, text));
      clear = x(at) - 3 * text.length - 10;
    }
    const faint = lines.filter((line) => line !== this.chosen && line.known.length);
    for (const line of [...faint, this.chosen].filter((one) => one.known.length)) parts.push(...this.line(line));
    if (labels) {
      const ended = lines.filter((line) => line.known.length);
      const heights = ended.map((line) => y(line.known[line.known.length - 1][this.field]));
      apart(heights, 14, top, height - bottom).forEach((at, i) => {
        const strong = ended[i] === this.chosen ? "label strong" : "label";
        parts.push(svg("text", { class: `${strong} ink-${ended[i].color}`, x: width - right + 8, y: at + 4 }, short(ended[i].name)));
      });
    }
    this.cross = svg("g", { class: "cross" });
    this.plot.replaceChildren(svg("svg", { width, height, "aria-hidden": "true" }, ...parts, this.cross));
    if (this.at !== undefined) this.look(this.at);
  }

  // Breaks where nothing was known for more than three steps. Runs of few points are drawn as points: a stroke between
  // two of them would look like a trend.
  line(line) {
    const runs = [];
    for (const point of line.known) {
      const run = runs[runs.length - 1];
      if (run && point.start - run[run.length - 1].start <= 3 * this.data.step) run.push(point);
      else runs.push([point]);
    }
    const kind = `line-${line.color} ${line === this.chosen ? "strong" : "faint"}`;
    const place = (point) => `${this.x(point.start + this.data.step / 2).toFixed(1)} ${this.y(point[this.field]).toFixed(1)}`;
    return runs.flatMap((run) => {
      if (run.length >= STROKE) return [svg("path", { class: kind, d: `M${run.map(place).join("L")}` })];
      return run.map((point) => {
        const [cx, cy] = place(point).split(" ");
        return svg("circle", { class: `${kind} dot`, cx, cy, r: line === this.chosen ? 3 : 2.5 });
      });
    });
  }

  describe(known) {
    let text = `${this.title}: no data yet.`;
    if (known.length) {
      const values = known.map((point) => point[this.field]);
      const [first, last] = [values[0], values[values.length - 1]].map(this.format);
      const [low, high] = [Math.min(...values), Math.max(...values)].map(this.format);
      text = `${this.title} of ${this.data.selected}: from ${first} to ${last}, lowest ${low}, highest ${high}. Arrow keys read it out.`;
    }
    this.plot.setAttribute("aria-label", text);
  }

  tabulate() {
    const lines = this.data.lines.filter((line) => line.known.length);
    const starts = [...new Set(lines.flatMap((line) => line.known.map((point) => point.start)))].sort((a, b) => b - a);
    const cells = lines.map((line) => new Map(line.known.map((point) => [point.start, this.format(point[this.field])])));
    const head = h("tr", {}, h("th", { scope: "col" }, "From"), ...lines.map((line) => h("th", { scope: "col" }, line.name)));
    const rows = starts.map((start) => h("tr", {},
      h("th", { scope: "row" }, dayClock.format(start * 1000)), ...cells.map((column) => h("td", {}, column.get(start) ?? "–"))));
    this.table.replaceChildren(h("table", { class: "plain" }, h("thead", {}, head), h("tbody", {}, rows)));
  }

  // -- looking closely -------------------------------------------------------------------------------------------

  point(clientX) {
    if (!this.x || !this.any) return;
    const { since, now } = this.data;
    const part = (clientX - this.plot.getBoundingClientRect().left - this.left) / (this.width - this.left - this.right);
    this.look(since + part * (now - since));
  }

  step(event) {
    const starts = this.chosen.known.map((point) => point.start);
    if (event.key === "Escape") this.leave();
    if (!["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key) || !starts.length) return;
    event.preventDefault();
    const here = this.at === undefined ? starts.length : starts.findIndex((start) => start === this.at);
    const to = { ArrowLeft: here - 1, ArrowRight: here + 1, Home: 0, End: starts.length - 1 }[event.key];
    this.look(starts[Math.min(Math.max(to, 0), starts.length - 1)]);
    this.said.textContent = this.tip.textContent;
  }

  leave() {
    this.at = undefined;
    this.tip.hidden = true;
    this.cross?.replaceChildren();
  }

  look(time) {
    const { lines, step, markers, now } = this.data;
    const starts = [...new Set(lines.flatMap((line) => line.known.map((point) => point.start)))];
    if (!starts.length || !this.x) return;
    const near = starts.reduce((a, b) => (Math.abs(b + step / 2 - time) < Math.abs(a + step / 2 - time) ? b : a));
    this.at = near;
    const x = this.x(near + step / 2);
    const here = lines.map((line) => [line, line.known.find((point) => point.start === near)]).filter(([, point]) => point);
    this.cross.replaceChildren(
      svg("line", { x1: x, x2: x, y1: 0, y2: (this.large ? 210 : 120) - 20 }),
      ...here.map(([line, point]) => svg("circle", { class: `dot line-${line.color}`, cx: x, cy: this.y(point[this.field]), r: 3.5 })));
    here.sort((a, b) => b[1][this.field] - a[1][this.field]);
    const events = markers.filter((marker) => Math.abs(marker.at - near - step / 2) <= step);
    this.tip.replaceChildren(
      h("p", {}, (now - near > 86400 ? dayClock : clockSeconds).format(near * 1000)),
      ...here.map(([line, point]) => h("p", { class: line === this.chosen ? "strong" : null },
        h("i", { class: `swatch back-${line.color}` }), ` ${line.name} `, h("b", {}, this.format(point[this.field])))),
      ...events.map((marker) => h("p", {}, marker.text)));
    this.tip.hidden = false;
    this.tip.style.left = `${Math.min(Math.max(x - this.tip.offsetWidth / 2, 0), this.width - this.tip.offsetWidth)}px`;
  }
}

// A small curve without axes, for the list of rankers; none if there are too few points for a curve.
function sparkline(points, field, color, since, now) {
  const known = points.filter((point) => typeof point[field] === "number").slice(0, -1);
  if (known.length < STROKE) return null;
  const values = known.map((point) => point[field]);
  const [low, high] = [Math.min(...values), Math.max(...values)];
  const place = (point, i) => `${(((point.start - since) / (now - since)) * 84 + 2).toFixed(1)} `
    + `${(22 - ((values[i] - low) / (high - low || 1)) * 18).toFixed(1)}`;
  return svg("svg", { class: "spark", viewBox: "0 0 88 26", "aria-hidden": "true" },
    svg("path", { class: `line-${color} strong`, d: `M${known.map(place).join("L")}` }));
}
