/* Pagewalk's player, the code: drives the pair of panes of its step. The port's line that is about to run is marked, and
   the lines of the same concept on both sides; each pane scrolls to them inside itself, never the page. */
(function () {
  "use strict";
  if (window.pagewalkPanes) return;

  const NEAR = 14; // lines that fit into a pane while its player is open

  const all = (root, selector) => Array.from(root.querySelectorAll(selector));

  class Panes {
    constructor(pair, content) {
      this.pair = pair;
      this.regions = content.regions;
      this.lines = new Map(); // path:line -> the port's line in a pane
      this.linked = new Map(); // concept -> its lines, both sides
      this.now = undefined; // nothing has been shown yet
      this.concept = "";
      this.marked = [];
      this.sides = all(pair, ".pw-side").map((side) => all(side, ".pw-pane")).filter((panes) => panes.length > 1);
      all(pair, ".pw-line").forEach((line) => {
        const pane = line.closest(".pw-pane");
        if (pane.matches(".pw-port, .pw-upstream[data-source='pagewalk']")) this.lines.set(pane.dataset.path + ":" + line.getAttribute("value"), line);
        (line.dataset.links || "").split(/\s+/).filter(Boolean).forEach((link) => {
          if (!this.linked.has(link)) this.linked.set(link, []);
          this.linked.get(link).push(line);
        });
      });
      pair.classList.add("pw-playing");
    }

    /* The concepts of a line of the port, innermost first. */
    conceptsAt(path, line) {
      return (this.regions[path] || []).filter(([first, last]) => first <= line && line <= last).map(([, , id]) => id);
    }

    /* The innermost concept that has lines on both sides; else the innermost that has lines here at all. */
    conceptOf(path, line) {
      const known = this.conceptsAt(path, line).filter((id) => this.linked.has(id));
      const side = (node) => node.closest(".pw-side");
      const both = known.find((id) => this.linked.get(id).some((node) => side(node) !== side(this.linked.get(id)[0])));
      return both || known[0] || "";
    }

    /* `rushing`: only the lines near the place are lit, as many as a pane has room for; the rest when it settles. */
    show(path, line, smooth, rushing) {
      const now = this.lines.get(path + ":" + line) || null;
      const concept = this.conceptOf(path, line);
      const moved = now !== this.now || concept !== this.concept || rushing !== this.rushing;
      if (now !== this.now) {
        if (this.now) this.now.classList.remove("pw-now");
        if (now) now.classList.add("pw-now");
        this.now = now;
      }
      if (!moved) return;
      const wanted = this.linesOf(concept, now, rushing);
      const keep = new Set(wanted);
      this.marked.forEach((node) => { if (!keep.has(node)) node.classList.remove("pw-same"); });
      wanted.forEach((node) => node.classList.add("pw-same"));
      Object.assign(this, { marked: wanted, concept, rushing });
      this.sides.forEach((panes) => this.front(panes));
      this.scroll(smooth);
    }

    /* A concept's lines; in a rush those about the line that runs in its pane, and the first ones in the others. */
    linesOf(concept, now, rushing) {
      const lines = this.linked.get(concept) || [];
      if (!rushing) return lines;
      const panes = new Map();
      lines.forEach((node) => {
        const pane = node.closest(".pw-pane");
        if (!panes.has(pane)) panes.set(pane, []);
        panes.get(pane).push(node);
      });
      return [...panes.values()].flatMap((inside) => {
        const place = Math.max(0, inside.indexOf(now));
        return inside.slice(Math.max(0, place - NEAR / 2), place + NEAR);
      });
    }

    /* Of several panes on a side only the one that is meant is shown; the last one stays where none is. */
    front(panes) {
      const has = (pane) => this.marked.some((node) => pane.contains(node));
      const wanted = panes.find((pane) => this.now && pane.contains(this.now)) || panes.find(has)
        || panes.find((pane) => !pane.classList.contains("pw-away")) || panes[0];
      panes.forEach((pane) => pane.classList.toggle("pw-away", pane !== wanted));
    }

    /* The line that runs in its pane; in every other the first line of the concept. */
    scroll(smooth) {
      const wanted = new Map();
      this.marked.forEach((node) => {
        const pane = node.closest(".pw-pane");
        if (!wanted.has(pane)) wanted.set(pane, node);
      });
      if (this.now) wanted.set(this.now.closest(".pw-pane"), this.now);
      wanted.forEach((node, pane) => {
        const caption = pane.querySelector("figcaption");
        const room = caption ? caption.offsetHeight : 0;
        const box = node.getBoundingClientRect();
        const frame = pane.getBoundingClientRect();
        if (box.top >= frame.top + room && box.bottom <= frame.bottom - 4) return;
        const top = pane.scrollTop + box.top - frame.top - room - (frame.height - room) / 4;
        pane.scrollTo({ top: Math.max(0, top), behavior: smooth ? "smooth" : "auto" });
      });
    }

    close() {
      this.pair.classList.remove("pw-playing");
      all(this.pair, ".pw-now, .pw-same, .pw-away").forEach((node) => node.classList.remove("pw-now", "pw-same", "pw-away"));
    }
  }

  window.pagewalkPanes = { Panes };
})();
