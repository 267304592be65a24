/* Pagewalk's drills, what the reader has done: how many questions are due, by kind, and what is kept in this browser:
   out as a file, in from a file, and away. No streaks. */
(function () {
  "use strict";
  const drill = window.PagewalkDrill;
  if (!drill || drill.progress) return;

  const { KINDS, button, node, plural } = drill.views;
  const FILE = "pagewalk-drills.json";

  /* For each kind: items, new, due, suspended. */
  function counts(bank, now) {
    const { standing } = drill.keep;
    const entries = standing();
    const found = Object.fromEntries(Object.keys(KINDS).map((kind) => [kind, { items: 0, fresh: 0, due: 0, suspended: 0 }]));
    bank.items.forEach((item) => {
      const row = found[item.kind], entry = entries[item.id] || drill.log.NOTHING;
      row.items += 1;
      if (entry.suspended) row.suspended += 1;
      else if (drill.log.isNew(entry)) row.fresh += 1;
      else if (drill.log.isDue(entry, now)) row.due += 1;
    });
    return found;
  }

  function table(parent, found) {
    const place = node("div", "pw-table", parent);
    const made = node("table", "pw-drill-counts", place);
    node("caption", "pw-sr", made, "How many questions are due, by kind");
    const head = node("tr", "", node("thead", "", made));
    ["Kind", "Questions", "New", "Due", "Suspended"].forEach((name) => { node("th", "", head, name).scope = "col"; });
    const body = node("tbody", "", made);
    Object.entries(found).forEach(([kind, row]) => {
      const line = node("tr", "", body);
      node("th", "", line, KINDS[kind]).scope = "row";
      [row.items, row.fresh, row.due, row.suspended].forEach((count) => node("td", "", line, String(count)));
    });
  }

  /* What resetting would lose, in words; "" for nothing. */
  function losses() {
    const events = drill.keep.events();
    if (!events.length) return "";
    const reviews = events.filter((event) => event.what === "review");
    const first = new Date(events.reduce((least, event) => Math.min(least, event.when), Infinity));
    const items = new Set(events.map((event) => event.item)).size;
    const since = first.toLocaleDateString("en-GB", { day: "numeric", month: "long", year: "numeric" });
    return plural(reviews.length, "answer") + " to " + plural(items, "question") + ", given since " + since +
      ", and when each comes back";
  }

  function download() {
    const url = URL.createObjectURL(new Blob([drill.keep.text()], { type: "application/json" }));
    const link = node("a", "", document.body);
    link.href = url;
    link.download = FILE;
    link.click();
    link.remove();
    window.setTimeout(() => URL.revokeObjectURL(url), 10000);
  }

  /* The whole panel, made anew whenever something has changed. `say` speaks. */
  class Progress {
    constructor(parent, bank, say) {
      this.bank = bank;
      this.say = say;
      this.fold = node("details", "pw-fold pw-drill-progress", parent);
      this.title = node("summary", "", this.fold);
      this.body = node("div", "", this.fold);
      this.asking = false;
      this.fold.addEventListener("click", (event) => this.click(event));
      this.fold.addEventListener("change", (event) => this.change(event));
      this.fold.addEventListener("keydown", (event) => { if (event.key === "Escape" && this.asking) this.ask(false); });
      this.draw();
    }

    draw() {
      const now = Date.now(), many = drill.keep.events().length, found = counts(this.bank, now);
      const due = Object.values(found).reduce((sum, row) => sum + row.due, 0);
      const focused = this.body.contains(document.activeElement) ? document.activeElement.dataset.act : "";
      this.title.textContent = "Your answers: " + due + " due" + (many ? "" : "; nothing is kept yet");
      this.body.replaceChildren();
      table(this.body, found);
      this.sleeping();
      const row = node("div", "pw-drill-row", this.body);
      button(row, "export", "Export").disabled = !many;
      const label = node("label", "pw-drill-button pw-drill-file", row, "Import");
      const file = node("input", "", label);
      file.type = "file";
      file.accept = ".json,application/json";
      file.dataset.act = "import";
      button(row, "reset", "Reset").disabled = !many;
      this.confirm();
      const way = node("p", "pw-drill-hint", this.body, "The file is the terminal's own: ");
      node("code", "", way, "pagewalk drill import FILE");
      way.append(" takes it over, and ");
      node("code", "", way, "pagewalk drill export json FILE");
      way.append(" writes one for here. Importing adds; nothing is written over.");
      const again = focused && this.body.querySelector('[data-act="' + focused + '"]');
      if (again) again.focus({ preventScroll: true });
    }

    sleeping() {
      const known = new Map(this.bank.items.map((item) => [item.id, item]));
      const asleep = Object.entries(drill.keep.standing()).filter(([id, entry]) => entry.suspended && known.has(id));
      if (!asleep.length) return;
      node("p", "pw-drill-hint", this.body, "Suspended, and not asked:");
      const list = node("ul", "pw-drill-asleep", this.body);
      asleep.forEach(([id]) => {
        const line = node("li", "", list, known.get(id).title + " ");
        const wake = button(line, "wake", "Ask it again");
        wake.dataset.item = id;
        wake.setAttribute("aria-label", "Ask again: " + known.get(id).title);
      });
    }

    confirm() {
      if (!this.asking) return;
      const box = node("div", "pw-drill-confirm", this.body);
      box.setAttribute("role", "alertdialog");
      box.setAttribute("aria-label", "Reset?");
      const words = node("p", "", box, "This forgets what this browser keeps: " + losses() + ". It cannot be undone; an export can be imported again.");
      words.id = drill.views.unique();
      box.setAttribute("aria-describedby", words.id);
      const row = node("div", "pw-drill-row", box);
      button(row, "keep", "Keep them", "", "pw-drill-main");
      button(row, "export", "Export first");
      button(row, "forget", "Forget them");
    }

    click(event) {
      const one = event.target instanceof Element ? event.target.closest("button[data-act]") : null;
      if (!one) return;
      const acts = {
        export: () => { download(); this.say("Written to " + FILE + "."); },
        reset: () => this.ask(true),
        keep: () => this.ask(false),
        forget: () => {
          this.asking = false;
          drill.keep.reset();
          this.say("Forgotten. Every question is new again.");
          this.title.focus({ preventScroll: true });
        },
        wake: () => drill.keep.append({ what: "unsuspend", item: one.dataset.item, when: Date.now() }),
      };
      if (acts[one.dataset.act]) acts[one.dataset.act]();
    }

    ask(on) {
      this.asking = on;
      this.draw();
      this.body.querySelector('[data-act="' + (on ? "keep" : "reset") + '"]').focus();
    }

    async change(event) {
      const input = event.target;
      if (input.dataset.act !== "import" || !input.files.length) return;
      const file = input.files[0];
      try {
        const added = drill.keep.bring(await file.text());
        this.say(added ? plural(added, "event") + " taken over from " + file.name + "." : file.name + " holds nothing new.");
      } catch (error) {
        this.say("Nothing was imported. " + error.message + ".");
      }
      input.value = "";
    }
  }

  drill.progress = { Progress, counts };
})();
