/* Pagewalk's drills, a sitting: which question is open, with which numbers, and what an answer changes.
   It is kept after each step, with what was typed, so that it goes on after a reload or a crash. No page in here. */
(function () {
  "use strict";
  const drill = window.PagewalkDrill;
  if (!drill || drill.Sitting) return;

  const GENERATED = ["compute", "predict"];
  const AGAIN = 1, SOON = 10 * 60000;
  const LONGEST = 24 * 3600 * 1000; // ms: who leaves a question open overnight did not think so long

  class Sitting {
    /* `bank`: its data; `only`: the id of the one item to ask, or "" for a sitting, which alone is kept. */
    constructor(bank, only) {
      this.bank = bank;
      this.only = only;
      this.items = bank.items;
      this.known = new Map(bank.items.map((item) => [item.id, item]));
      this.session = null;
      this.page = null; // the open question as the reader sees it: { item, seed, typed, shown, right, said, began }
    }

    /* Whether a sitting of today was kept; `left`: the reader went away from it on purpose. */
    static kept(now) {
      const found = drill.keep.opened();
      const session = found && drill.choose.fromJson(found);
      if (!session || now >= drill.fsrs.tomorrow(session.started)) return null;
      return { session, page: found.page || null, left: Boolean(found.left) };
    }

    begin(now, kinds, limit) {
      const seed = window.crypto.getRandomValues(new Uint32Array(1))[0] >>> 1;
      this.session = drill.choose.begin(seed, now, limit, kinds);
      this.page = null;
    }

    /* Go on with what was kept; answers whether there was anything. */
    resume(now) {
      const found = Sitting.kept(now);
      if (!found) return false;
      this.session = { ...found.session, skipped: [] };
      this.page = found.page && this.known.has(found.page.item) ? found.page : null;
      return true;
    }

    save({ left = false, quiet = false } = {}) {
      if (this.only || !this.session) return;
      drill.keep.keep({ ...this.session, page: this.page, left }, quiet);
    }

    /* Another element, or another tab, may have gone further in the same sitting. */
    refresh(now) {
      const found = this.only ? null : Sitting.kept(now);
      if (found && found.session.seed === this.session.seed && found.session.asked > this.session.asked) {
        this.session = { ...found.session, skipped: this.session.skipped };
      }
    }

    /* The question that is open, or the next one: { item, draw, page }; null when nothing is left. */
    async open(now) {
      this.refresh(now);
      for (;;) {
        if (!this.page || !this.page.shown) this.advance(now);
        if (!this.page) {
          if (!this.only) drill.keep.keep(null);
          return null;
        }
        const item = this.known.get(this.page.item);
        try {
          const draw = await this.draw(item);
          this.save();
          return { item, draw, page: this.page };
        } catch (error) {
          if (this.only) throw error;
          this.session = drill.choose.skip(this.session);
          this.page = null;
          this.trouble = error.message;
        }
      }
    }

    advance(now) {
      const fresh = (item, seed) => ({ item, seed, typed: "", shown: false, right: null, said: "", began: now });
      if (this.only) {
        if (!this.page) this.page = fresh(this.only, drill.choose.seedOf({ seed: now, asked: 0 }, this.only));
        return;
      }
      this.session = drill.choose.advance(this.session, this.items, drill.keep.standing(), now);
      if (!this.session.item) this.page = null;
      else if (!this.page || this.page.item !== this.session.item) this.page = fresh(this.session.item, this.session.question);
    }

    /* The numbers of a question: another recorded draw than the last time, where there are several. */
    async draw(item) {
      if (!GENERATED.includes(item.kind)) return null;
      const draws = (await drill.data(item.kind))[item.id];
      const asked = draws.find((draw) => draw.seed === this.page.drawn);
      if (asked) return asked;
      let chosen = drill.choose.draw(draws, this.page.seed);
      const last = drill.keep.review(item.id);
      // Not the numbers of the last time, unless they are wanted again.
      if (last && last.seed === chosen.seed && chosen.seed !== this.page.seed) chosen = draws[(draws.indexOf(chosen) + 1) % draws.length];
      this.page.drawn = chosen.seed;
      return chosen;
    }

    left(now) {
      return this.only ? 0 : drill.choose.queue(this.session, this.items, drill.keep.standing(), now).length;
    }

    /* What comes back next: how many, within ten minutes of the first, and in how many ms; or null. */
    coming(now) {
      const entries = drill.keep.standing();
      const due = this.items.map((item) => entries[item.id])
        .filter((entry) => entry && entry.card.due !== null && entry.card.due > now && !drill.log.asleep(entry, now))
        .map((entry) => entry.card.due);
      if (!due.length) return null;
      const first = Math.min(...due);
      return { many: due.filter((one) => one <= first + SOON).length, wait: first - now };
    }

    type(text) {
      this.page.typed = text;
      this.save({ quiet: true });
    }

    /* Judge what was typed; throws an Error where it cannot be read. A wrong answer is kept at once. */
    answer(now, { item, draw }, typed) {
      const graded = this.judge(item, draw, typed);
      const took = Math.min(LONGEST, Math.max(0, now - this.page.began));
      Object.assign(this.page, { typed, shown: true, right: graded.right, said: graded.said, took });
      if (graded.right === false) this.rate(now, { item, draw }, AGAIN);
      else this.save();
      return graded;
    }

    judge(item, draw, typed) {
      if (item.kind === "recall") return { right: null, said: this.bank.recall[item.id].said };
      if (!typed.trim()) return { right: false, said: "Here it is." };
      if (item.kind === "find") return drill.grade.find(this.bank.find[item.id], typed);
      return drill.grade[item.kind](draw, typed);
    }

    rate(now, { item, draw }, rating) {
      const before = drill.keep.entry(item.id);
      const form = { recall: "self", find: "lines" }[item.kind] || draw.form;
      const seed = draw ? draw.seed : this.page.seed;
      drill.keep.append({ what: "review", item: item.id, when: now, rating, form, seed, took: this.page.took });
      if (this.session) this.session = drill.choose.answered(this.session, this.items, before, rating);
      this.save();
      return drill.keep.entry(item.id);
    }

    /* On to the next question. */
    done() {
      this.page = null;
    }

    sleep(now, what) {
      const event = { what, item: this.page.item, when: now };
      if (what === "bury") event.until = drill.fsrs.tomorrow(now);
      drill.keep.append(event);
      this.page = null;
    }

    /* Undo the last thing done in this sitting; answers the event, or null. Its question is open again. */
    undo(now) {
      const since = this.only ? this.since : this.session.started;
      const event = drill.keep.undo(now, since, this.only);
      if (!event || !this.known.has(event.item)) return event;
      const seed = event.seed === null ? 0 : event.seed;
      if (this.session) {
        const rating = event.what === "review" ? event.rating : null;
        this.session = drill.choose.reopened(this.session, this.items, event.item, seed, rating, drill.keep.entry(event.item));
      }
      this.page = { item: event.item, seed, drawn: event.seed, typed: "", shown: false, right: null, said: "", began: now };
      this.save();
      return event;
    }
  }

  drill.Sitting = Sitting;
})();
