// SPDX-License-Identifier: Apache-2.0
// Draws what /metrics says. Every figure here comes from there (the hot keys
// from /hotz), rates and percentiles from two looks at it. Names come from
// outside: they are only ever set as text, never as markup.
"use strict";
(() => {
  const POLL_MS = 2000;
  const KEPT = 300; // looks in a chart: 10 minutes
  const FEWEST = 31; // that a chart has room for: it grows with them
  const HOT_EVERY = 3; // looks
  const TIMEOUT_MS = 8000;
  const SVG = "http://www.w3.org/2000/svg";
  const NONE = "–"; // a figure that is not there

  const $ = (id) => document.getElementById(id);

  // ---- elements ----

  const make = (name, className, text) => {
    const element = document.createElement(name);
    if (className) element.className = className;
    if (text !== undefined) element.textContent = text;
    return element;
  };

  const draw = (name, attributes) => {
    const element = document.createElementNS(SVG, name);
    for (const [key, value] of Object.entries(attributes)) {
      element.setAttribute(key, value);
    }
    return element;
  };

  // Only what changed is touched: a selection of text survives a look.
  const say = (element, text, title, className) => {
    if (element.textContent !== text) element.textContent = text;
    if (title !== undefined && element.title !== title) element.title = title;
    if (className !== undefined && element.className !== className) {
      element.className = className;
    }
  };

  const makeBar = () => {
    const bar = draw("svg", { class: "bar", "aria-hidden": "true" });
    const front = draw("rect", { height: "8", rx: "2", width: "0" });
    bar.append(draw("rect", {
      class: "back", height: "8", rx: "2", width: "100%" }), front);
    bar.show = (share) => front.setAttribute(
      "width", `${100 * Math.min(1, Math.max(0, share || 0))}%`);
    return bar;
  };

  // ---- numbers as text ----

  const is = (n) => typeof n === "number" && Number.isFinite(n);
  const digits = (n) => (n >= 100 || n === 0 ? 0 : n >= 10 ? 1 : 2);
  const scaled = (n, base, units) => {
    let i = 0;
    while (i + 1 < units.length && Number(n.toFixed(digits(n))) >= base) {
      n /= base;
      i++;
    }
    return `${n.toFixed(i === 0 ? 0 : digits(n))} ${units[i]}`.trim();
  };
  const exact = (n) => (is(n) ? n.toLocaleString("en-US",
    { maximumFractionDigits: 9 }) : "");
  const count = (n) => (!is(n) ? NONE : n < 1e6
    ? Math.round(n).toLocaleString("en-US")
    : scaled(n / 1e3, 1e3, ["K", "M", "G", "T", "P", "E"]));
  const rate = (n) => (!is(n) ? NONE : n > 0 && n < 10 ? n.toFixed(1)
    : count(n));
  const bytes = (n) => (!is(n) ? NONE : scaled(
    n, 1024, ["B", "KiB", "MiB", "GiB", "TiB", "PiB"]));
  const byteRate = (n) => (is(n) ? `${bytes(n)}/s` : NONE);
  const seconds = (n) => (!is(n) ? NONE : n === 0 ? "0 s" : n >= 1
    ? `${n.toFixed(digits(n))} s` : n >= 1e-3
      ? `${(n * 1e3).toFixed(digits(n * 1e3))} ms`
      : `${(n * 1e6).toFixed(digits(n * 1e6))} µs`);
  const share = (n) => (is(n) ? `${(100 * n).toFixed(n < 0.1 ? 1 : 0)} %`
    : NONE);
  const span = (s) => (!is(s) ? NONE : s < 100 ? `${Math.round(s)} s`
    : s < 6000 ? `${Math.round(s / 60)} min`
      : s < 172800 ? `${(s / 3600).toFixed(1)} h`
        : `${Math.round(s / 86400)} days`);
  const clock = (unix) => new Date(unix * 1e3).toLocaleString(
    undefined, { dateStyle: "medium", timeStyle: "medium" });

  // ---- /metrics ----

  const LINE = /^([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)/;
  const LABEL = /([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"/g;
  const unescape = (text) => text.replace(
    /\\(.)/g, (_, c) => (c === "n" ? "\n" : c));
  const number = (text) => (text === "+Inf" ? Infinity : Number(text));

  const parse = (text) => {
    const families = new Map();
    for (const line of text.split("\n")) {
      const match = line[0] === "#" ? null : LINE.exec(line);
      if (!match) continue;
      const labels = new Map();
      for (const [, name, value] of (match[2] || "").matchAll(LABEL)) {
        labels.set(name, unescape(value));
      }
      if (!families.has(match[1])) families.set(match[1], []);
      families.get(match[1]).push({ labels, value: number(match[3]) });
    }
    return families;
  };

  // One look. What is not there is undefined, and so is what is made of it.
  class Look {
    constructor(text, at) {
      this.families = parse(text);
      this.at = at; // seconds of a clock that only goes on
    }

    all(name) {
      return this.families.get(name) || [];
    }

    // The sum of the samples that have these labels.
    get(name, wanted = {}) {
      const pairs = Object.entries(wanted);
      let sum;
      for (const { labels, value } of this.all(name)) {
        if (pairs.every(([k, v]) => labels.get(k) === v)) {
          sum = (sum || 0) + value;
        }
      }
      return sum;
    }

    values(name, label) {
      const found = new Set();
      for (const { labels } of this.all(name)) {
        if (labels.has(label)) found.add(labels.get(label));
      }
      return [...found];
    }

    // Of a counter, a second. Nothing where it began anew, but a counter
    // that was not there yet was 0.
    rate(before, name, labels) {
      const now = this.get(name, labels);
      if (!before || !is(now)) return undefined;
      const grown = now - (before.get(name, labels) || 0);
      return grown < 0 ? undefined : grown / (this.at - before.at);
    }

    buckets(op) {
      return this.all("recps_request_duration_seconds_bucket")
        .filter(({ labels }) => labels.get("op") === op)
        .map(({ labels, value }) => [number(labels.get("le")), value])
        .sort((a, b) => a[0] - b[0]);
    }

    // Of the requests since `before`, or of all where there is no before.
    // Within a bucket they are taken to be even on a scale of octaves.
    quantiles(before, op, wanted) {
      const old = new Map(before ? before.buckets(op) : []);
      const grown = this.buckets(op).map(
        ([le, n]) => [le, n - (old.get(le) || 0)]);
      const total = grown.length ? grown[grown.length - 1][1] : 0;
      if (!(total > 0)) return wanted.map(() => undefined);
      return wanted.map((q) => {
        const i = grown.findIndex(([, n]) => n >= q * total);
        const [le, n] = grown[i];
        const [low, under] = i > 0 ? grown[i - 1] : [le / 2, 0];
        if (le === Infinity) return low;
        const part = n > under ? (q * total - under) / (n - under) : 1;
        return low * (le / low) ** part;
      });
    }
  }

  // ---- charts ----

  const QUANTILES = [0.5, 0.99, 0.999];
  const times = (op) => ({
    log: true,
    show: seconds,
    names: ["p50", "p99", "p99.9"],
    of: (look, before) => (before ? look.quantiles(before, op, QUANTILES)
      : QUANTILES.map(() => undefined)),
  });
  const CHARTS = [
    { title: "Keys a second",
      names: ["looked up", "updated"],
      show: rate,
      of: (look, before) => [
        look.rate(before, "recps_keys_looked_up_total"),
        look.rate(before, "recps_gradients_applied_total")] },
    { title: "Time of a lookup", ...times("EMBEDDING_LOOKUP") },
    { title: "Time of a push", ...times("PUSH_GRADIENTS") },
    { title: "Network",
      names: ["received", "sent"],
      show: byteRate,
      base: 1024,
      of: (look, before) => [
        look.rate(before, "recps_received_bytes_total"),
        look.rate(before, "recps_sent_bytes_total")] },
    { title: "Memory",
      names: ["tables", "process", "limit"],
      show: bytes,
      base: 1024,
      dashed: 2,
      of: (look) => [
        look.get("recps_memory_used_bytes"),
        look.get("process_resident_memory_bytes"),
        memoryLimit(look)] },
    { title: "Connections and requests in hand",
      names: ["connections", "requests", "parked"],
      show: count,
      of: (look) => [
        look.get("recps_connections"),
        look.get("recps_queue_depth", { queue: "requests" }),
        look.get("recps_queue_depth", { queue: "parked" })] },
  ];

  // Of the tables, else of the control group, else none.
  const memoryLimit = (look) => look.get("recps_memory_limit_bytes") ||
    look.get("recps_cgroup_memory_limit_bytes") || undefined;

  // The least of 1, 2, 5 times a power (of ten; of bytes: 1, 2, 4 ... 512
  // times a power of 1024) that holds n.
  const roundUp = (n, base) => {
    if (!(n > 0)) return 1;
    if (base === 1024) return 2 ** Math.ceil(Math.log2(n));
    const power = 10 ** Math.floor(Math.log10(n));
    return [1, 2, 5, 10].find((m) => m * power >= n * 0.999999) * power;
  };

  const W = 300; // of a chart's own units, stretched to its place
  const H = 100;
  let pointed = null; // looks back from now, of the pointer

  class Chart {
    constructor(spec) {
      this.spec = spec;
      this.points = []; // the newest last; each a value a name
      this.figure = make("figure", "card chart");
      const legend = make("ul", "legend");
      this.legend = spec.names.map((name, i) => {
        const item = make("li", `k${i}`, `${name} `);
        const value = make("b", "", NONE);
        item.append(value);
        legend.append(item);
        return value;
      });
      this.plot = make("div", "plot");
      this.svg = draw("svg", {
        viewBox: `0 0 ${W} ${H}`, preserveAspectRatio: "none", role: "img",
        "aria-label": spec.title });
      for (const y of [0, H / 2, H]) {
        this.svg.append(draw("line", { x1: 0, x2: W, y1: y, y2: y }));
      }
      this.paths = spec.names.map((_, i) => draw("path", {
        class: `k${i}${spec.dashed === i ? " dashed" : ""}` }));
      this.at = draw("line", { class: "at", y1: 0, y2: H, visibility: "hidden" });
      this.svg.append(...this.paths, this.at);
      this.top = make("span", "top");
      this.middle = make("span", "middle");
      this.plot.append(this.svg, this.top, this.middle);
      this.axis = make("div", "axis");
      this.axis.append(make("span"), make("span", "", "now"));
      this.figure.append(
        make("figcaption", "", spec.title), legend, this.plot, this.axis);
      this.plot.addEventListener("pointermove", (event) => this.point(event));
      this.plot.addEventListener("pointerleave", () => point(null));
    }

    point(event) {
      const box = this.plot.getBoundingClientRect();
      const part = 1 - (event.clientX - box.left) / box.width;
      point(Math.max(0, Math.round(part * (this.room() - 1))));
    }

    add(values) {
      this.points.push(values);
      if (this.points.length > KEPT) this.points.shift();
    }

    // How many looks its width stands for.
    room() {
      return Math.min(KEPT, Math.max(FEWEST, this.points.length));
    }

    // [low, high] of the y axis.
    range() {
      const seen = this.points.flat().filter((v) => is(v) && v >= 0);
      const most = seen.length ? Math.max(...seen) : 0;
      if (!this.spec.log) return [0, roundUp(most, this.spec.base)];
      const least = seen.length ? Math.min(...seen) : 1e-4;
      const low = 10 ** Math.floor(Math.log10(Math.max(least, 1e-7)));
      return [low, Math.max(low * 100,
        10 ** Math.ceil(Math.log10(Math.max(most, 1e-5)) - 1e-9))];
    }

    render() {
      const [low, high] = this.range();
      const { log, show } = this.spec;
      const y = (v) => H * (1 - (log
        ? Math.log(Math.max(v, low) / low) / Math.log(high / low)
        : v / high));
      const last = this.points.length - 1;
      const x = (i) => W * (1 - (last - i) / (this.room() - 1));
      this.paths.forEach((path, k) => {
        let d = "";
        let on = false;
        this.points.forEach((point, i) => {
          if (!is(point[k])) {
            on = false;
            return;
          }
          const place = `${x(i).toFixed(2)} ${y(point[k]).toFixed(2)}`;
          // a point without neighbours is a line of no length: a dot
          d += on ? `L${place}` : `M${place}L${place}`;
          on = true;
        });
        path.setAttribute("d", d);
      });
      say(this.top, show(high));
      say(this.middle, show(log ? Math.sqrt(low * high) : high / 2));
      this.renderPoint();
    }

    renderPoint() {
      const last = this.points.length - 1;
      const i = last - (pointed || 0);
      const values = this.points[i] || [];
      this.legend.forEach((element, k) => say(
        element, this.spec.show(values[k]), exact(values[k])));
      const place = String(W * (1 - (pointed || 0) / (this.room() - 1)));
      this.at.setAttribute("x1", place);
      this.at.setAttribute("x2", place);
      this.at.setAttribute(
        "visibility", pointed === null ? "hidden" : "visible");
      say(this.axis.firstChild, pointed === null
        ? `${span((this.room() - 1) * POLL_MS / 1e3)} ago`
        : `at ${span(pointed * POLL_MS / 1e3)} ago`);
    }
  }

  const charts = CHARTS.map((spec) => new Chart(spec));
  const point = (back) => {
    pointed = back;
    charts.forEach((chart) => chart.renderPoint());
  };

  // ---- tables of figures ----

  // columns: [name, explanation]. show(rows): [[key, [text, title, class]...]]
  class Grid {
    constructor(id, columns) {
      const place = $(id);
      this.columns = columns;
      this.body = place.querySelector("tbody");
      this.table = place.querySelector("table");
      this.none = place.querySelector(".none");
      this.rows = new Map();
      for (const [name, why] of columns) {
        const head = make("th", "", name);
        head.scope = "col";
        if (why) head.title = why;
        place.querySelector("thead tr").append(head);
      }
    }

    row(key) {
      if (!this.rows.has(key)) {
        const row = make("tr");
        this.columns.forEach(([name], i) => {
          const cell = make(i === 0 ? "th" : "td");
          if (i === 0) cell.scope = "row";
          else cell.dataset.name = name;
          row.append(cell);
        });
        this.rows.set(key, row);
      }
      return this.rows.get(key);
    }

    show(rows, none) {
      const keys = new Set(rows.map(([key]) => key));
      for (const [key, row] of this.rows) {
        if (!keys.has(key)) {
          row.remove();
          this.rows.delete(key);
        }
      }
      rows.forEach(([key, ...cells], at) => {
        const row = this.row(key);
        cells.forEach((cell, i) => {
          if (is(cell)) {
            const place = row.children[i];
            if (!place.firstChild) place.append(makeBar());
            place.firstChild.show(cell);
          } else {
            say(row.children[i], ...cell);
          }
        });
        if (this.body.children[at] !== row) {
          this.body.insertBefore(row, this.body.children[at] || null);
        }
      });
      this.table.hidden = rows.length === 0;
      this.none.hidden = rows.length > 0;
      if (none !== undefined) say(this.none, none);
    }
  }

  // Pairs of a name and a figure; facts([[name, text, title, class]...]).
  const facts = (id, list) => {
    const place = $(id).querySelector("dl");
    const known = new Map([...place.querySelectorAll("dt")].map(
      (dt) => [dt.textContent, dt.nextElementSibling]));
    for (const [name, text, title = "", className = ""] of list) {
      if (!known.has(name)) {
        const value = make("dd");
        place.append(make("dt", "", name), value);
        known.set(name, value);
      }
      say(known.get(name), text, title, className);
    }
  };

  const tiles = new Map();
  const tile = (name, value, more, title = "", className = "") => {
    if (!tiles.has(name)) {
      const box = make("div", "tile");
      const parts = [make("p", "name", name), make("p", "value"),
        make("p", "more")];
      box.append(...parts);
      $("tiles").append(box);
      tiles.set(name, parts);
    }
    const [, valueElement, moreElement] = tiles.get(name);
    say(valueElement, value, title, `value ${className}`.trim());
    say(moreElement, more, more);
  };

  const tablesGrid = new Grid("tables", [
    ["Table"], ["Rows"], ["Bytes", "Memory, the index included"],
    ["Bytes a row"], ["Lookups/s", "Keys looked up a second"],
    ["Missing", "Of the keys looked up so far, those without a row"],
    ["Updates/s", "Optimizer steps of rows a second"],
    ["Admitted", "Rows that were made"],
    ["Pending", "Keys that are counted and have no row yet"],
    ["Evicted", "Rows evicted, cold or because there was no room"],
    ["Rejected", "New keys that found no room"]]);
  const requestsGrid = new Grid("requests", [
    ["Request"], ["A second"], ["Answered"],
    ["Not OK", "Answers with another status than OK"],
    ["p50", "Of all since the start"], ["p99", "Of all since the start"],
    ["p99.9", "Of all since the start"]]);
  const hotGrid = new Grid("hot", [
    ["Key"], ["Pushes", "About; older ones fade"],
    ["±", "At most so many too many"], [""]]);

  // ---- what a look shows ----

  const ratio = (a, b) => (is(a) && b > 0 ? a / b : undefined);
  const figure = (n, show) => [show(n), exact(n)];
  const alarm = (n, show) => [show(n), exact(n), n > 0 ? "warn" : ""];

  const showTables = (look, before) => {
    const names = look.values("recps_rows", "table");
    tablesGrid.show(names.map((table) => {
      const get = (name) => look.get(name, { table });
      const rows = get("recps_rows");
      const size = get("recps_table_bytes");
      const evicted = (reason) => look.get(
        "recps_rows_evicted_total", { table, reason });
      return [table, [table, ""], figure(rows, count), figure(size, bytes),
        figure(ratio(size, rows), (n) => (is(n) ? n.toFixed(1) : NONE)),
        figure(look.rate(before, "recps_keys_looked_up_total", { table }),
          rate),
        figure(ratio(get("recps_keys_missing_total"),
          get("recps_keys_looked_up_total")), share),
        figure(look.rate(before, "recps_gradients_applied_total", { table }),
          rate),
        figure(get("recps_rows_inserted_total"), count),
        figure(get("recps_pending_keys"), count),
        [count(get("recps_rows_evicted_total")),
          `${exact(evicted("cold")) || "?"} cold, ` +
          `${exact(evicted("full")) || "?"} for want of room`],
        alarm(get("recps_rows_rejected_total"), count)];
    }));
    chooseTables(names);
  };

  const showRequests = (look, before) => {
    const name = "recps_requests_total";
    requestsGrid.show(look.values(name, "op").map((op) => {
      const all = look.get(name, { op });
      const fine = look.get(name, { op, code: "OK" }) || 0;
      const codes = look.all(name).filter(({ labels }) =>
        labels.get("op") === op && labels.get("code") !== "OK");
      return [op, [op, ""], figure(look.rate(before, name, { op }), rate),
        figure(all, count),
        [count(all - fine), codes.map(({ labels, value }) =>
          `${labels.get("code")} ${exact(value)}`).join(", ")],
        ...look.quantiles(null, op, QUANTILES).map(
          (q) => figure(q, seconds))];
    }));
  };

  const showTiles = (look, before) => {
    const used = look.get("recps_memory_used_bytes");
    const limit = memoryLimit(look);
    const full = ratio(used, limit);
    const times = (op) => (before
      ? look.quantiles(before, op, QUANTILES) : [])[1];
    const lag = look.all("recps_event_loop_lag_seconds")
      .map(({ value }) => value);
    const most = lag.length ? Math.max(...lag) : undefined;
    const open = look.get("recps_connections");
    const saved = look.get("recps_checkpoint_last_success_timestamp_seconds");
    tile("Rows", count(look.get("recps_rows")),
      `${look.values("recps_rows", "table").length} tables`,
      exact(look.get("recps_rows")));
    tile("Memory of tables", bytes(used), is(limit)
      ? `${share(full)} of ${bytes(limit)}` : "no limit", exact(used),
    full > 0.9 ? "warn" : "");
    tile("Lookups", rate(look.rate(before, "recps_keys_looked_up_total")),
      "keys a second");
    tile("Updates", rate(look.rate(before, "recps_gradients_applied_total")),
      "rows a second");
    tile("Lookup p99", seconds(times("EMBEDDING_LOOKUP")),
      `push ${seconds(times("PUSH_GRADIENTS"))}`);
    tile("Connections", count(open),
      `of ${count(look.get("recps_connections_limit"))}`, exact(open));
    tile("Loop lag", seconds(most), `${lag.length} loops`, exact(most),
      most > 0.5 ? "warn" : "");
    tile("Step", count(look.get("recps_step")), saved > 0
      ? `saved ${span(Date.now() / 1e3 - saved)} ago` : "not saved yet",
    exact(look.get("recps_step")));
  };

  const showCheckpoints = (look) => {
    const get = (name, labels) => look.get(`recps_${name}`, labels);
    const saved = get("checkpoint_last_success_timestamp_seconds");
    const busy = (what) => get("checkpoint_in_progress", { what }) > 0;
    const read = get("restore_rows_read");
    const all = get("restore_rows_expected");
    const any = saved > 0;
    facts("checkpoints", [
      ...look.all("recps_serving_step").map(({ value }) => [
        "Serving", `step ${count(value)}`, exact(value)]),
      ...look.all("recps_serving_age_seconds").map(({ value }) => [
        "Which was saved", `${span(value)} ago`]),
      ...look.all("recps_serving_load_failures_total").map(({ value }) => [
        "Passed over", ...alarm(value, count)]),
      ["Now", busy("save") ? "one is being written"
        : get("checkpoint_open") > 0 ? "one is begun" : busy("restore")
        ? `restoring: ${share(ratio(read, all))} of ${count(all)} rows`
        : "none in hand"],
      ["Last one", any ? `${span(Date.now() / 1e3 - saved)} ago` : is(saved)
        ? "none since the start" : NONE, any ? clock(saved) : ""],
      ["It took", any ? seconds(get("checkpoint_duration_seconds")) : NONE],
      ["Its files", any ? `${bytes(get("checkpoint_bytes"))}, ` +
        (get("checkpoint_is_delta") > 0 ? "a delta" : "full") : NONE,
        exact(get("checkpoint_bytes"))],
      ["Stood still for it", any
        ? seconds(get("checkpoint_cut_pause_seconds")) : NONE],
      ["Save buffer", `${bytes(get("save_buffer_bytes"))} of ` +
        bytes(get("save_buffer_limit_bytes")),
        exact(get("save_buffer_bytes"))],
      ["Waits for it", ...figure(get("save_buffer_waits_total"), count)],
      ["Committed", ...figure(get("checkpoints_total"), count)],
      ["Failed", ...alarm(get("checkpoint_failures_total"), count)],
      ["Restores", ...figure(get("restores_total"), count)],
      ["Restores failed", ...alarm(get("restore_failures_total"), count)],
      ["Last restore took", get("restores_total") > 0
        ? seconds(get("restore_duration_seconds")) : NONE],
      ["Epoch", ...figure(get("epoch"), count)]]);
  };

  const showConnections = (look) => {
    const get = (name, labels) => look.get(`recps_${name}`, labels);
    const refused = look.all("recps_connections_refused_total");
    const queue = (name) => figure(
      get("queue_depth", { queue: name }), count);
    facts("connections", [
      ["Open", `${count(get("connections"))} of ` +
        count(get("connections_limit"))],
      ...look.all("recps_job_info").map(({ labels }) => [
        "Mode", labels.get("mode") || NONE]),
      ...look.all("recps_replicas").map(({ labels, value }) => [
        `Replicas ${(labels.get("state") || "?").replace("_", " ")}`,
        count(value), exact(value)]),
      ...look.all("recps_replicas_behind_steps").map(({ value }) => [
        "Slowest replica", `${count(value)} steps behind`, exact(value)]),
      ...look.all("recps_transport_connections").map(({ labels, value }) => [
        `Over ${labels.get("transport") || "?"}`, count(value), exact(value)]),
      ["Served so far", ...figure(get("connections_accepted_total"), count)],
      ["Requests in hand", ...queue("requests")],
      ["Of them waiting for others", ...queue("parked")],
      ["Waiting for the writer", ...queue("writer")],
      ["Unsent replies", ...figure(get("unsent_bytes"), bytes)],
      ["Without the token", ...alarm(get("auth_failures_total"), count)],
      ...refused.map(({ labels, value }) => [
        `Refused: ${(labels.get("reason") || "?").replaceAll("_", " ")}`,
        ...alarm(value, count)])]);
  };

  const memoryBar = makeBar();
  const showMemory = (look) => {
    const get = (name) => look.get(name);
    const used = get("recps_memory_used_bytes");
    const limit = memoryLimit(look);
    const none = (n) => (n === 0 ? "none" : bytes(n));
    facts("memory", [
      ["Tables", ...figure(used, bytes)],
      ["Of them, indices", ...figure(get("recps_table_index_bytes"), bytes)],
      ["Of them, admission",
        ...figure(get("recps_table_admission_bytes"), bytes)],
      ["Shared with clients", ...figure(get("recps_shm_bytes"), bytes)],
      ["Limit of the tables",
        ...figure(get("recps_memory_limit_bytes"), none)],
      ["Process, in RAM",
        ...figure(get("process_resident_memory_bytes"), bytes)],
      ["Limit, control group",
        ...figure(get("recps_cgroup_memory_limit_bytes"), none)],
      ["Open files", `${count(get("process_open_fds"))} of ` +
        count(get("process_max_fds"))],
      ["Threads", ...figure(get("process_threads"), count)]]);
    memoryBar.show(ratio(used, limit));
    memoryBar.style.display = is(limit) ? "" : "none";
  };
  $("memory").querySelector("dl").prepend(memoryBar);

  // ---- hot keys ----

  let hotFor = ""; // the table whose hot keys are shown
  const chooseTables = (names) => {
    const list = $("hot-table");
    const had = [...list.options].map((option) => option.value);
    if (had.join("\n") !== names.join("\n")) {
      list.replaceChildren(...names.map((name) => {
        const option = make("option", "", name);
        option.value = name;
        return option;
      }));
      if (names.includes(hotFor)) list.value = hotFor;
    }
    list.hidden = names.length === 0;
    hotFor = list.value;
  };

  const showHot = async () => {
    const table = hotFor;
    if (!table) {
      hotGrid.show([], "There are no tables yet.");
      return;
    }
    const answer = await ask(`/hotz?table=${encodeURIComponent(table)}`);
    if (table !== hotFor) return;
    if (!answer.ok) {
      hotGrid.show([], answer.text.trim());
      return;
    }
    const keys = JSON.parse(answer.text).keys;
    const most = keys.length ? Number(keys[0][1]) : 0;
    hotGrid.show(keys.map(([key, pushes, error]) => [key, [key, ""],
      figure(Number(pushes), count), figure(Number(error), count),
      ratio(Number(pushes), most) || 0]),
    "No key of it was seen in a push yet (one in 64 is looked at).");
  };
  $("hot-table").addEventListener("change", () => {
    hotFor = $("hot-table").value;
    showHot().catch(() => {});
  });

  // ---- looking ----

  const ask = async (path) => {
    const answer = await fetch(path, {
      cache: "no-store", signal: AbortSignal.timeout(TIMEOUT_MS) });
    return { ok: answer.ok, text: await answer.text() };
  };

  const notice = (text) => {
    $("notice").hidden = !text;
    say($("notice"), text);
  };

  const state = (text, className) =>
    say($("state"), text, "", `pill ${className}`);

  // Who this is; asked for again when another process answers.
  let incarnation;
  const showWho = async (look) => {
    const began = look.get("process_start_time_seconds");
    const build = look.all("recps_build_info")[0];
    if (began === incarnation && $("who").dataset.known) {
      return;
    }
    incarnation = began;
    const answer = await ask("/configz");
    const config = answer.ok ? JSON.parse(answer.text) : {};
    const { role, index, n_ps: servers } = config.cluster || {};
    const job = ((config.options || {}).job_id || {}).value;
    const name = role === undefined ? "recpsd" : servers > 1
      ? `${role} ${index} of ${servers}` : role;
    document.title = `${name} · recpsd`;
    say($("who"), [name, job && `job ${job}`, config.listening,
      build && `recpsd ${build.labels.get("version")}`,
      is(began) && `since ${clock(began)}`].filter(Boolean).join(" · "));
    $("who").dataset.known = "yes";
  };

  let before = null;
  let looks = 0;
  let heard = null; // Date of the last answer

  const showState = async (look) => {
    const ready = look.get("recps_ready");
    if (ready === 1) state("ready", "good");
    else if (ready === undefined) state("up", "");
    else state("not ready", "bad");
    notice(ready === 0
      ? `Not ready: ${(await ask("/readyz")).text.trim()}` : "");
  };

  const show = async (look) => {
    showTiles(look, before);
    charts.forEach((chart) => {
      chart.add(chart.spec.of(look, before));
      chart.render();
    });
    showTables(look, before);
    showRequests(look, before);
    showCheckpoints(look);
    showConnections(look);
    showMemory(look);
    say($("when"), `${heard.toLocaleTimeString()}, every ` +
      `${POLL_MS / 1e3} s; percentiles are read off buckets, four an ` +
      "octave");
    before = look;
    await showState(look);
    await showWho(look);
    if (looks % HOT_EVERY === 0) await showHot();
  };

  const miss = (error) => {
    state("no answer", "bad");
    notice(`No answer (${error.message || error})` + (heard
      ? `; the figures are those of ${heard.toLocaleTimeString()}.` : "."));
    charts.forEach((chart) => {
      chart.add(chart.spec.names.map(() => undefined));
      chart.render();
    });
    before = null;
  };

  const turn = async () => {
    const begun = performance.now();
    try {
      const answer = await ask("/metrics");
      if (!answer.ok) throw new Error(answer.text.trim());
      heard = new Date();
      await show(new Look(answer.text, performance.now() / 1e3));
      document.body.dataset.looks = String(++looks);
    } catch (error) {
      miss(error);
    }
    setTimeout(turn, Math.max(200, POLL_MS - (performance.now() - begun)));
  };

  $("charts").append(...charts.map((chart) => chart.figure));
  turn();
})();
