/* Pagewalk's player, the picture: the block table, the pool's blocks slot by slot, and the gather in motion.
   A picture is drawn once a film and thread; a moment only moves marks and turns classes on and off. */
(function () {
  "use strict";
  if (window.pagewalkDraw) return;

  const WIDTH = 460;
  const TABLE = 84; // the width of a table entry
  const POOL = 166; // where the pool begins, beside a table
  const ENTRY = 22;
  const ROW = 14; // a row of slots: one for K and one for V in each block
  const NS = "http://www.w3.org/2000/svg";

  function svg(name, attributes, parent, text) {
    const node = document.createElementNS(NS, name);
    Object.entries(attributes).forEach(([key, value]) => node.setAttribute(key, value));
    if (text !== undefined) node.textContent = text;
    if (parent) parent.append(node);
    return node;
  }

  /* An element's place along the axes of its pool. */
  function where(pool, index) {
    const found = {};
    let rest = index;
    pool.axes.forEach(([name, , stride]) => {
      found[name] = Math.floor(rest / stride);
      rest %= stride;
    });
    return found;
  }

  /* K or V, by the axis that tells them apart or by the array's name. */
  function letter(pool, place) {
    if (place.kv !== undefined) return "KV"[place.kv];
    return pool.array.startsWith("v") ? "V" : "K";
  }

  class Picture {
    constructor(film, steps) {
      this.film = film;
      this.steps = steps;
      this.scene = film.content.scene;
      const arrays = film.trace.arrays;
      const number = (name) => arrays.findIndex((a) => a.name === name && (a.space === "global" || a.space === "const"));
      this.table = this.scene.table ? number(this.scene.table) : -1;
      this.pools = new Map(this.scene.pools.map((pool) => [number(pool.array), pool]));
      this.slots = new Map(); // block:letter:token -> { node, x, y, first }
      this.entries = [];
      this.lanes = [];
      this.left = this.table >= 0 ? POOL : 2;
      this.width = WIDTH - POOL + this.left;
      this.any = this.table >= 0 || this.pools.size > 0;
      if (!this.any) return;
      this.draw();
      this.follow();
    }

    /* ---- drawn once ---- */

    draw() {
      this.node = svg("svg", { class: "pw-svg pw-picture", role: "img", preserveAspectRatio: "xMinYMin meet" });
      this.drawTable();
      const height = Math.max(this.drawPool(), 30 + this.entries.length * ENTRY);
      this.node.setAttribute("viewBox", "0 0 " + (this.pools.size ? this.width : POOL) + " " + (height + 4));
      this.node.classList.toggle("pw-picture-small", !this.pools.size);
      this.node.setAttribute("aria-label", this.label());
      this.edge = svg("path", { class: "pw-edge", d: "" }, this.node);
      this.mark = svg("rect", { class: "pw-lit", width: 10, height: ROW - 2, rx: 2 }, this.node);
      this.dot = svg("circle", { class: "pw-dot", r: 4 }, this.node);
      [this.mark, this.dot].forEach((node) => { node.style.opacity = 0; });
    }

    label() {
      const table = this.table >= 0 ? (this.scene.kind === "slots" ? "The slot mapping" : "The block table") : "";
      const pool = this.pools.size ? this.blocks + " blocks of " + this.size + " slots" : "";
      return [table, pool].filter(Boolean).join(" and ") + ". What is read is said in words above.";
    }

    drawTable() {
      if (this.table < 0) return;
      const [first, count] = this.scene.row;
      const slots = this.scene.kind === "slots";
      const data = this.film.trace.arrays[this.table].data || [];
      svg("text", { x: 2, y: 12, class: "soft small" }, this.node, slots ? "slot mapping" : "block table");
      for (let i = 0; i < count; i += 1) {
        const group = svg("g", { class: "pw-entry" }, this.node);
        const y = 20 + i * ENTRY;
        const value = data[first + i];
        svg("rect", { x: 2, y, width: TABLE, height: ENTRY - 3, rx: 2 }, group);
        svg("text", { x: 8, y: y + 13, class: "soft small mono" }, group, slots ? "t" + i : String(i));
        svg("text", { x: TABLE - 6, y: y + 13, class: "mono pw-end" }, group, value === undefined ? "?" : value);
        this.entries.push({ node: group, x: 2 + TABLE, y: y + (ENTRY - 3) / 2, value });
      }
    }

    drawPool() {
      const pools = [...this.pools.values()];
      if (!pools.length) return 0;
      const sizeOf = (pool, name) => (pool.axes.find((axis) => axis[0] === name) || [name, 1])[1];
      this.blocks = Math.max(...pools.map((pool) => sizeOf(pool, "block")));
      this.size = this.scene.block_size || Math.max(...pools.map((pool) => sizeOf(pool, "token")));
      const rows = pools.flatMap((pool) => (sizeOf(pool, "kv") === 2 ? ["K", "V"] : [letter(pool, {})]));
      const used = new Set(this.entries.map((entry) => (this.scene.kind === "slots" ? Math.floor(entry.value / this.size) : entry.value)));
      const step = Math.min(26, (this.width - this.left - 42) / this.size);
      svg("text", { x: this.left, y: 12, class: "soft small" }, this.node, "pool: " + this.blocks + (this.blocks === 1 ? " block" : " blocks") + " of " + this.size);
      const tall = rows.length * ROW + 7;
      for (let block = 0; block < this.blocks; block += 1) {
        const y = 20 + block * tall;
        const group = svg("g", { class: "pw-block" + (this.entries.length && !used.has(block) ? " pw-other" : "") }, this.node);
        svg("text", { x: this.left + 16, y: y + tall / 2, class: "mono pw-end" }, group, block);
        rows.forEach((name, row) => {
          const top = y + row * ROW;
          svg("text", { x: this.left + 30, y: top + 10, class: "soft small" }, group, name);
          for (let token = 0; token < this.size; token += 1) {
            const x = this.left + 40 + token * step;
            const node = svg("rect", { x: x + 0.5, y: top + 0.5, width: step - 2, height: ROW - 3, rx: 1.5, class: "pw-slot", "data-slot": block + " " + name + " " + token }, group);
            this.slots.set(block + ":" + name + ":" + token, { node, x, y: top, first: Infinity, state: "" });
          }
        });
      }
      this.step = step;
      this.tall = tall;
      return 20 + this.blocks * tall;
    }

    /* ---- where the thread is at each moment ---- */

    /* The slot of an access row, or undefined. */
    slotOf(row) {
      const access = this.film.trace.accessOf(row);
      const pool = access && this.pools.get(access[0]);
      if (!pool) return undefined;
      const place = where(pool, access[1]);
      return this.slots.get(place.block + ":" + letter(pool, place) + ":" + place.token);
    }

    /* The table entry of an access row, or -1. */
    entryOf(row) {
      const access = this.film.trace.accessOf(row);
      if (!access || access[0] !== this.table) return -1;
      const entry = access[1] - this.scene.row[0];
      return entry >= 0 && entry < this.entries.length ? entry : -1;
    }

    /* For every moment the last slot and the last entry; for every slot the first moment at which the warp has been there. */
    follow() {
      const { trace } = this.film;
      const { own, lanes } = this.steps;
      this.slotAt = [];
      this.entryAt = [];
      let slot;
      let entry = -1;
      own.forEach((number) => {
        const row = trace.rows[number];
        const reads = this.entryOf(row);
        if (reads >= 0) {
          entry = reads;
          slot = undefined;
        }
        slot = this.slotOf(row) || slot;
        this.slotAt.push(slot);
        this.entryAt.push(entry);
      });
      lanes.filter((thread) => thread >= 0).forEach((thread) => {
        const reached = this.steps.reached(thread);
        trace.own[thread].forEach((number, place) => {
          const touched = this.slotOf(trace.rows[number]);
          if (touched) touched.first = Math.min(touched.first, reached[place]);
        });
      });
    }

    /* ---- a moment ---- */

    update(moment, moving) {
      if (!this.any) return;
      const { trace } = this.film;
      const row = trace.rows[this.steps.own[moment]];
      const slot = this.slotAt[moment];
      const entry = this.entryAt[moment];
      const reading = this.entryOf(row);
      const touching = this.slotOf(row);
      this.node.classList.toggle("pw-moving", moving);
      this.entries.forEach((item, i) => {
        item.node.classList.toggle("pw-reading", i === reading);
        item.node.classList.toggle("pw-held", i === entry && i !== reading);
      });
      this.slots.forEach((item) => { item.next = item.first <= moment ? "seen" : ""; });
      if (touching) this.others(moment);
      this.slots.forEach((item) => {
        if (item.next !== item.state) {
          item.node.setAttribute("class", "pw-slot" + (item.next ? " pw-" + item.next : ""));
          item.state = item.next;
        }
      });
      this.place(entry, slot, Boolean(touching), row[0] === "W");
    }

    /* The slots of the other lanes at an access. */
    others(moment) {
      this.steps.lanes.forEach((thread, lane) => {
        if (thread < 0 || !this.steps.on[lane][moment]) return;
        const touched = this.slotOf(this.film.trace.rows[this.steps.at[lane][moment]]);
        if (touched) touched.next = "lane";
      });
    }

    place(entry, slot, touching, writing) {
      const from = this.entries[entry];
      const goal = from ? this.goal(from.value) : null;
      this.edge.setAttribute("d", from && goal ? curve(from.x, from.y, goal.x, goal.y) : "");
      this.mark.style.opacity = slot ? 1 : 0;
      this.mark.classList.toggle("pw-past", !touching);
      this.mark.classList.toggle("pw-write", writing);
      if (slot) {
        this.mark.setAttribute("width", this.step);
        this.mark.style.transform = "translate(" + (slot.x - 0.5) + "px," + (slot.y - 0.5) + "px)";
      }
      // What travels: from the entry along the arrow to its block, then to the slot.
      const spot = slot ? { x: slot.x + this.step / 2 - 1, y: slot.y + ROW / 2 - 1 } : from ? { x: from.x, y: from.y } : null;
      this.dot.style.opacity = spot ? 1 : 0;
      if (spot) this.dot.style.transform = "translate(" + spot.x + "px," + spot.y + "px)";
    }

    /* Where the arrow of a table entry ends: at its block, or at its very slot. */
    goal(value) {
      if (!this.pools.size || value === undefined || value < 0) return null;
      const block = this.scene.kind === "slots" ? Math.floor(value / this.size) : value;
      if (block >= this.blocks) return null;
      const y = 20 + block * this.tall + (this.tall - 7) / 2;
      return { x: this.left + 2, y };
    }
  }

  function curve(x1, y1, x2, y2) {
    const middle = (x1 + x2) / 2;
    return "M" + x1 + " " + y1 + " C" + middle + " " + y1 + " " + middle + " " + y2 + " " + (x2 - 6) + " " + y2 +
      " m-4 -3.5 l6 3.5 l-6 3.5";
  }

  window.pagewalkDraw = { Picture, where, letter };
})();
