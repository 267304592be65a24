/* Pagewalk's player, the values: the sentence of a moment, the warp's lanes, variables, what runs along, shared memory.
   Each view is made once for a film and thread, and updated for a moment; it touches only what has changed. */
(function () {
  "use strict";
  if (window.pagewalkViews) return;

  const DIGITS = 6;
  const FEW = 8; // elements of an array that are shown in one line

  function node(name, classes, parent, text) {
    const made = document.createElement(name);
    if (classes) made.className = classes;
    if (text !== undefined) made.textContent = text;
    if (parent) parent.append(made);
    return made;
  }

  function put(target, text, title) {
    if (target.textContent !== text) target.textContent = text;
    if (title !== undefined && target.title !== title) target.title = title;
  }

  const tiny = (value) => window.pagewalkTrace.text(value, 4); // in the small cells of lanes and shared memory
  const short = (value) => window.pagewalkTrace.text(value, DIGITS);
  const whole = (value) => (value ? value[0] + " " + window.pagewalkTrace.text(value, 0) : "");

  /* The elements of an array value at a moment: texts, the unseen as a dot. */
  function elements(steps, value, moment, limit, say) {
    const [array, first, ...shape] = value[1];
    const count = shape.reduce((product, size) => product * size, 1);
    return Array.from({ length: Math.min(count, limit) }, (_, i) => {
      const seen = steps.element(array, first + i, moment);
      return seen < 0 ? "·" : say(steps.trace.values[seen]);
    }).concat(count > limit ? ["…"] : []);
  }

  /* A value as its cell shows it, and as its hover says it in full. */
  function shown(steps, number, moment) {
    const { trace } = steps;
    const value = trace.values[number];
    if (!value) return ["", ""];
    if (value[0] !== "array") return [short(value), whole(value)];
    const { space, name } = trace.arrays[value[1][0]];
    if (space !== "local") return [short(value), space + " " + name + " " + short(value)];
    return [elements(steps, value, moment, FEW, short).join(" "), elements(steps, value, moment, 64, (v) => String(v[1])).join(" ")];
  }

  /* ---- the sentence ---- */

  const NAMED = ["block", "kv", "token", "head", "group", "channel", "x"];

  function element(film, array, index) {
    const info = film.trace.arrays[array];
    const { scene } = film.content;
    const pool = info.space === "global" && scene.pools.find((candidate) => candidate.array === info.name);
    let text = info.name + "[" + index + "]";
    if (pool) {
      const place = window.pagewalkDraw.where(pool, index);
      const said = NAMED.filter((axis) => axis in place && pool.axes.find(([name]) => name === axis)[1] > 1);
      text += " (" + said.map((axis) => (axis === "kv" ? "KV"[place.kv] : axis + " " + place[axis])).join(", ") + ")";
    }
    return text;
  }

  function list(trace, numbers) {
    const texts = numbers.slice(0, FEW).map((number) => short(trace.values[number]));
    return texts.join(" ") + (numbers.length > FEW ? " …" : "");
  }

  function changes(film, number) {
    const { trace } = film;
    const said = trace.changed(number).filter(([, value]) => value >= 0 && trace.values[value][0] !== "array");
    return said.map(([name, value]) => name + " = " + short(trace.values[value])).join(", ");
  }

  const SAY = {
    C: (film, number) => {
      const { functions, frames, frameAt } = film.trace;
      const said = changes(film, number);
      return functions[frames[frameAt[number]].fn].name + " begins" + (said ? ": " + said : "");
    },
    L: (film, number) => {
      const said = changes(film, number);
      return said ? "Now " + said : "Comes to line " + film.trace.lineAt[number];
    },
    A: (film, number, row) => {
      const info = film.trace.arrays[row[2]];
      return (info.space === "shared" ? "Shared" : "Local") + " array " + info.name + ": " + info.shape.join(" × ") + " of " + info.dtype;
    },
    R: (film, number, row) => "Reads " + element(film, row[2], row[3]) + ": " + target(film, row[2], row[4]),
    V: (film, number, row) => "Reads " + row[4].length + " elements from " + element(film, row[2], row[3]) + " on: " + list(film.trace, row[4]),
    W: (film, number, row) => "Writes " + short(film.trace.values[row[4]]) + " to " + element(film, row[2], row[3]),
    X: (film, number, row) => film.trace.names[row[2]] + " on " + element(film, row[3], row[4]) + ": " +
      short(film.trace.values[row[5]]) + " becomes " + short(film.trace.values[row[6]]),
    S: (film, number, row) => film.trace.names[row[2]] + (row[3] >= 0 ? " from lane " + row[3] : "") +
      (row[4] >= 0 ? ": gives " + short(film.trace.values[row[4]]) : "") + (row[5] >= 0 ? ", gets " + short(film.trace.values[row[5]]) : ""),
    B: (film, number, row) => "Waits in " + film.trace.names[row[2]] + ", which ends interval " + row[3],
    E: (film, number, row) => {
      const { functions, frames, frameAt } = film.trace;
      const name = functions[frames[frameAt[number]].fn].name;
      const value = film.trace.values[row[2]];
      return name + (value && value[0] !== "none" ? " returns " + short(value) : " ends");
    },
    Z: (film, number, row) => "The thread is done" + (film.trace.names[row[2]] === "returned" ? "" : ": " + film.trace.names[row[2]]),
  };

  /* A value that was read; of the block table, what it means. */
  function target(film, array, number) {
    const { scene } = film.content;
    const { values, arrays } = film.trace;
    const text = short(values[number]);
    if (arrays[array].name !== scene.table || arrays[array].space === "shared") return text;
    if (scene.kind === "blocks") return "block " + text;
    const slot = values[number][1];
    if (slot < 0) return text + ", padding";
    return "slot " + text + (scene.block_size ? ", block " + Math.floor(slot / scene.block_size) + " token " + (slot % scene.block_size) : "");
  }

  function say(film, number) {
    const row = film.trace.rows[number];
    return SAY[row[0]](film, number, row) + ".";
  }

  /* ---- the warp ---- */

  class Lanes {
    constructor(film, steps, parent, chosen) {
      Object.assign(this, { film, steps, variable: "" });
      const head = node("div", "pw-play-head", parent);
      node("h4", "", head, "Warp");
      const label = node("label", "", head);
      node("span", "pw-sr", label, "Value shown in each lane");
      this.select = node("select", "pw-play-variable", label);
      node("option", "", this.select, "what this line does").value = "";
      this.names().forEach((name) => { node("option", "", this.select, name).value = name; });
      this.what = node("span", "pw-play-what", head);
      this.grid = node("div", "pw-lanes", parent);
      this.cells = steps.lanes.map((thread, lane) => {
        const cell = node("button", "pw-lane-cell", this.grid);
        cell.type = "button";
        cell.tabIndex = -1;
        cell.disabled = thread < 0;
        node("span", "pw-lane-number", cell, lane);
        const value = node("span", "pw-lane-value", cell);
        if (thread >= 0) cell.addEventListener("click", () => chosen(thread));
        cell.classList.toggle("pw-focus", thread === steps.focus);
        return { cell, value, lane, thread };
      });
    }

    /* Scalars of any function that this thread went through, in the order in which they came. */
    names() {
      const { trace } = this.film;
      const found = new Set();
      trace.frames.filter((frame) => frame.thread === this.steps.focus).forEach((frame) => {
        frame.variables.forEach((history, name) => {
          if (history.values.some((value) => value >= 0 && trace.values[value][0] !== "array")) found.add(trace.names[name]);
        });
      });
      return found;
    }

    update(moment) {
      const { trace } = this.film;
      const number = this.steps.own[moment];
      const row = trace.rows[number];
      const auto = this.variable ? null : this.access(row);
      const name = this.variable || (auto ? "" : this.latest(moment));
      put(this.what, this.variable ? "" : auto ? auto.title : name);
      this.cells.forEach(({ cell, value, lane, thread }) => {
        const event = thread < 0 ? -1 : this.steps.at[lane][moment];
        const on = thread >= 0 && this.steps.on[lane][moment] === 1;
        const held = event < 0 ? -1 : auto ? (on ? auto.of(trace.rows[event]) : -1) : this.lookup(event, name);
        put(value, held < 0 ? "" : tiny(trace.values[held]), held < 0 ? "" : whole(trace.values[held]));
        cell.classList.toggle("pw-off", !on);
        const label = "lane " + lane + (thread < 0 ? ", not recorded" : on ? "" : ", masked off") + (held < 0 ? "" : ": " + value.textContent);
        if (cell.getAttribute("aria-label") !== label) cell.setAttribute("aria-label", label);
      });
    }

    /* At an access or a shuffle every lane shows what it reads, writes or gets. */
    access(row) {
      const { names, arrays } = this.film.trace;
      if (row[0] === "R" || row[0] === "V") return { title: "reads " + arrays[row[2]].name, of: (r) => (r[0] === "V" ? r[4][0] : r[4]) };
      if (row[0] === "W") return { title: "writes " + arrays[row[2]].name, of: (r) => r[4] };
      if (row[0] === "X") return { title: names[row[2]], of: (r) => r[6] };
      return row[0] === "S" ? { title: names[row[2]] + " gets", of: (r) => r[5] } : null;
    }

    /* The scalar that changed last in this function. */
    latest(moment) {
      const { trace } = this.film;
      const frame = trace.after(this.steps.own[moment]);
      for (let m = moment; m >= 0 && frame >= 0 && m > moment - 200; m -= 1) {
        const number = this.steps.own[m];
        if (trace.frameAt[number] !== frame) continue;
        const scalars = trace.changed(number).filter(([, value]) => value >= 0 && trace.values[value][0] !== "array");
        if (scalars.length) return scalars[scalars.length - 1][0];
      }
      return "";
    }

    /* A variable by its name, in the innermost function that has it. */
    lookup(event, name) {
      const { trace } = this.film;
      const number = trace.names.indexOf(name);
      for (let frame = name ? trace.after(event) : -1; frame >= 0; frame = trace.frames[frame].up) {
        const value = trace.variable(frame, number, event + 1);
        if (value >= 0) return value;
      }
      return -1;
    }
  }

  /* ---- variables ---- */

  class Variables {
    constructor(film, steps, parent) {
      Object.assign(this, { film, steps, lists: new Map(), fn: -1 });
      const head = node("div", "pw-play-head", parent);
      node("h4", "", head, "Variables");
      this.where = node("span", "pw-play-what", head);
      this.host = node("div", "pw-vars", parent);
      this.host.tabIndex = 0;
      this.host.setAttribute("role", "region");
      this.host.setAttribute("aria-label", "Variables of the chosen thread");
    }

    /* One list a function, with all names that the thread ever gives there: so nothing moves when one appears. */
    listOf(fn) {
      if (!this.lists.has(fn)) {
        const { trace } = this.film;
        const host = node("dl", "");
        const rows = new Map();
        trace.frames.filter((frame) => frame.fn === fn && frame.thread === this.steps.focus).forEach((frame) => {
          frame.variables.forEach((history, name) => {
            if (rows.has(name) || !history.values.some((v) => v >= 0 && !this.outer(v))) return;
            const pair = node("div", "pw-var", host);
            node("dt", "", pair, trace.names[name]);
            rows.set(name, { pair, value: node("dd", "", pair) });
          });
        });
        this.lists.set(fn, { host, rows });
      }
      return this.lists.get(fn);
    }

    /* Arrays of the whole grid or block are drawn elsewhere. */
    outer(number) {
      const [type, data] = this.film.trace.values[number];
      return type === "array" && this.film.trace.arrays[data[0]].space !== "local";
    }

    update(moment) {
      const { trace } = this.film;
      const number = this.steps.own[moment];
      const frame = trace.after(number);
      const fn = frame < 0 ? -1 : trace.frames[frame].fn;
      const { host, rows } = this.listOf(fn);
      if (fn !== this.fn) {
        this.host.replaceChildren(host);
        this.fn = fn;
        put(this.where, this.stack(frame));
      }
      const fresh = new Set(frame >= 0 && trace.frameAt[number] === frame ? trace.changed(number).map(([name]) => name) : []);
      rows.forEach(({ pair, value }, name) => {
        const held = frame < 0 ? -1 : trace.variable(frame, name, number + 1);
        const [text, title] = held < 0 ? ["–", "not set"] : shown(this.steps, held, moment);
        put(value, text, title);
        pair.classList.toggle("pw-unset", held < 0);
        pair.classList.toggle("pw-changed", fresh.has(trace.names[name]));
      });
    }

    stack(frame) {
      const { frames, functions } = this.film.trace;
      const names = [];
      for (let at = frame; at >= 0; at = frames[at].up) names.push(functions[frames[at].fn].name);
      return names.length ? "of " + names.join(", called by ") : "";
    }
  }

  /* The running maximum, sum and accumulator. */
  class Running {
    constructor(film, steps, lanes, parent) {
      Object.assign(this, { film, steps, lanes });
      this.rows = film.content.scene.running.map((name) => {
        const row = node("div", "pw-run", parent);
        node("span", "pw-run-name", row, name);
        return { name, row, value: node("span", "pw-run-value", row) };
      });
    }

    update(moment) {
      const number = this.steps.own[moment];
      const fresh = new Set(this.film.trace.changed(number).map(([name]) => name));
      this.rows.forEach(({ name, row, value }) => {
        const held = this.lanes.lookup(number, name);
        const [text, title] = held < 0 ? ["–", "not set"] : shown(this.steps, held, moment);
        put(value, text, title);
        row.classList.toggle("pw-changed", fresh.has(name));
      });
    }
  }

  /* ---- shared memory ---- */

  class Shared {
    constructor(film, steps, parent) {
      Object.assign(this, { film, steps });
      const { trace } = film;
      const [x, y, z] = trace.threads[steps.focus].block;
      const [gx, gy] = trace.launch.grid;
      const block = x + gx * (y + gy * z);
      this.arrays = [];
      trace.arrays.forEach((info, array) => {
        if (info.space === "shared" && info.owner === block) this.arrays.push(this.make(info, array, parent));
      });
    }

    make(info, array, parent) {
      const cells = this.film.trace.cells.get(array) || new Map();
      const size = Math.max(info.shape.reduce((a, b) => a * b, 1), ...[...cells.keys()].map((index) => index + 1));
      const few = size <= 96;
      const box = node("div", "pw-shared", parent);
      node("h5", "", box, info.name);
      node("span", "pw-play-what", box, info.shape.join(" × ") + " " + info.dtype);
      const host = node("div", "pw-cells" + (few ? "" : " pw-cells-many"), box);
      const last = info.shape.length > 1 ? info.shape[info.shape.length - 1] : 0;
      if (!few && last) host.style.setProperty("--pw-columns", last);
      const made = Array.from({ length: size }, () => ({ cell: node("span", "", host), seen: -2 }));
      return { array, few, made };
    }

    update(moment) {
      const { trace } = this.film;
      const now = trace.accessOf(trace.rows[this.steps.own[moment]]);
      this.arrays.forEach(({ array, few, made }) => {
        made.forEach((item, index) => {
          const seen = this.steps.element(array, index, moment);
          const lit = Boolean(now) && now[0] === array && index >= now[1] && index < now[1] + now[2].length;
          if (item.lit !== lit) item.cell.classList.toggle("pw-lit", lit);
          item.lit = lit;
          if (seen === item.seen) return;
          item.seen = seen;
          const value = seen < 0 ? null : trace.values[seen];
          if (few) put(item.cell, value ? tiny(value) : "·");
          item.cell.title = "[" + index + "] " + (value ? whole(value) : "not seen yet");
          item.cell.classList.toggle("pw-has", Boolean(value));
        });
      });
    }
  }

  /* What the colours of a picture mean. */
  function legend(picture) {
    const made = node("p", "pw-legend-line");
    const entries = picture.pools.size ? [["pw-key-now", "this thread now"], ["pw-key-lane", "other lanes now"], ["pw-key-seen", "before"]] : [];
    if (picture.pools.size && picture.entries.length) entries.push(["pw-key-other", "not in this table"]);
    entries.forEach(([mark, text]) => {
      const entry = node("span", "", made);
      node("i", mark, entry);
      entry.append(text + " ");
    });
    return made;
  }

  window.pagewalkViews = { node, put, say, legend, Lanes, Variables, Running, Shared };
})();
