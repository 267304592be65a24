/* Pagewalk's drills, the element: <pagewalk-drill data-drill> holds a sitting, <pagewalk-drill item="find/tail-of-v"> asks one
   question. It holds what is there without scripts. Questions on a kind's page get a button that asks them there.
   Keys work only while the focus is inside; the theme's own keys go on working. */
(function () {
  "use strict";
  const drill = window.PagewalkDrill;
  if (!drill || drill.Element) return;

  const { views, keep, Sitting } = drill;
  const { node, button } = views;

  const bank = () => drill.data("bank");
  const touched = () => window.matchMedia("(pointer: coarse)").matches; // a focus there brings up a keyboard over the question

  class Element extends HTMLElement {
    async connectedCallback() {
      if (this.wired) {
        this.unlisten = keep.listen(() => this.changed());
        return;
      }
      this.wired = true;
      this.only = this.getAttribute("item") || "";
      this.level = this.only ? 4 : 2;
      this.frame = node("section", "pw-drill", this);
      this.frame.setAttribute("aria-label", this.only ? "One question" : "Drill");
      this.warning = node("p", "pw-drill-warning", this.frame);
      this.stage = node("div", "pw-drill-stage", this.frame);
      this.stage.tabIndex = -1; // a click beside the buttons brings the keys here
      this.live = node("p", "pw-drill-say", this.frame);
      this.live.setAttribute("role", "status");
      this.live.setAttribute("aria-live", "polite");
      try {
        this.sitting = new Sitting(await bank(), this.only);
      } catch (error) {
        this.say("The drills do not start: " + error.message + ". What is written here stays.");
        this.dataset.state = "missing";
        return;
      }
      if (!this.only) this.progress = new drill.progress.Progress(this.frame, this.sitting.bank, (text) => this.say(text));
      this.dataset.state = "ready";
      if (this.isConnected) this.unlisten = keep.listen(() => this.changed());
      this.warn();
      if (this.only) {
        this.sitting.since = Date.now();
        await this.next(true);
        return;
      }
      const kept = Sitting.kept(Date.now());
      if (kept && !kept.left && this.sitting.resume(Date.now())) await this.next(false);
      else this.start();
    }

    disconnectedCallback() {
      if (this.unlisten) this.unlisten();
    }

    /* Speak; `seen`: where it is not on the page already. */
    say(text, seen = true) {
      this.live.textContent = "";
      this.live.textContent = text;
      this.live.classList.toggle("pw-sr", !seen);
    }

    warn() {
      const why = keep.trouble();
      let text = why ? why + ": your answers last until it is closed or loaded anew. Export takes them along." : "";
      if (!text && keep.unread()) text = "What was kept in this browser could not be read. It is put aside, and you begin anew.";
      this.warning.textContent = text;
    }

    /* Something was kept: here, by another element, or in another tab. */
    changed() {
      this.warn();
      if (this.progress) this.progress.draw();
      if (this.only || this.busy) return;
      if (this.phase === "start") {
        if (!this.stage.contains(document.activeElement)) this.start();
      } else if (this.phase === "ask" && !this.sitting.page.typed) {
        const kept = Sitting.kept(Date.now());
        const same = kept && kept.session.item === this.sitting.session.item && !(kept.page && kept.page.shown);
        if (same) return;
        if (kept && this.sitting.resume(Date.now())) this.next(false);
        else this.start();
      }
    }

    /* Do something that changes what is kept, without hearing of it. */
    async doing(act) {
      this.busy = true;
      try {
        return await act();
      } finally {
        this.busy = false;
        this.warn();
      }
    }

    clear(phase) {
      this.phase = phase;
      this.dataset.phase = phase;
      this.source = null;
      this.field = null;
      this.stage.replaceChildren();
    }

    /* ---- before and after ---- */

    start(focus) {
      this.remember();
      this.clear("start");
      const now = Date.now(), counts = drill.progress.counts(this.sitting.bank, now);
      const first = drill.ends.start(this.stage, Sitting.kept(now), counts, this.kinds, this.limit);
      if (focus) this.focusOn(first);
    }

    /* What stands in the form, for the next time that it is made. */
    remember() {
      const form = this.stage.querySelector(".pw-drill-start");
      if (!form) return;
      this.kinds = Object.keys(views.KINDS).filter((kind) => form.elements[kind].checked);
      this.limit = Number(form.elements.limit.value);
    }

    async begin() {
      this.remember();
      const { kinds, limit } = this;
      if (!kinds.length) { this.say("Choose at least one kind."); return; }
      if (!Number.isInteger(limit) || limit < 0 || limit > drill.ends.MOST) { this.say("New questions: a whole number from 0 to " + drill.ends.MOST + "."); return; }
      this.sitting.begin(Date.now(), kinds.length === Object.keys(views.KINDS).length ? [] : kinds, limit);
      await this.next(true);
    }

    finished(focus) {
      this.clear("done");
      const title = drill.ends.done(this.stage, this.sitting, Date.now());
      if (focus) this.focusOn(title);
    }

    /* ---- a question ---- */

    async next(focus) {
      let open;
      try {
        open = await this.doing(() => this.sitting.open(Date.now()));
      } catch (error) {
        this.say("This question cannot be asked: " + error.message + ".");
        return;
      }
      if (!this.isConnected) return;
      this.open = open;
      if (!open) { this.finished(focus); return; }
      this.ask();
      if (open.page.shown) this.reveal(focus);
      else if (focus) this.focusOn(this.field && open.item.kind !== "recall" && open.item.kind !== "find" && !touched() ? this.field : this.heading);
    }

    ask() {
      this.clear("ask");
      this.say("");
      const { item, draw, page } = this.open, data = this.sitting.bank;
      const facts = [];
      if (!this.only) facts.push(this.sitting.left(Date.now()) + " to go");
      if (item.after && this.sitting.known.has(item.after)) facts.push("follows “" + this.sitting.known.get(item.after).title + "”");
      this.heading = views.head(this.stage, item, facts, this.level);
      const html = draw ? draw.question : data[item.kind][item.id].question;
      const text = views.rich(this.stage, html, "pw-drill-text pw-drill-question");
      text.id = views.unique();
      this.answering = node("div", "pw-drill-answering", this.stage);
      if (item.kind === "find") this.point(data.find[item.id]);
      const form = { recall: "self", find: "lines" }[item.kind] || draw.form;
      this.field = views.answerForm(this.answering, form, draw ? draw.unit : "", this.heading.id, text.id);
      this.field.value = page.typed;
      this.result = node("div", "pw-drill-result", this.stage);
      this.help = views.tools(this.stage, Boolean(this.only));
    }

    /* The upstream file to point into, or why there is none. */
    async point(entry) {
      const place = node("div", "pw-drill-pointing", this.answering);
      const files = entry.files.filter((file) => file.name);
      if (files.length < entry.files.length || !files.length) {
        drill.source.missing(place, entry, "The source " + entry.source + " is not on the machine that built this page, so there is no line to click.");
        return;
      }
      const source = new drill.source.Source(place, files, (text) => { this.field.value = text; this.sitting.type(text); });
      this.source = source;
      try {
        await source.open(0);
      } catch (error) {
        if (this.source === source) this.source = null;
        drill.source.missing(place, entry, "The file does not load: " + error.message + ".");
        return;
      }
      if (this.source !== source) return;
      if (this.open.page.shown) await source.solve(entry.places);
      else if (this.field.value) source.typed(this.field.value);
    }

    async answer(typed) {
      if (this.phase !== "ask") return;
      let graded;
      try {
        graded = await this.doing(() => this.sitting.answer(Date.now(), this.open, typed));
      } catch (error) {
        if (!error.said && !(error instanceof Error)) throw error;
        this.complain(error.said || error.message);
        return;
      }
      this.reveal(true);
      const shown = this.result.querySelector(".pw-drill-text");
      if (graded.right !== null) this.say(graded.said + (graded.right || !shown ? "" : " " + shown.textContent.trim()), false);
      if (this.progress) this.progress.draw();
    }

    complain(text) {
      this.field.setAttribute("aria-invalid", "true");
      this.say(text.replace(/\.$/, "") + ". Try again.");
      this.field.focus();
    }

    reveal(focus) {
      this.phase = "shown";
      this.dataset.phase = "shown";
      const { item, page } = this.open;
      if (item.kind === "find") {
        this.answering.querySelectorAll("form").forEach((form) => form.remove());
        if (this.source && this.source.list) this.source.solve(this.sitting.bank.find[item.id].places);
      } else this.answering.remove();
      this.result.replaceChildren();
      if (item.kind !== "recall") views.verdict(this.result, page);
      this.solved = views.solution(this.result, this.answerOf(), page.typed, this.level);
      if (page.right === false) {
        const row = node("div", "pw-drill-row", this.result);
        if (this.only) this.closing(row);
        else button(row, "next", "Next question", "", "pw-drill-main");
        const due = keep.entry(item.id).card.due;
        if (due !== null) node("span", "pw-drill-hint", row, "Again: it comes back in " + drill.fsrs.label(Math.max(0, due - Date.now())) + ".");
      } else views.ratings(this.result, drill.fsrs.labels(keep.entry(item.id).card, Date.now()));
      if (focus) this.focusOn(this.solved);
    }

    /* The answer of the open question, as the views want it. */
    answerOf() {
      const { item, draw } = this.open, data = this.sitting.bank;
      if (item.kind === "recall") return data.recall[item.id];
      const bold = (text) => {
        const box = node("p");
        node("b", "", box, text);
        return box.outerHTML;
      };
      if (item.kind === "find") {
        const entry = data.find[item.id];
        return { answer: bold(entry.answer), why: entry.solution, links: item.links };
      }
      const moment = draw.href ? [{ href: draw.href, label: "This moment in the player" }] : [];
      return { answer: bold(draw.shown), why: draw.solution, links: [...moment, ...item.links] };
    }

    async rate(rating) {
      if (this.phase !== "shown" || this.open.page.right === false) return;
      const entry = await this.doing(() => this.sitting.rate(Date.now(), this.open, rating));
      const back = "again in " + drill.fsrs.label(entry.card.due - Date.now());
      if (this.progress) this.progress.draw();
      if (this.only) {
        this.phase = "rated";
        this.result.querySelector(".pw-drill-rate").remove();
        const row = node("div", "pw-drill-row", this.result);
        node("p", "pw-drill-verdict pw-drill-open", this.result, views.RATINGS[rating] + ": " + back + ".");
        this.closing(row);
        this.focusOn(row.firstElementChild);
      } else await this.on();
      this.say(views.RATINGS[rating] + ": " + back + ".");
    }

    closing(row) {
      button(row, "once", "Ask it once more", "", "pw-drill-main");
      button(row, "leave", "Close");
    }

    async on() {
      this.sitting.done();
      await this.next(true);
    }

    async sleep(what) {
      if (!this.sitting.page || this.phase === "start" || this.phase === "done") return;
      const { item } = this.open;
      await this.doing(() => this.sitting.sleep(Date.now(), what));
      if (this.progress) this.progress.draw();
      const said = what === "bury" ? item.title + " is buried until tomorrow." : item.title + " is suspended: it is not asked again.";
      if (this.only) this.close();
      else await this.next(true);
      this.say(said);
    }

    async undo() {
      const event = await this.doing(() => this.sitting.undo(Date.now()));
      if (!event) { this.say("Nothing to undo in this sitting."); return; }
      if (this.progress) this.progress.draw();
      await this.next(true);
      this.say("Undone: " + event.what + " of " + event.item + ".");
    }

    leave() {
      if (this.only) { this.close(); return; }
      this.sitting.save({ left: true });
      this.start(true);
      this.say("Kept. Go on where you left whenever you like.");
    }

    close() {
      const asker = document.querySelector('.pw-drill-ask[data-item="' + CSS.escape(this.only) + '"]');
      this.remove();
      if (asker) { asker.setAttribute("aria-expanded", "false"); asker.focus(); }
    }

    keys() {
      if (!this.help || !this.help.isConnected) return;
      this.help.hidden = !this.help.hidden;
      this.stage.querySelector('[data-act="keys"]').setAttribute("aria-expanded", String(!this.help.hidden));
    }

    focusOn(one) {
      one.focus({ preventScroll: true });
      const box = this.stage.getBoundingClientRect();
      const calm = window.matchMedia("(prefers-reduced-motion: reduce)").matches;
      const seen = one.getBoundingClientRect();
      if (seen.top < 60 || seen.bottom > window.innerHeight - 20) {
        const to = this.phase === "shown" ? seen.top : box.top;
        window.scrollTo({ top: window.scrollY + to - 80, behavior: calm ? "auto" : "smooth" });
      }
    }

    /* ---- what the reader does ---- */

    act(one) {
      if (this.busy) return;
      const acts = {
        reveal: () => this.answer(this.field.value), unknown: () => this.answer(""), next: () => this.on(),
        rate: () => this.rate(Number(one.dataset.rating)), undo: () => this.undo(), suspend: () => this.sleep("suspend"),
        bury: () => this.sleep("bury"), keys: () => this.keys(), leave: () => this.leave(), again: () => this.start(true),
        once: () => { this.sitting.done(); this.next(true); },
        resume: () => { if (this.sitting.resume(Date.now())) this.next(true); else this.start(true); },
      };
      if (acts[one.dataset.act]) acts[one.dataset.act]();
    }

    key(event) {
      if (this.busy) return;
      const at = event.target, typing = at.matches("input:not([type=checkbox], [type=file]), textarea, select");
      if (event.altKey || event.metaKey || (event.ctrlKey && event.key !== "Enter")) return;
      const acts = {};
      if (typing) {
        if (event.key === "Escape" && this.heading && this.heading.isConnected) acts.Escape = () => this.heading.focus({ preventScroll: true });
        if (event.ctrlKey && at.matches("textarea")) acts.Enter = () => this.answer(at.value);
      } else if (this.phase === "ask" || this.phase === "shown" || this.phase === "rated" || this.phase === "done") {
        Object.assign(acts, { u: () => this.undo(), s: () => this.sleep("suspend"), b: () => this.sleep("bury"), "?": () => this.keys() });
        if (this.phase === "shown" && this.open.page.right === false && !this.only && at === this.solved) acts.Enter = () => this.on();
        if (this.phase === "shown") [1, 2, 3, 4].forEach((rating) => { acts[rating] = () => this.rate(rating); });
        const busy = at.closest("button, a, summary, [role=listbox]");
        if (this.phase === "ask" && this.open.item.kind === "recall" && !busy) acts[" "] = () => this.answer(this.field.value);
      }
      if (!acts[event.key] || (event.repeat && event.key !== "Escape")) return;
      event.preventDefault();
      event.stopPropagation(); // the theme's search, which listens for s, too
      acts[event.key]();
    }
  }

  drill.Element = Element;
  window.customElements.define("pagewalk-drill", Element);
})();
