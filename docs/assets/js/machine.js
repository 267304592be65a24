/* Machine code: a line of ours, upstream's lines of its concept, and its instructions light up together.
   A line is known by its number (data-l), a concept by its name (data-links). Everything is delegated from the document.
   Without this script both listings stand below each other, each instruction with the number of its line. */
(function () {
  "use strict";
  if (window.pagewalkMachine) return;

  const AREA = ".pw-machine";
  const TARGET = ".pw-machine li[data-l], .pw-machine .pw-line[data-links]";
  const LISTINGS = { ptx: "PTX", sass: "SASS" };
  const tables = new WeakMap(); // area -> what belongs to each number and to each concept
  const pins = new WeakMap(); // area -> the element that the reader asked to keep
  let scrollTimer = 0;

  const all = (root, selector) => Array.from(root.querySelectorAll(selector));
  const closest = (event, selector) => (event.target instanceof Element ? event.target.closest(selector) : null);
  const sideOf = (element) => element.closest(".pw-side");
  const linksOf = (line) => (line.dataset.links || "").split(/\s+/).filter(Boolean);

  function add(map, key, element) {
    if (!map.has(key)) map.set(key, []);
    map.get(key).push(element);
  }

  /* Made once a page: thousands of runs are looked up at each move of the pointer. */
  function tableOf(area) {
    if (!tables.has(area)) {
      const table = { runs: new Map(), ports: new Map(), upstream: new Map(), ours: new Map() };
      all(area, ".pw-rows li[data-l]").forEach((run) => add(table.runs, run.dataset.l, run));
      all(area, ".pw-side-port .pw-line").forEach((line) => {
        if (line.dataset.l !== undefined) add(table.ports, line.dataset.l, line);
        linksOf(line).forEach((link) => add(table.ours, link, line));
      });
      all(area, ".pw-side-upstream .pw-line").forEach((line) => {
        linksOf(line).forEach((link) => add(table.upstream, link, line));
      });
      tables.set(area, table);
    }
    return tables.get(area);
  }

  const got = (map, key) => map.get(key) || [];

  /* All that belongs to an element: itself and its like on the other two sides, and the concept that ties them. */
  function family(area, element) {
    const table = tableOf(area);
    const number = element.dataset.l;
    if (number === undefined && element.closest(".pw-side-upstream")) {
      const links = linksOf(element);
      const link = links.find((name) => table.ours.has(name)) || links[0];
      const ours = got(table.ours, link);
      const numbers = new Set(ours.map((line) => line.dataset.l).filter((found) => found !== undefined));
      const runs = Array.from(numbers).flatMap((found) => got(table.runs, found));
      return { link: link, upstream: got(table.upstream, link), ours: ours, runs: runs };
    }
    const ours = number === undefined ? [element] : got(table.ports, number);
    const links = ours.flatMap(linksOf);
    const link = links.find((name) => table.upstream.has(name)) || links[0];
    return { link: link, upstream: got(table.upstream, link), ours: ours, runs: got(table.runs, number) };
  }

  function rowsOf(runs, listing) {
    return runs
      .filter((run) => run.closest(".pw-listing").dataset.listing === listing)
      .reduce((sum, run) => sum + run.textContent.split("\n").length, 0);
  }

  const counted = (count, word) => count + " " + word + (count === 1 ? "" : "s");

  function words(area, found, pinned) {
    const titles = JSON.parse(area.dataset.titles || "{}");
    const parts = [
      found.ours.length === 1 ? "our line " + found.ours[0].getAttribute("value") : counted(found.ours.length, "line") + " of ours",
      ...Object.entries(LISTINGS).map(([name, said]) => rowsOf(found.runs, name) + " " + said),
      counted(found.upstream.length, "upstream line"),
    ];
    const title = found.link ? ": " + (titles[found.link] || found.link) : "";
    return parts.join(", ") + title + (pinned ? " (kept; Escape lets go)" : "");
  }

  function announce(area, text) {
    const status = area.querySelector(".pw-status");
    if (status && status.textContent !== text) status.textContent = text;
  }

  function clear(area) {
    window.clearTimeout(scrollTimer);
    all(area, ".pw-on").forEach((element) => element.classList.remove("pw-on"));
    area.classList.remove("pw-pinned");
    announce(area, "");
  }

  /* Each column scrolls by itself; a long way is jumped, since thousands of rows would fly past. */
  function bringIntoView(element) {
    const side = sideOf(element);
    const caption = element.closest(".pw-pane").querySelector("figcaption");
    const frame = side.getBoundingClientRect();
    const top = frame.top + (caption ? caption.offsetHeight : 0);
    const box = element.getBoundingClientRect();
    if (box.top >= top && Math.min(box.bottom, box.top + 20) <= frame.bottom) return;
    const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    const way = box.top - top - (frame.bottom - top) / 4;
    const far = Math.abs(way) > 2 * side.clientHeight;
    side.scrollBy({ top: way, behavior: calm || far ? "auto" : "smooth" });
  }

  function show(area, element) {
    clear(area);
    const found = family(area, element);
    const lit = [...found.upstream, ...found.ours, ...found.runs];
    lit.forEach((one) => one.classList.add("pw-on"));
    const pinned = pins.get(area) === element;
    area.classList.toggle("pw-pinned", pinned);
    announce(area, words(area, found, pinned));
    scrollTimer = window.setTimeout(() => {
      all(area, ".pw-side").forEach((side) => {
        const first = side === sideOf(element) ? null : side.querySelector(".pw-pane:not([hidden]) .pw-on");
        if (first) bringIntoView(first);
      });
    }, 60);
  }

  function pin(area, element) {
    const same = pins.has(area) && pins.get(area) === element;
    if (same) pins.delete(area);
    else pins.set(area, element);
    if (same) clear(area);
    else show(area, element);
  }

  function over(event) {
    const element = closest(event, TARGET);
    if (element && !pins.has(element.closest(AREA))) show(element.closest(AREA), element);
  }

  function out(event) {
    const element = closest(event, TARGET);
    if (!element) return;
    const area = element.closest(AREA);
    const goal = event.relatedTarget instanceof Element ? event.relatedTarget.closest(TARGET) : null;
    if (pins.has(area) || (goal && goal.closest(AREA) === area)) return;
    const focused = area.querySelector("li:focus-visible");
    if (focused && event.type === "pointerout") show(area, focused);
    else clear(area);
  }

  /* Up and down go through a pane; only one element of a listing can be tabbed to, so that Tab leads on. */
  function move(element, step) {
    const pane = element.closest(".pw-pane");
    const stops = all(pane, "li").filter((one) => one.matches(TARGET));
    const next = stops[stops.indexOf(element) + step];
    if (!next) return false;
    if (pane.classList.contains("pw-listing")) {
      element.removeAttribute("tabindex");
      next.tabIndex = 0;
    } else if (!next.hasAttribute("tabindex")) {
      next.tabIndex = -1;
    }
    next.focus();
    return true;
  }

  function keydown(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") {
      all(document, AREA).forEach((area) => {
        pins.delete(area);
        clear(area);
      });
      return;
    }
    const active = document.activeElement;
    const element = active && active.matches(TARGET) ? active : null;
    if (!element) return;
    if (event.key === "Enter" || event.key === " ") {
      pin(element.closest(AREA), element);
      event.preventDefault();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (move(element, event.key === "ArrowDown" ? 1 : -1)) event.preventDefault();
    }
  }

  function click(event) {
    const element = closest(event, TARGET);
    if (!element || closest(event, "a")) return;
    if (String(window.getSelection()).length > 0) return; // the reader is copying text
    pin(element.closest(AREA), element);
  }

  function choose(area, listing) {
    all(area, ".pw-listing").forEach((figure) => {
      figure.hidden = figure.dataset.listing !== listing;
    });
    const lit = area.querySelector(".pw-listing:not([hidden]) .pw-on");
    if (lit) bringIntoView(lit);
  }

  function bar(area) {
    const made = document.createElement("div");
    made.className = "pw-machine-bar";
    const choice = document.createElement("fieldset");
    choice.setAttribute("aria-label", "Listing");
    Object.entries(LISTINGS).forEach(([name, said], index) => {
      const label = document.createElement("label");
      const radio = document.createElement("input");
      radio.type = "radio";
      radio.name = area.id + "-listing";
      radio.value = name;
      radio.checked = index === 0;
      label.append(radio, said);
      choice.append(label);
    });
    const status = document.createElement("p");
    status.className = "pw-status";
    status.setAttribute("role", "status");
    status.setAttribute("aria-live", "polite");
    made.append(choice, status);
    return made;
  }

  function changed(event) {
    const radio = closest(event, ".pw-machine-bar input");
    if (radio) choose(radio.closest(AREA), radio.value);
  }

  function page() {
    all(document, AREA).forEach((area) => {
      if (area.querySelector(".pw-machine-bar")) return;
      area.append(bar(area));
      choose(area, "ptx");
    });
  }

  document.addEventListener("pointerover", (event) => event.pointerType === "touch" || over(event));
  document.addEventListener("pointerout", (event) => event.pointerType === "touch" || out(event));
  document.addEventListener("focusin", over);
  document.addEventListener("focusout", out);
  document.addEventListener("keydown", keydown);
  document.addEventListener("click", click);
  document.addEventListener("change", changed);

  window.pagewalkMachine = { page: page };
  if (window.document$ && window.document$.subscribe) window.document$.subscribe(page);
  else if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", page);
  else page();
})();
