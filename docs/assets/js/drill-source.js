/* Pagewalk's drills, an upstream file to point into: click a line, shift-click or drag for a range, or the arrow keys with
   Shift. What is chosen is told as text, the same that can be typed. Long files are laid out piece by piece. */
(function () {
  "use strict";
  const drill = window.PagewalkDrill;
  if (!drill || drill.source) return;

  const { node, button, aside, unique } = drill.views;
  const PIECE = 100; // lines that are laid out together
  const PAGE = 20;

  class Source {
    /* `files`: [{ path, name }]; `tell(text)` is called with the lines chosen; `say(text)` speaks. */
    constructor(parent, files, tell, say) {
      this.files = files;
      this.tell = tell;
      this.say = say;
      this.place = node("div", "pw-drill-source", parent);
      this.range = null; // { first, last, anchor }
    }

    /* Show a file; rejects where it cannot be loaded. */
    async open(number) {
      const data = await drill.data(this.files[number].name);
      this.number = number;
      this.data = data;
      this.range = null;
      this.draw();
    }

    draw() {
      const { data } = this;
      const figure = node("figure", "pw-pane pw-upstream pw-drill-pane");
      const caption = node("figcaption", "", figure);
      aside(node("a", "pw-path", caption, data.path), data.href);
      node("span", "pw-rev", caption, data.revision);
      node("span", "pw-licence", caption, data.licence);
      if (data.own) node("span", "pw-drill-hint", caption, "a copy of your own, which was not checked");
      this.pane = figure;
      this.list = node("div", "pw-drill-lines", figure);
      this.list.setAttribute("role", "listbox");
      this.list.setAttribute("aria-multiselectable", "true");
      this.list.setAttribute("aria-label", data.path + ", " + data.lines.length + " lines");
      this.list.tabIndex = 0;
      this.id = unique();
      const html = [];
      for (let from = 0; from < data.lines.length; from += PIECE) {
        const lines = data.lines.slice(from, from + PIECE);
        html.push('<ol class="pw-code highlight" role="group" aria-label="from line ' + (from + 1) + '" style="--pw-lines: ' + lines.length + '">',
          ...lines.map((line, at) => '<li class="pw-line" role="option" aria-selected="false" id="' + this.id + "-" + (from + at + 1) +
            '" value="' + (from + at + 1) + '"' + (line.trim() ? "" : ' aria-label="blank"') + ">" + line + "</li>"), "</ol>");
      }
      this.list.innerHTML = html.join("");
      this.place.replaceChildren(...this.tabs(), figure, this.row());
      this.list.addEventListener("pointerdown", (event) => this.press(event));
      this.list.addEventListener("pointermove", (event) => this.drag(event));
      this.list.addEventListener("keydown", (event) => this.key(event));
    }

    tabs() {
      if (this.files.length < 2) return [];
      const row = node("div", "pw-drill-row");
      this.files.forEach((file, number) => {
        const one = button(row, "file", file.path.split("/").pop());
        one.title = file.path;
        one.setAttribute("aria-pressed", String(number === this.number));
        one.addEventListener("click", () => this.open(number));
      });
      return [row];
    }

    /* For fingers, and for whoever cannot hold Shift. */
    row() {
      const row = node("div", "pw-drill-row pw-drill-ranges");
      this.extending = button(row, "extend", "Extend to the next line that I take");
      this.extending.setAttribute("aria-pressed", "false");
      this.extending.addEventListener("click", () => {
        this.extending.setAttribute("aria-pressed", String(this.extending.getAttribute("aria-pressed") !== "true"));
      });
      node("span", "pw-drill-hint", row, "Click a line; shift-click, drag, or Shift with the arrow keys takes several.");
      return row;
    }

    line(number) { return this.list.querySelector('li[value="' + number + '"]'); }

    static of(event) {
      const line = event.target instanceof Element ? event.target.closest("li[value]") : null;
      return line ? Number(line.getAttribute("value")) : 0;
    }

    press(event) {
      const number = Source.of(event);
      if (!number || event.button !== 0 || this.closed) return;
      const longer = event.shiftKey || this.extending.getAttribute("aria-pressed") === "true";
      this.extending.setAttribute("aria-pressed", "false");
      this.list.focus({ preventScroll: true });
      this.take(longer && this.range ? this.range.anchor : number, number);
      // A finger that moves scrolls.
      if (event.pointerType === "mouse") event.preventDefault();
      this.dragging = event.pointerType === "mouse";
    }

    drag(event) {
      if (!this.dragging) return;
      if (!(event.buttons & 1)) { this.dragging = false; return; }
      const number = Source.of(event);
      if (number && number !== this.cursor) this.take(this.range.anchor, number);
    }

    key(event) {
      if (event.altKey || event.ctrlKey || event.metaKey || this.closed) return;
      const from = this.cursor || 0, end = this.data.lines.length;
      const to = { ArrowDown: from + 1, ArrowUp: from - 1, PageDown: from + PAGE, PageUp: from - PAGE, Home: 1, End: end }[event.key];
      if (to === undefined) return;
      event.preventDefault();
      event.stopPropagation();
      const number = Math.min(end, Math.max(1, to));
      this.take(event.shiftKey && this.range ? this.range.anchor : number, number);
      this.show(number);
    }

    take(anchor, number) {
      this.mark(Math.min(anchor, number), Math.max(anchor, number));
      this.range.anchor = anchor;
      this.cursor = number;
      this.list.setAttribute("aria-activedescendant", this.id + "-" + number);
      this.tell(this.text());
    }

    text() {
      const { first, last } = this.range;
      const name = this.files.length > 1 ? this.data.path + ":" : "";
      return name + (first === last ? first : first + "-" + last);
    }

    mark(first, last) {
      this.list.querySelectorAll(".pw-drill-taken").forEach((line) => {
        line.classList.remove("pw-drill-taken");
        line.setAttribute("aria-selected", "false");
      });
      for (let number = first; number <= Math.min(last, this.data.lines.length); number += 1) {
        const line = this.line(number);
        line.classList.add("pw-drill-taken");
        line.setAttribute("aria-selected", "true");
      }
      this.range = { first, last, anchor: first };
      this.cursor = last;
    }

    /* What was typed is marked, too; other than lines of this file marks nothing. */
    typed(text) {
      const found = /^(?:\S+\s*[:#]\s*)?(?:lines?\s+)?L?(\d+)(?:\s*[-–]\s*L?(\d+))?$/i.exec(text.trim());
      if (!this.list || !found) return;
      const first = Number(found[1]), last = Number(found[2] || first);
      if (first < 1 || last < first || last > this.data.lines.length) return;
      this.mark(first, last);
      this.show(first);
    }

    /* The right lines, once the question is answered. */
    async solve(places) {
      const number = this.files.findIndex((file) => places.some((place) => place.path === file.path));
      if (!this.list || !places.some((place) => place.path === this.data.path)) await this.open(Math.max(0, number));
      this.closed = true;
      this.list.classList.add("pw-drill-closed");
      const here = places.filter((place) => place.path === this.data.path);
      here.forEach((place) => {
        for (let at = place.first; at <= place.last; at += 1) {
          const line = this.line(at);
          if (line) line.classList.add("pw-on");
        }
      });
      this.place.querySelectorAll(".pw-drill-ranges").forEach((row) => row.remove());
      if (here.length) this.show(here[0].first);
    }

    show(number) {
      const line = this.line(number);
      if (!line) return;
      const pane = this.pane.getBoundingClientRect(), caption = this.pane.firstElementChild.offsetHeight;
      // Pieces that were never seen have a guessed height: what is shown is looked at once more when it is there.
      for (let turn = 0; turn < 2; turn += 1) {
        const box = line.getBoundingClientRect();
        if (box.top >= pane.top + caption && box.bottom <= pane.bottom) break;
        const top = this.pane.scrollTop + box.top - pane.top - caption - pane.height / 4;
        this.pane.scrollTo({ top: Math.max(0, top) });
      }
    }
  }

  /* Why a file cannot be pointed into, and where it is for ever. */
  function missing(parent, entry, why) {
    const box = node("div", "pw-drill-missing", parent);
    node("p", "", box, why + " Look there, and type the lines.");
    const list = node("ul", "", box);
    Array.from(new Set(entry.places.map((place) => place.path))).forEach((path) => {
      const place = entry.places.find((one) => one.path === path);
      aside(node("a", "", node("li", "", list), path), place.href.replace(/#.*$/, ""));
    });
  }

  drill.source = { Source, missing };
})();
