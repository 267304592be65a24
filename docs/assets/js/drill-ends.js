/* Pagewalk's drills, what is seen before a sitting and after it: what to ask, and what was done. */
(function () {
  "use strict";
  const drill = window.PagewalkDrill;
  if (!drill || drill.ends) return;

  const { KINDS, RATINGS, button, node, plural } = drill.views;
  const MOST = 999;

  /* `kept`: a sitting that can go on, or null. `kinds`, `limit`: what was chosen before, if anything was. Answers the button
     that most readers want. */
  function start(parent, kept, counts, kinds, limit) {
    const form = node("form", "pw-drill-start", parent);
    form.noValidate = true;
    let first = null;
    if (kept) {
      const row = node("div", "pw-drill-row", form);
      first = button(row, "resume", "Go on where you left", "", "pw-drill-main");
      node("span", "pw-drill-hint", row, "A sitting of today is open, with " + plural(kept.session.asked, "answer") + " so far.");
    }
    const set = node("fieldset", "", form);
    node("legend", "", set, kept ? "Or begin another" : "What to ask");
    Object.entries(counts).forEach(([kind, row]) => {
      const label = node("label", "", set);
      const box = node("input", "", label);
      box.type = "checkbox";
      box.name = kind;
      box.checked = kinds ? kinds.includes(kind) : true;
      node("b", "", label, KINDS[kind]);
      node("span", "pw-drill-hint", label, row.due + " due, " + row.fresh + " new");
    });
    const label = node("label", "pw-drill-limit", form);
    node("span", "", label, "New questions, at most");
    const value = String(limit === undefined ? drill.choose.NEW_ITEMS : limit);
    Object.assign(node("input", "", label), { type: "number", min: "0", max: String(MOST), value, name: "limit" });
    const row = node("div", "pw-drill-row", form);
    const begin = button(row, "begin", "Begin", "", kept ? "" : "pw-drill-main");
    begin.type = "submit";
    node("span", "pw-drill-hint", row, "What is due comes first, then new questions. Each answer is kept at once, in this browser.");
    return first || begin;
  }

  /* What was done, and what comes next; answers the heading. */
  function done(parent, sitting, now) {
    const { session } = sitting;
    const title = node("p", "pw-drill-now", parent, session.asked ? "Done: " + plural(session.asked, "answer") : "Nothing is due");
    title.setAttribute("role", "heading");
    title.setAttribute("aria-level", "2");
    title.tabIndex = -1;
    const went = session.ratings.map((count, at) => (count ? count + " " + RATINGS[at + 1] : "")).filter(Boolean).join(", ");
    if (went) node("p", "", parent, went + ".");
    if (sitting.trouble) node("p", "pw-drill-hint", parent, "Left out: " + sitting.trouble + ".");
    const next = sitting.coming(now);
    if (next) node("p", "", parent, "Next: " + next.many + " in " + drill.fsrs.label(next.wait) + ".");
    const counts = Object.values(drill.progress.counts(sitting.bank, now));
    const fresh = counts.reduce((sum, row) => sum + row.fresh, 0);
    if (fresh) node("p", "pw-drill-hint", parent, plural(fresh, "new question") + (fresh === 1 ? " waits." : " wait."));
    const row = node("div", "pw-drill-row", parent);
    button(row, "again", "Begin another sitting", "", "pw-drill-main");
    button(row, "undo", "Undo", "u");
    return title;
  }

  drill.ends = { MOST, start, done };
})();
