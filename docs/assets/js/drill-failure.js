/* Pagewalk: what a run of a reader's kernel found wrong first: its value, the reader's lines, and upstream's, with links.
   What a run says is text here, never markup, and a link of it leads to https or nowhere. */
(function () {
  "use strict";
  const live = window.pagewalkLive;
  if (!live || window.pagewalkFailures) return;

  const { element, button } = live;

  function lines(first, last) {
    return first === last ? "line " + first : "lines " + first + " to " + last;
  }

  function upstreamLink(place) {
    const words = place.path.split("/").pop() + ", " + lines(place.first, place.last);
    if (!/^https:\/\//.test(place.link || "")) return element("span", "", words);
    const link = element("a", "", words);
    link.href = place.link;
    return link;
  }

  function card(failure) {
    const made = element("div", "pw-fix-card");
    made.append(element("p", "pw-fix-head", failure.name ? "First wrong: " + failure.name : "What went wrong"));
    if (!failure.name) made.append(element("p", "", failure.message));
    const facts = element("dl");
    const add = (name, value) => {
      const holder = element("dd");
      holder.append(...(Array.isArray(value) ? value : [value]));
      facts.append(element("dt", "", name), holder);
    };
    if (failure.name) {
      add("Observed", element("code", "", failure.observed));
      add("Expected", element("code", "", failure.expected));
      if (failure.note) add("Note", failure.note);
    }
    if (failure.where) add("In", failure.where);
    if (failure.line) {
      const jump = button("pw-fix-jump", lines(failure.line, failure.last));
      jump.dataset.line = failure.line;
      add("Your file", jump);
    }
    const places = (failure.upstream || []).flatMap((place, at) => (at ? ["; ", upstreamLink(place)] : [upstreamLink(place)]));
    if (places.length) add("Upstream", places);
    if (facts.children.length) made.append(facts);
    return made;
  }

  /* The upstream lines on this page that a failure names, lit. */
  function light(pair, failure) {
    if (!pair) return;
    pair.querySelectorAll(".pw-fix-hit").forEach((line) => line.classList.remove("pw-fix-hit"));
    ((failure && failure.upstream) || []).forEach((place) => {
      pair.querySelectorAll(".pw-upstream").forEach((pane) => {
        if (pane.dataset.path !== place.path) return;
        pane.querySelectorAll("li.pw-line").forEach((line) => {
          if (line.value >= place.first && line.value <= place.last) line.classList.add("pw-fix-hit");
        });
      });
    });
  }

  window.pagewalkFailures = { card, light };
})();
