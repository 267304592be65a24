/* Pagewalk: lights the lines that belong together, on both sides of a pair of panes.
   Everything is delegated from the document, once; after instant navigation only the page's own marks are set up again.
   Without this script the panes, the tables and the links are all there and readable. */
(function () {
  "use strict";
  if (window.pagewalk) return;

  const LINKED = '.pw-pair .pw-line[data-links]:not([data-links=""])';
  const pins = new WeakMap(); // pair -> the link that is pinned there
  let scrollTimer = 0;

  const all = (root, selector) => Array.from(root.querySelectorAll(selector));
  const linksOf = (line) => line.dataset.links.split(/\s+/).filter(Boolean);
  const linesOf = (pair, link) => all(pair, LINKED).filter((line) => linksOf(line).includes(link));
  const sideOf = (line) => line.closest(".pw-side");
  const closest = (event, selector) => (event.target instanceof Element ? event.target.closest(selector) : null);

  /* The innermost link that has lines on the other side too; the innermost of all where none has. */
  function linkOf(line) {
    const pair = line.closest(".pw-pair");
    const links = linksOf(line);
    return links.find((link) => linesOf(pair, link).some((other) => sideOf(other) !== sideOf(line))) || links[0];
  }

  function titleOf(pair, link) {
    const titles = JSON.parse(pair.dataset.titles || "{}");
    return titles[link] || link;
  }

  function announce(pair, text) {
    const status = pair.querySelector(".pw-status");
    if (status && status.textContent !== text) status.textContent = text;
  }

  function chipsOf(pair) {
    return all(document, "a.pw-chip[data-pair]").filter((chip) => chip.dataset.pair === pair.id);
  }

  function clear(pair) {
    window.clearTimeout(scrollTimer);
    all(pair, ".pw-on").forEach((line) => line.classList.remove("pw-on"));
    chipsOf(pair).forEach((chip) => chip.classList.remove("pw-on"));
    pair.classList.remove("pw-pinned");
    announce(pair, "");
  }

  function bringIntoView(line) {
    const pane = line.closest(".pw-pane");
    const caption = pane.querySelector("figcaption");
    const top = pane.getBoundingClientRect().top + (caption ? caption.offsetHeight : 0);
    const bottom = pane.getBoundingClientRect().bottom;
    const box = line.getBoundingClientRect();
    if (box.top >= top && box.bottom <= bottom) return;
    const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
    const wanted = pane.scrollTop + box.top - top - (bottom - top) / 4;
    pane.scrollTo({ top: Math.max(0, wanted), behavior: calm ? "auto" : "smooth" });
  }

  /* Light every line of `link`, and show the first of them in each pane but the one that the reader is in. */
  function show(pair, link, from) {
    clear(pair);
    const lines = linesOf(pair, link);
    lines.forEach((line) => line.classList.add("pw-on"));
    chipsOf(pair).forEach((chip) => chip.classList.toggle("pw-on", chip.dataset.concept === link));
    const pinned = pins.get(pair) === link;
    pair.classList.toggle("pw-pinned", pinned);
    const count = lines.length === 1 ? "1 line" : lines.length + " lines";
    announce(pair, count + " linked: " + titleOf(pair, link) + (pinned ? " (kept; Escape lets go)" : ""));
    const here = from ? from.closest(".pw-pane") : null;
    scrollTimer = window.setTimeout(() => {
      all(pair, ".pw-pane").forEach((pane) => {
        const first = pane === here ? null : pane.querySelector(".pw-on");
        if (first) bringIntoView(first);
      });
    }, 60);
  }

  function pin(pair, link, from) {
    if (pins.get(pair) === link) {
      pins.delete(pair);
      clear(pair);
      return;
    }
    pins.set(pair, link);
    show(pair, link, from);
  }

  function touch(line) {
    const pair = line.closest(".pw-pair");
    if (pair && !pins.has(pair)) show(pair, linkOf(line), line);
  }

  function leave(pair) {
    if (pair && !pins.has(pair)) clear(pair);
  }

  function pairOfChip(chip) {
    return document.getElementById(chip.dataset.pair);
  }

  function over(event) {
    const line = closest(event, LINKED);
    const chip = closest(event, "a.pw-chip[data-pair]");
    if (line) touch(line);
    else if (chip && pairOfChip(chip) && !pins.has(pairOfChip(chip))) show(pairOfChip(chip), chip.dataset.concept, null);
  }

  function out(event) {
    const source = closest(event, LINKED) || closest(event, "a.pw-chip[data-pair]");
    if (!source) return;
    const pair = source.matches("a.pw-chip") ? pairOfChip(source) : source.closest(".pw-pair");
    const goal = event.relatedTarget instanceof Element ? event.relatedTarget : null;
    const next = goal && (goal.closest(LINKED) || goal.closest("a.pw-chip[data-pair]"));
    if (next && (next.closest(".pw-pair") === pair || next.dataset.pair === (pair && pair.id))) return;
    const focused = pair && pair.querySelector(".pw-line:focus-visible");
    if (focused && event.type === "pointerout" && !pins.has(pair)) touch(focused);
    else leave(pair);
  }

  function move(line, step) {
    const stops = all(line.closest(".pw-pane"), LINKED + '[tabindex="0"]');
    const next = stops[stops.indexOf(line) + step];
    if (!next) return false;
    next.focus();
    return true;
  }

  function keydown(event) {
    if (event.altKey || event.ctrlKey || event.metaKey) return;
    if (event.key === "Escape") {
      all(document, ".pw-pair").forEach((pair) => {
        pins.delete(pair);
        clear(pair);
      });
      return;
    }
    const line = document.activeElement && document.activeElement.matches(LINKED) ? document.activeElement : null;
    if (!line) return;
    if (event.key === "Enter" || event.key === " ") {
      pin(line.closest(".pw-pair"), linkOf(line), line);
      event.preventDefault();
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      if (move(line, event.key === "ArrowDown" ? 1 : -1)) event.preventDefault();
    }
  }

  function click(event) {
    const line = closest(event, LINKED);
    if (!line || closest(event, "a")) return;
    if (String(window.getSelection()).length > 0) return; // the reader is copying text, not asking for a link
    pin(line.closest(".pw-pair"), linkOf(line), line);
  }

  function page() {
    // The theme gives its search dialog no name.
    all(document, '.md-search[role="dialog"]:not([aria-label])').forEach((box) => box.setAttribute("aria-label", "Search"));
    all(document, ".pw-pair").forEach((pair) => {
      if (pair.querySelector(".pw-status")) return;
      const status = document.createElement("p");
      status.className = "pw-status";
      status.setAttribute("role", "status");
      status.setAttribute("aria-live", "polite");
      pair.append(status);
      const hint = document.createElement("span");
      hint.className = "pw-sr";
      hint.id = pair.id + "-keys";
      hint.textContent = "Enter keeps the matching lines lit, Escape lets go, up and down move between linked lines.";
      pair.append(hint);
      all(pair, '.pw-line[tabindex="0"]').forEach((line) => line.setAttribute("aria-describedby", hint.id));
    });
  }

  document.addEventListener("pointerover", (event) => event.pointerType === "touch" || over(event));
  document.addEventListener("pointerout", (event) => event.pointerType === "touch" || out(event));
  document.addEventListener("focusin", over);
  document.addEventListener("focusout", out);
  document.addEventListener("keydown", keydown);
  document.addEventListener("click", click);

  window.pagewalk = { page: page };
  // From disk the theme's instant navigation ends its stream before the first page.
  if (window.document$ && window.document$.subscribe && window.location.protocol !== "file:") window.document$.subscribe(page);
  else if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", page);
  else page();
})();
