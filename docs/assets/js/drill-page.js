/* Pagewalk's drills, what the reader does: one handler each for every element of every page, and on the pages of questions a
   button that asks one there and then. */
(function () {
  "use strict";
  const drill = window.PagewalkDrill;
  if (!drill || drill.page) return;

  const { node } = drill.views;

  /* ---- one handler each, for every element of every page ---- */

  const elementOf = (event) => (event.target instanceof window.Element ? event.target.closest("pagewalk-drill") : null);

  document.addEventListener("click", (event) => {
    const one = event.target instanceof window.Element ? event.target.closest("button") : null, at = elementOf(event);
    if (one && one.matches(".pw-drill-ask")) toggle(one);
    else if (one && at && one.type === "button") at.act(one);
  });
  document.addEventListener("submit", (event) => {
    const at = elementOf(event);
    if (!at) return;
    event.preventDefault();
    if (at.busy) return;
    if (event.target.matches(".pw-drill-start")) at.begin();
    else if (at.phase === "ask") at.answer(at.field.value);
  });
  document.addEventListener("input", (event) => {
    const at = elementOf(event);
    if (!at || event.target !== at.field) return;
    at.field.removeAttribute("aria-invalid");
    at.sitting.type(at.field.value);
    if (at.source) at.source.typed(at.field.value);
  });
  document.addEventListener("keydown", (event) => {
    const at = elementOf(event);
    if (at && at.stage.contains(event.target)) at.key(event);
  });

  /* ---- "ask me this", on the pages of questions ---- */

  function toggle(asker) {
    const open = asker.getAttribute("aria-expanded") === "true";
    const title = asker.closest("[data-item-row]");
    if (open) {
      const there = title.nextElementSibling;
      if (there && there.matches("pagewalk-drill")) there.close();
      return;
    }
    asker.setAttribute("aria-expanded", "true");
    const made = document.createElement("pagewalk-drill");
    made.setAttribute("item", asker.dataset.item);
    title.after(made);
  }

  function page() {
    document.querySelectorAll("h3[data-drill]").forEach((title) => {
      if (title.nextElementSibling && title.nextElementSibling.matches("[data-item-row]")) return;
      const row = node("p", "pw-drill-asks");
      row.dataset.itemRow = "";
      const asker = node("button", "pw-drill-button pw-drill-ask", row, "Ask me this");
      asker.type = "button";
      asker.dataset.item = title.dataset.drill;
      asker.setAttribute("aria-expanded", "false");
      asker.setAttribute("aria-label", "Ask me this: " + title.firstChild.textContent);
      title.after(row);
    });
  }

  drill.page = page;
  if (window.document$ && window.document$.subscribe && window.location.protocol !== "file:") window.document$.subscribe(page);
  page();
})();
