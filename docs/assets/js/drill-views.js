/* Pagewalk's drills, what is seen: a question, the place for its answer, what became of it, and the buttons.
   Nothing here keeps or decides anything. */
(function () {
  "use strict";
  const drill = window.PagewalkDrill;
  if (!drill || drill.views) return;

  const RATINGS = { 1: "Again", 2: "Hard", 3: "Good", 4: "Easy" };
  const KINDS = { recall: "Recall", compute: "Compute", predict: "Predict", find: "Find the line" };
  const LEVELS = { 1: "to know", 2: "to explain", 3: "to defend" };
  const KEYS = [
    ["Space", "show the answer"], ["1 2 3 4", "Again, Hard, Good, Easy"], ["u", "undo the last thing done"],
    ["s", "suspend: do not ask it again"], ["b", "bury: not again today"], ["Esc", "out of a field, so that these keys work"],
    ["?", "these keys"],
  ];
  let made = 0;

  const unique = () => { made += 1; return "pw-drill-" + made; };

  function node(tag, style, parent, text) {
    const one = document.createElement(tag);
    if (style) one.className = style;
    if (text !== undefined) one.textContent = text;
    if (parent) parent.append(one);
    return one;
  }

  function button(parent, act, text, key, style) {
    const one = node("button", "pw-drill-button" + (style ? " " + style : ""), parent, text);
    one.type = "button";
    one.dataset.act = act;
    if (key) {
      node("kbd", "", one, key).setAttribute("aria-hidden", "true");
      one.setAttribute("aria-keyshortcuts", key === "Esc" ? "Escape" : key);
    }
    return one;
  }

  /* HTML of the data: its links count from the top of the site, and open beside the sitting. */
  function rich(parent, html, style) {
    const one = node("div", style, parent);
    one.innerHTML = html;
    one.querySelectorAll("a[href]").forEach((link) => aside(link, link.getAttribute("href")));
    return one;
  }

  function aside(link, href) {
    link.href = drill.url(href);
    link.target = "_blank";
    link.rel = "noopener";
    return link;
  }

  function links(parent, list) {
    if (!list || !list.length) return;
    const place = node("span", "pw-drill-links", parent);
    list.forEach((one) => aside(node("a", "pw-chip", place, one.label.replaceAll("`", "")), one.href));
  }

  const plural = (count, word) => count + " " + word + (count === 1 ? "" : "s");

  /* ---- a question ---- */

  function head(parent, item, facts, level) {
    const meta = node("p", "pw-drill-meta", parent);
    node("b", "", meta, KINDS[item.kind]);
    meta.append([" · level " + item.level + ", " + LEVELS[item.level], ...facts].join(" · "));
    const title = node("p", "pw-drill-now", parent, item.title);
    title.setAttribute("role", "heading");
    title.setAttribute("aria-level", String(level));
    title.tabIndex = -1;
    title.id = unique();
    return title;
  }

  /* The place for an answer. `form`: self, number, text or lines. Answers its field. */
  function answerForm(parent, form, unit, titleId, textId) {
    const place = node("form", "pw-drill-form pw-drill-form-" + form, parent);
    place.noValidate = true;
    const label = node("label", "", place);
    const says = { self: "Your answer, if you want to write it", lines: "Lines" };
    node("span", "", label, says[form] || "Your answer" + (unit ? ", in " + unit : ""));
    const field = node(form === "self" ? "textarea" : "input", "", label);
    if (form === "self") field.rows = 3;
    else {
      field.type = "text";
      field.autocomplete = "off";
      field.spellcheck = false;
      field.setAttribute("autocapitalize", "off");
    }
    if (form === "lines") field.placeholder = "120, 120-124 or file:120-124";
    field.name = "answer";
    field.setAttribute("aria-describedby", titleId + " " + textId);
    const row = node("div", "pw-drill-row", place);
    if (form === "self") button(row, "reveal", "Show the answer", "Space", "pw-drill-main");
    else {
      const main = button(row, "answer", "Answer", "", "pw-drill-main");
      main.type = "submit";
      button(row, "unknown", "I do not know");
      node("span", "pw-drill-hint", row, "Enter alone: I do not know.");
    }
    return field;
  }

  /* ---- what became of it ---- */

  function verdict(parent, graded) {
    if (!graded || !graded.said) return;
    const kind = graded.right === true ? "right" : graded.right === false ? "wrong" : "open";
    const one = node("p", "pw-drill-verdict pw-drill-" + kind, parent);
    const sign = { right: "✔ ", wrong: "✘ ", open: "" }[kind];
    if (sign) node("span", "", one, sign).setAttribute("aria-hidden", "true");
    one.append(graded.said);
  }

  /* `found`: { answer, points, why } as HTML, each if it is there; `said`: over the points; `links`: where else to look. */
  function solution(parent, found, typed, level) {
    const title = node("p", "pw-drill-now pw-drill-solved", parent, "The answer");
    title.setAttribute("role", "heading");
    title.setAttribute("aria-level", String(level));
    title.tabIndex = -1;
    if (typed) {
      const own = node("div", "pw-drill-own", parent);
      node("span", "pw-drill-hint", own, "You wrote");
      node("p", "", own, typed);
    }
    if (found.answer) rich(parent, found.answer, "pw-drill-text");
    if (found.points && found.points.length) {
      node("p", "pw-drill-hint", parent, found.said);
      const list = node("ul", "pw-drill-points", parent);
      found.points.forEach((point) => {
        const line = node("li", "", list);
        rich(line, point.html, "");
        links(line, point.links);
      });
    }
    if (found.why) rich(parent, found.why, "pw-drill-text");
    links(parent, found.links);
    return title;
  }

  function ratings(parent, labels) {
    const place = node("div", "pw-drill-rate", parent);
    place.setAttribute("role", "group");
    place.setAttribute("aria-label", "How well did it go?");
    Object.entries(RATINGS).forEach(([number, name]) => {
      const one = button(place, "rate", "", "", "pw-drill-rating");
      one.dataset.rating = number;
      one.setAttribute("aria-keyshortcuts", number);
      node("kbd", "", one, number).setAttribute("aria-hidden", "true");
      node("b", "", one, name);
      one.append(" ");
      node("span", "", one, labels[number]);
    });
    return place;
  }

  function tools(parent, single) {
    const row = node("div", "pw-drill-tools", parent);
    button(row, "undo", "Undo", "u");
    button(row, "suspend", "Suspend", "s");
    button(row, "bury", "Bury", "b");
    const keys = button(row, "keys", "Keys", "?");
    keys.setAttribute("aria-expanded", "false");
    button(row, "leave", single ? "Close" : "Leave");
    const list = node("dl", "pw-drill-keys", parent);
    list.hidden = true;
    list.id = unique();
    keys.setAttribute("aria-controls", list.id);
    KEYS.forEach(([key, does]) => {
      const pair = node("div", "", list);
      node("dt", "", pair, key);
      node("dd", "", pair, does);
    });
    return list;
  }

  drill.views = { KINDS, RATINGS, answerForm, aside, button, head, links, node, plural, ratings, rich, solution, tools, unique, verdict };
})();
