"use strict";
// Draws the lanes in #data. All that comes from the log becomes text or an attribute's value, never markup.
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const SVG = "http://www.w3.org/2000/svg";
  const ROW = 22, HEADING = 28, ABOVE_INSTANCE = 8, AXIS = 30, LETTER = 7.3;
  const HEIGHTS = { node: 8, instance: 8, runner: 14 };
  const FIRST = data.first_index, BEYOND = data.last_index + 1;

  // -- elements ---------------------------------------------------------------------------------------------------

  const byId = (id) => document.getElementById(id);

  function filled(element, attributes, inside) {
    for (const [name, value] of Object.entries(attributes)) {
      if (value !== undefined && value !== null) element.setAttribute(name, String(value));
    }
    for (const each of inside) element.append(each);
    return element;
  }

  const make = (name, attributes = {}, ...inside) => filled(document.createElement(name), attributes, inside);
  const draw = (name, attributes = {}, ...inside) => filled(document.createElementNS(SVG, name), attributes, inside);

  const counted = (count, word) => `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;

  // -- what is drawn ----------------------------------------------------------------------------------------------

  const axis = draw("svg", { id: "axis", height: AXIS, "aria-hidden": "true" });
  const names = draw("svg", { id: "names" });
  const lanes = draw("svg", { id: "lanes" });
  const layers = Object.fromEntries(["grid", "rows", "spans", "words", "cursor"].map(
    (name) => [name, draw("g", { "aria-hidden": name === "spans" ? null : "true" })],
  ));
  const view = { from: FIRST, to: BEYOND };
  const drawn = []; // every stretch and every mark: {lane, element, begin, end, told}
  let width = 800, held = null;

  function layOut() {
    let y = 0, before = "";
    for (const lane of data.lanes) {
      const group = lane.sort === "node" ? "Nodes" : "Instances and their runners";
      if (group !== before) {
        names.append(draw("text", { class: "heading", x: 0, y: y + 19 }, group));
        y += HEADING;
      } else if (lane.sort === "instance") {
        y += ABOVE_INSTANCE;
      }
      before = group;
      lane.y = y;
      y += ROW;
    }
    for (const each of [names, lanes]) each.setAttribute("height", y + 6);
    layers.height = y + 6;
  }

  function drawLane(lane, number) {
    const middle = lane.y + ROW / 2;
    lane.lit = draw("rect", { class: "row", x: 0, y: lane.y, height: ROW, width: "100%" });
    layers.rows.append(lane.lit);
    lane.name = draw("text", { class: lane.sort, x: lane.sort === "runner" && lane.of ? 16 : 0, y: middle + 4 });
    names.append(lane.name);
    lane.group = draw("g", { id: `lane-${number}`, "data-lane": lane.id, "data-sort": lane.sort });
    lane.items = [];
    const height = HEIGHTS[lane.sort];
    for (const each of lane.stretches) {
      const element = draw("rect", {
        class: "span", y: middle - height / 2, height, rx: 2, role: "img", tabindex: -1,
        "data-status": each.status, "data-begin": each.begin, "data-end": each.end,
        "data-stale": each.stale.length ? each.stale.join(" ") : null,
        "aria-label": `${lane.id}: ${each.status}, records ${each.begin} to ${each.end - 1}`
          + (each.stale.length ? `, ${each.stale.join(", ")}` : ""),
      });
      const item = { lane, element, begin: each.begin, end: each.end, told: each };
      if (each.stale.length) {
        item.hatch = draw("rect", { class: "hatch", y: middle - height / 2, height, rx: 2 });
      }
      add(lane, item);
    }
    for (const each of lane.refused) {
      const element = draw("circle", {
        class: "refused", cy: middle, r: 4.5, role: "img", tabindex: -1, "data-refused": each.index,
        "aria-label": `${lane.id}: a report was refused: ${each.why}`,
      });
      add(lane, { lane, element, begin: each.index, end: each.index + 1, told: each, isMark: true });
    }
    // What comes later lies above what shares its pixels: what is wrong is never hidden.
    const weight = (item) => (item.isMark ? 3 : item.hatch ? 2 : item.told.status === "Failed" ? 1 : 0);
    for (const item of [...lane.items].sort((one, other) => weight(one) - weight(other))) {
      lane.group.append(item.element, ...(item.hatch ? [item.hatch] : []));
    }
    layers.spans.append(lane.group);
  }

  function add(lane, item) {
    item.element.item = item;
    item.place = lane.items.push(item) - 1;
    drawn.push(item);
  }

  // -- the view: which records are between the edges ----------------------------------------------------------------

  const xOf = (index) => ((index - view.from) / (view.to - view.from)) * width;
  const indexAt = (x) => view.from + (x / width) * (view.to - view.from);

  function show(from, to) {
    const size = Math.min(Math.max(to - from, Math.min(2, BEYOND - FIRST)), BEYOND - FIRST);
    view.from = Math.min(Math.max(from, FIRST), BEYOND - size);
    view.to = view.from + size;
    refresh();
  }

  function zoom(factor, around = (view.from + view.to) / 2) {
    const size = (view.to - view.from) * factor;
    const share = (around - view.from) / (view.to - view.from);
    show(around - size * share, around + size * (1 - share));
  }

  const move = (share) => show(view.from + (view.to - view.from) * share, view.to + (view.to - view.from) * share);

  let waiting = false;
  function refresh() {
    if (waiting) return;
    waiting = true;
    requestAnimationFrame(() => { waiting = false; render(); });
  }

  function render() {
    const words = [];
    for (const item of drawn) place(item, words);
    layers.words.replaceChildren(...words);
    drawAxis();
  }

  function place(item, words) {
    const isIn = item.end > view.from && item.begin < view.to;
    for (const each of [item.element, item.hatch]) {
      if (each) isIn ? each.removeAttribute("display") : each.setAttribute("display", "none");
    }
    if (!isIn) return;
    if (item.isMark) {
      item.element.setAttribute("cx", Math.min(Math.max(xOf(item.begin + 0.5), 5), width - 5));
      return;
    }
    // An edge far outside is brought near: a browser draws no rectangle of a million pixels.
    const left = Math.max(xOf(item.begin), -9), right = Math.min(xOf(item.end), width + 9);
    const size = Math.max(right - left - (right - left > 5 ? 1 : 0), 1.5);
    for (const each of [item.element, item.hatch]) {
      if (!each) continue;
      each.setAttribute("x", left.toFixed(2));
      each.setAttribute("width", size.toFixed(2));
    }
    const seen = Math.min(right, width) - Math.max(left, 0);
    if (item.lane.sort === "runner" && seen > 14 + item.told.status.length * 6.5) {
      words.push(draw("text", {
        class: "word", x: (Math.max(left, 0) + 6).toFixed(1), y: item.lane.y + ROW / 2 + 4, "data-of": item.told.status,
        "data-on": item.hatch ? "hatch" : null,
      }, item.told.status));
    }
  }

  function drawAxis() {
    const size = view.to - view.from;
    const rough = Math.max((size * 90) / width, 1), power = 10 ** Math.floor(Math.log10(rough));
    const step = Math.max(1, [1, 2, 5, 10].map((each) => each * power).find((each) => each >= rough));
    const ticks = [], lines = [];
    for (let index = Math.ceil(view.from / step) * step; index < view.to; index += step) {
      const x = xOf(index + 0.5);
      if (x > width) break;
      lines.push(draw("line", { class: "grid", x1: x, x2: x, y1: 0, y2: layers.height }));
      const near = Math.min(Math.max(x, 4 * String(index).length), width - 4 * String(index).length);
      ticks.push(draw("text", { x: near, y: 17 }, index.toLocaleString("en")));
    }
    if (size < BEYOND - FIRST) {
      const all = BEYOND - FIRST;
      const left = ((view.from - FIRST) / all) * width, long = Math.max((size / all) * width, 6);
      ticks.push(draw("rect", { class: "window", x: Math.min(left, width - long), y: AXIS - 4, width: long, height: 3, rx: 1.5 }));
    }
    axis.replaceChildren(...ticks);
    layers.grid.replaceChildren(...lines);
  }

  function fitNames() {
    const letters = Math.floor((names.clientWidth || 240) / LETTER) - 1;
    for (const lane of data.lanes) {
      const room = letters - (lane.sort === "runner" && lane.of ? 2 : 0), half = Math.floor((room - 1) / 2);
      const short = lane.id.length <= room ? lane.id : `${lane.id.slice(0, half)}\u2026${lane.id.slice(-half)}`;
      lane.name.replaceChildren(short, draw("title", {}, lane.id));
    }
  }

  // -- what is told of one ------------------------------------------------------------------------------------------

  const detail = byId("detail");

  function tell(item) {
    for (const each of data.lanes) each.lit.classList.toggle("lit", item !== null && each === item.lane);
    if (item === null) {
      detail.replaceChildren(make("p", { class: "note" },
        "Point at a span, or Tab to the first and step with the arrows. Ctrl and the wheel, + and - zoom; dragging and Shift with an arrow move; 0 shows all."));
      return;
    }
    const list = make("dl");
    const say = (name, text, kind) => {
      if (text !== null && text !== undefined && text !== "") {
        list.append(make("dt", {}, name), make("dd", kind ? { class: kind } : {}, String(text)));
      }
    };
    (item.isMark ? tellMark : tellSpan)(item.told, say);
    const wrong = item.isMark ? [] : data.findings.filter(
      (each) => each.id === item.lane.id && item.told.stale.includes(each.kind) && each.since_index < item.end,
    );
    for (const each of wrong) {
      say(each.kind, each.why, "wrong");
      say("remedy", each.remedy, "id");
    }
    detail.replaceChildren(
      make("h2", {}, swatch(item), item.isMark ? "Report refused" : item.told.status, make("span", { class: "id" }, item.lane.id)),
      list,
    );
  }

  function tellSpan(told, say) {
    const last = told.to_index === null ? data.last_index : told.to_index - 1;
    const until = told.to_index === null ? `${last}, and on` : String(last);
    say("records", `${told.from_index} to ${until} (${counted(last - told.from_index + 1, "record")})`);
    say("time", told.from_at && `${told.from_at}${told.to_at ? ` to ${told.to_at}` : ""}`);
    if (told.row === null) {
      say("began", "before the first record that is drawn");
    } else {
      say("began with", `record ${told.row.index}, ${told.row.type}: ${told.row.what}`);
      say("by", told.row.by && `${told.row.by}${told.row.client ? ` for ${told.row.client}` : ""}`);
      say("follows", told.row.cause !== null ? `record ${told.row.cause}` : null);
    }
    say("error", told.error);
  }

  function tellMark(told, say) {
    say("drawn at", `record ${told.index}; the report is in no log`);
    say("why", told.why);
  }

  function swatch(item) {
    const inside = item.isMark
      ? [draw("circle", { class: "refused", cx: 9, cy: 6, r: 4 })]
      : [draw("rect", { class: "span", width: 18, height: 12, rx: 2, "data-status": item.told.status })];
    if (item.hatch) inside.push(draw("rect", { class: "hatch", width: 18, height: 12, rx: 2 }));
    return draw("svg", { width: 18, height: 12, "aria-hidden": "true" }, ...inside);
  }

  function hold(item) {
    if (held) {
      held.element.classList.remove("held");
      held.element.setAttribute("tabindex", "-1");
    }
    held = item;
    item.element.classList.add("held");
    item.element.setAttribute("tabindex", "0");
    tell(item);
  }

  // -- finding one --------------------------------------------------------------------------------------------------

  function reveal(item) {
    const size = view.to - view.from, own = item.end - item.begin;
    if (item.begin < view.from || item.end > view.to || (own / size) * width < 3) {
      const wanted = (own / size) * width < 3 ? Math.max(own * 12, 20) : Math.max(size, own * 1.2);
      show(item.begin + own / 2 - wanted / 2, item.begin + own / 2 + wanted / 2);
    }
    hold(item); // a window in the background tells of no focus
    item.element.focus({ preventScroll: true });
    const box = item.element.getBoundingClientRect();
    if (box.top < AXIS + 8 || box.bottom > window.innerHeight - detail.offsetHeight - 8) {
      window.scrollBy({ top: box.top - window.innerHeight / 2 + detail.offsetHeight / 2 });
    }
  }

  function find(finding) {
    const lane = data.lanes.find((each) => each.id === finding.id);
    const item = lane && (lane.items.find(
      (each) => !each.isMark && each.told.stale.includes(finding.kind) && each.end > finding.since_index,
    ) || lane.items[0]);
    if (!item) return;
    reveal(item);
    for (const each of lane.items.filter((one) => !one.isMark && one.told.stale.includes(finding.kind))) {
      each.element.classList.add("flash");
      setTimeout(() => each.element.classList.remove("flash"), 2000);
    }
  }

  function step(item, right, down) {
    if (down === 0) return item.lane.items[item.place + right];
    const middle = (Math.max(item.begin, view.from) + Math.min(item.end, view.to)) / 2;
    const away = (each) => Math.max(each.begin - middle, middle - each.end, 0);
    for (let at = data.lanes.indexOf(item.lane) + down; data.lanes[at]; at += down) {
      const { items } = data.lanes[at];
      if (items.length) return items.reduce((best, each) => (away(each) < away(best) ? each : best));
    }
    return undefined;
  }

  // -- the page around it -------------------------------------------------------------------------------------------

  function writeHead() {
    const sorts = ["node", "instance", "runner"].map(
      (sort) => counted(data.lanes.filter((each) => each.sort === sort).length, sort),
    );
    const times = data.first_at ? `, ${data.first_at} to ${data.last_at}` : "";
    byId("summary").textContent =
      `Records ${data.first_index.toLocaleString("en")} to ${data.last_index.toLocaleString("en")}${times}: ${sorts.join(", ")}`;
    const section = byId("findings");
    section.append(make("h2", {}, data.findings.length ? counted(data.findings.length, "finding") : "Nothing is found to be wrong"));
    if (data.findings.length) section.append(make("ol", {}, ...data.findings.map(writeFinding)));
    const notes = [
      data.elsewhere && `${counted(data.elsewhere, "finding")} outside of these records`,
      data.left_out && `The ${data.left_out.toLocaleString("en")} oldest spans that are over are left out; --from and --to draw a part of the log.`,
    ];
    for (const each of notes) if (each) section.append(make("p", { class: "note" }, each));
  }

  function writeFinding(finding) {
    const at = data.lanes.findIndex((each) => each.id === finding.id);
    const name = make(at < 0 ? "span" : "a", { class: "id", href: at < 0 ? null : `#lane-${at}` }, finding.id);
    if (at >= 0) name.addEventListener("click", (event) => { event.preventDefault(); find(finding); });
    const until = finding.until_index === null ? "" : ` until ${finding.until_index}`;
    return make("li", { "data-finding": finding.kind },
      make("p", {}, make("span", { class: "kind" }, finding.kind), name,
        make("span", { class: "when" }, `since record ${finding.since_index}${until}`)),
      make("p", {}, finding.why), make("p", {}, make("code", {}, finding.remedy)));
  }

  function writeLegend() {
    const order = ["Present", "Placed", "Idle", "Connecting", "Connected", "Loading", "Loaded", "WarmingUp", "Ready", "Running", "ShuttingDown", "Failed"];
    const used = new Set(drawn.filter((each) => !each.isMark).map((each) => each.told.status));
    const known = [...order.filter((each) => used.has(each)), ...[...used].filter((each) => !order.includes(each))];
    const entries = known.map((status) => [{ told: { status } }, status]);
    if (drawn.some((each) => each.hatch)) entries.push([{ told: { status: "" }, hatch: true }, "stale"]);
    if (drawn.some((each) => each.isMark)) entries.push([{ isMark: true }, "report refused"]);
    byId("legend").append(...entries.map(([item, word]) => make("li", {}, swatch(item), word)));
  }

  function point(event) {
    const x = event.clientX - lanes.getBoundingClientRect().left;
    const index = Math.min(Math.max(Math.floor(indexAt(x)), FIRST), BEYOND - 1), word = index.toLocaleString("en");
    const half = word.length * 3.6 + 4, near = Math.min(Math.max(x, half), width - half);
    layers.cursor.replaceChildren(draw("line", { class: "here", x1: x, x2: x, y1: 0, y2: layers.height }));
    for (const each of axis.querySelectorAll(".here, .behind")) each.remove();
    axis.append(
      draw("rect", { class: "behind", x: near - half, width: half * 2, y: 4, height: 18 }),
      draw("text", { class: "here", x: near, y: 17 }, word),
    );
  }

  function unpoint() {
    layers.cursor.replaceChildren();
    for (const each of axis.querySelectorAll(".here, .behind")) each.remove();
    tell(held);
  }

  function hearPointer() {
    let dragged = null;
    lanes.addEventListener("pointermove", (event) => {
      point(event);
      if (dragged && Math.abs(event.clientX - dragged.x) > 3) {
        lanes.classList.add("moving");
        const by = ((dragged.x - event.clientX) / width) * (view.to - view.from);
        show(dragged.from + by, dragged.from + by + (view.to - view.from));
      } else if (!dragged && event.target.item) {
        tell(event.target.item);
      }
    });
    lanes.addEventListener("pointerdown", (event) => {
      if (event.button === 0) dragged = { x: event.clientX, from: view.from };
    });
    window.addEventListener("pointerup", () => { dragged = null; lanes.classList.remove("moving"); });
    lanes.addEventListener("pointerleave", unpoint);
    lanes.addEventListener("focusin", (event) => { if (event.target.item) hold(event.target.item); });
    lanes.addEventListener("wheel", (event) => {
      const along = event.shiftKey ? event.deltaY || event.deltaX : event.deltaX;
      if (event.ctrlKey || event.metaKey) {
        zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) * 0.006), indexAt(event.clientX - lanes.getBoundingClientRect().left));
      } else if (along !== 0 && (event.shiftKey || Math.abs(along) > Math.abs(event.deltaY))) {
        move(along / width);
      } else {
        return;
      }
      event.preventDefault();
    }, { passive: false });
  }

  function hearKeys() {
    const around = () => (held && held.end > view.from && held.begin < view.to
      ? (Math.max(held.begin, view.from) + Math.min(held.end, view.to)) / 2 : undefined);
    const keys = {
      "+": () => zoom(1 / 1.6, around()), "=": () => zoom(1 / 1.6, around()), "-": () => zoom(1.6, around()),
      0: () => show(FIRST, BEYOND),
    };
    const arrows = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    document.addEventListener("keydown", (event) => {
      if (event.ctrlKey || event.metaKey || event.altKey) return;
      const focused = document.activeElement && document.activeElement.item;
      if (keys[event.key]) {
        keys[event.key]();
      } else if (arrows[event.key] && focused && !event.shiftKey) {
        const next = step(focused, ...arrows[event.key]);
        if (next) reveal(next);
      } else if (arrows[event.key] && arrows[event.key][0] !== 0) {
        move(arrows[event.key][0] * 0.2);
      } else {
        return;
      }
      event.preventDefault();
    });
    byId("in").addEventListener("click", keys["+"]);
    byId("out").addEventListener("click", keys["-"]);
    byId("all").addEventListener("click", keys[0]);
  }

  function begin() {
    const pattern = draw("pattern", { id: "stale", width: 6, height: 6, patternUnits: "userSpaceOnUse", patternTransform: "rotate(45)" },
      draw("line", { class: "hatch-line", x1: 0, x2: 0, y1: 0, y2: 6 }));
    lanes.append(draw("defs", {}, pattern), layers.grid, layers.rows, layers.spans, layers.words, layers.cursor);
    byId("chart").append(make("div", { id: "corner" }), axis, names, lanes);
    layOut();
    data.lanes.forEach(drawLane);
    writeHead();
    writeLegend();
    tell(null);
    // The first span can be reached by Tab; from there the arrows lead on.
    if (drawn.length) drawn[0].element.setAttribute("tabindex", "0");
    const measure = () => {
      width = lanes.clientWidth || 800;
      fitNames();
      render();
    };
    measure();
    new ResizeObserver(measure).observe(byId("chart"));
    hearPointer();
    hearKeys();
  }

  begin();
})();
