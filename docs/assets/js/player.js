/* Pagewalk's player: <pagewalk-player film="classic-v1" at="1234" anchor="step-x" pair="pair-x">, a recorded run of a
   kernel that can be scrubbed, played and stepped. It holds a static table, which is all there is without this script,
   on paper, and where the film is not there. The film is loaded when the player is first opened.
   Time runs along the events of one thread, its moments, counted from 1. A link to a moment: #step-x&t=123, or &t=123&thread=5. */
(function () {
  "use strict";
  if (window.pagewalkPlayer) return;

  const LINK = /^#(.+?)&t=(\d+)(?:&thread=(\d+))?$/;
  const CODE_REST = 120; // ms
  let last = null; // the player that the reader touched last: it alone writes the address

  const calm = () => window.matchMedia("(prefers-reduced-motion: reduce)").matches;

  /* ---- the element ---- */

  class Player extends HTMLElement {
    connectedCallback() {
      this.details = this.querySelector("details");
      if (!this.details || this.wired) return;
      this.wired = true;
      this.moment = 0;
      this.timer = 0;
      this.details.addEventListener("toggle", () => (this.details.open ? this.open() : this.shut()));
      if (this.follow(window.location.hash)) return;
      if (this.details.open) this.open();
    }

    disconnectedCallback() {
      this.pause();
      if (last === this) last = null;
    }

    /* Go to the moment that an address names; answers whether it names one of this player's. */
    follow(hash) {
      const link = LINK.exec(hash);
      if (!link || link[1] !== this.getAttribute("anchor")) return false;
      this.wanted = { moment: Number(link[2]) - 1, thread: link[3] === undefined ? null : Number(link[3]) };
      last = this;
      this.details.open = true;
      this.open().then(() => {
        if (this.isConnected) (this.panes ? this.panes.pair : this).scrollIntoView();
      });
      return true;
    }

    async open() {
      if (!this.film) {
        this.dataset.state = "loading";
        this.say("Loading the film …");
        try {
          this.film = await window.pagewalkFilm.load(this.getAttribute("film"));
        } catch (error) {
          this.dataset.state = "missing";
          this.say("The player does not start: " + error.message + ". The table below stays.");
          return;
        }
        if (!this.isConnected) return;
      }
      if (!this.stage) this.build();
      if (!this.panes) {
        const pair = document.getElementById(this.getAttribute("pair"));
        if (pair) this.panes = new window.pagewalkPanes.Panes(pair, this.film.content);
        // The panes have made room: code and picture are seen together.
        if (pair && pair.getBoundingClientRect().top < 0) pair.scrollIntoView();
      }
      this.dataset.state = "ready";
      if (this.wanted) {
        const { moment, thread } = this.wanted;
        this.wanted = null;
        const number = this.numbered(thread === null ? this.film.content.film.focus : thread);
        if (number >= 0 && number !== this.steps.focus) this.choose(number);
        this.go(moment, "jump");
      } else this.render();
    }

    shut() {
      this.pause();
      if (this.panes) this.panes.close();
      this.panes = null;
    }

    say(text) {
      if (!this.note) {
        this.note = window.pagewalkViews.node("p", "pw-play-note");
        this.note.setAttribute("role", "status");
        this.details.querySelector("summary").after(this.note);
      }
      window.pagewalkViews.put(this.note, text);
    }

    /* ---- made once ---- */

    build() {
      const { node } = window.pagewalkViews;
      const { content } = this.film;
      this.stage = node("div", "pw-stage");
      this.stage.tabIndex = -1; // a click on the picture brings the keys here
      this.stage.setAttribute("role", "group");
      this.stage.setAttribute("aria-label", "Player: " + content.film.title);
      Object.assign(this, window.pagewalkBar.make(this, this.stage));
      const told = node("div", "pw-told", this.stage);
      const head = node("p", "pw-told-head", told);
      this.code = node("span", "pw-told-line", head);
      this.concept = node("span", "pw-told-concept", head);
      this.live = node("p", "pw-told-what", told);
      this.live.setAttribute("role", "status");
      this.live.setAttribute("aria-live", "polite");
      this.body = node("div", "pw-play-body", this.stage);
      this.note.replaceWith(this.stage);
      this.note = null;
      this.stage.addEventListener("keydown", (event) => this.key(event));
      this.choose(Math.max(0, this.numbered(content.film.focus)));
      const start = this.getAttribute("at");
      this.moment = start === null ? 0 : this.momentOf(Number(start));
    }

    /* The trace's number of the thread that is linear `number` in its block; -1 for none. */
    numbered(number) {
      return this.film.trace.threads.findIndex((thread) => thread.number === number);
    }

    /* Another thread: its moments, its picture, its values. */
    choose(number) {
      const { node, Lanes, Variables, Running, Shared } = window.pagewalkViews;
      const { film } = this;
      const variable = this.lanes ? this.lanes.variable : "";
      this.steps = new window.pagewalkTrace.Lockstep(film.trace, number);
      this.picker.value = String(number);
      this.body.replaceChildren();
      const left = node("div", "pw-play-left", this.body);
      this.picture = new window.pagewalkDraw.Picture(film, this.steps);
      if (this.picture.any) left.append(this.picture.node, window.pagewalkViews.legend(this.picture));
      const right = node("div", "pw-play-right", this.body);
      const running = film.content.scene.running.length ? node("div", "pw-running", right) : null;
      this.lanes = new Lanes(film, this.steps, node("div", "pw-warp", right), (thread) => this.take(thread));
      this.lanes.select.value = variable;
      this.lanes.variable = this.lanes.select.value;
      this.lanes.select.addEventListener("change", () => {
        this.lanes.variable = this.lanes.select.value;
        this.render();
      });
      const shared = new Shared(film, this.steps, node("div", "pw-shareds", right));
      const variables = new Variables(film, this.steps, node("div", "pw-play-vars", left));
      this.views = [this.lanes, variables, shared];
      if (running) this.views.push(new Running(film, this.steps, this.lanes, running));
      this.slider.setAttribute("aria-valuemax", String(this.steps.own.length));
      this.count.style.minWidth = 2 * String(this.steps.own.length).length + 3 + "ch"; // the track keeps its width
      this.paint();
    }

    /* The reader takes another thread: at its own time of the same place, or the nearest. */
    take(number) {
      const lane = this.steps.lanes.indexOf(number);
      const event = lane >= 0 ? this.steps.at[lane][this.moment] : this.steps.own[this.moment];
      this.pause();
      const inside = this.body.contains(document.activeElement);
      this.choose(number);
      if (inside) this.slider.focus({ preventScroll: true });
      this.go(this.momentOf(event), "step");
    }

    /* The moment at or before an event. */
    momentOf(event) {
      return Math.max(0, window.pagewalkTrace.below(this.steps.own, event + 1) - 1);
    }

    /* On the track, the moments that stand in the step's own concepts. */
    paint() {
      const wanted = new Set((this.getAttribute("concepts") || "").split(" ").filter(Boolean));
      const { own } = this.steps;
      const parts = [];
      let from = -1;
      own.concat(-1).forEach((event, moment) => {
        const inside = event >= 0 && wanted.size > 0 && this.conceptsAt(event).some((id) => wanted.has(id));
        if (inside && from < 0) from = moment;
        if (!inside && from >= 0) {
          parts.push([from, moment]);
          from = -1;
        }
      });
      this.bands.replaceChildren(...parts.map(([start, end]) => {
        const band = document.createElement("i");
        band.style.left = (100 * start) / own.length + "%";
        band.style.width = Math.max(0.3, (100 * (end - start)) / own.length) + "%";
        return band;
      }));
    }

    conceptsAt(event) {
      const line = this.film.trace.lineAt[event];
      return (this.film.content.regions[this.film.trace.file(event)] || [])
        .filter(([first, end]) => first <= line && line <= end).map(([, , id]) => id);
    }

    /* ---- moments ---- */

    step(by) {
      this.pause();
      this.go(this.moment + by, "step");
    }

    /* To a part of the way, 0 to 1: a hand on the track. */
    seek(part) {
      this.go(Math.round(Math.min(1, Math.max(0, part)) * (this.steps.own.length - 1)), "scrub");
    }

    /* `how`: step, play, scrub or jump. Only the first two move smoothly, and only a step is told and remembered. */
    go(moment, how) {
      const top = this.steps.own.length - 1;
      this.moment = Math.min(top, Math.max(0, moment));
      this.smooth = (how === "step" || how === "play") && !calm();
      this.rushing = how === "scrub";
      if (how === "scrub" || how === "play") this.later();
      else {
        this.quiet(false);
        this.render();
      }
      if (how === "step") this.remember();
      if (how === "play" && this.moment === top) this.pause();
    }

    /* Several moves within a frame are drawn once. */
    later() {
      if (this.frame) return;
      this.frame = window.requestAnimationFrame(() => {
        this.frame = 0;
        if (this.isConnected) this.render();
      });
    }

    render() {
      const { put, say } = window.pagewalkViews;
      const { trace, content } = this.film;
      const { own } = this.steps;
      const event = own[this.moment];
      const path = trace.file(event);
      const line = trace.lineAt[event];
      const text = (content.lines[path] || {})[line] || "";
      this.thumb.style.left = (100 * this.moment) / Math.max(1, own.length - 1) + "%";
      this.slider.setAttribute("aria-valuenow", String(this.moment + 1));
      this.slider.setAttribute("aria-valuetext", this.moment + 1 + " of " + own.length);
      put(this.count, this.moment + 1 + " / " + own.length);
      put(this.code, line ? path.split("/").pop() + ":" + line + "  " + text : "", path + ", line " + line);
      put(this.concept, (content.titles[this.conceptsAt(event)[0]] || "").replaceAll("`", ""));
      put(this.live, say(this.film, event));
      this.picture.update(this.moment, this.smooth);
      this.views.forEach((view) => view.update(this.moment));
      this.showCode(path, line);
      this.link.href = this.address();
    }

    /* Bringing code to the front costs more than a frame has: while the track is dragged, it waits for the hand to rest. */
    showCode(path, line) {
      window.clearTimeout(this.coding);
      const show = () => this.isConnected && this.panes && this.panes.show(path, line, this.smooth, Boolean(this.rushing));
      if (this.rushing) this.coding = window.setTimeout(show, CODE_REST);
      else show();
    }

    toggle() {
      if (this.timer) {
        this.pause();
        return;
      }
      if (this.moment === this.steps.own.length - 1) this.go(0, "jump");
      this.quiet(true);
      this.playButton.textContent = "❚❚";
      this.playButton.setAttribute("aria-label", "Pause");
      const tick = () => {
        this.timer = window.setTimeout(tick, 1000 / Number(this.pace.value));
        this.go(this.moment + 1, "play");
      };
      this.timer = window.setTimeout(tick, 0);
    }

    pause() {
      if (!this.timer) return;
      window.clearTimeout(this.timer);
      this.timer = 0;
      this.playButton.textContent = "▶";
      this.playButton.setAttribute("aria-label", "Play");
      this.settle();
    }

    /* After playing or scrubbing: tell where we are, and remember it. */
    settle() {
      if (!this.isConnected) return;
      this.quiet(false);
      this.rushing = false;
      this.render();
      const text = this.live.textContent;
      this.live.textContent = "";
      this.live.textContent = text;
      this.remember();
    }

    quiet(on) {
      this.live.setAttribute("aria-live", on ? "off" : "polite");
    }

    /* ---- the address ---- */

    address() {
      const focus = this.film.trace.threads[this.steps.focus].number;
      const thread = focus === this.film.content.film.focus ? "" : "&thread=" + focus;
      return "#" + this.getAttribute("anchor") + "&t=" + (this.moment + 1) + thread;
    }

    remember() {
      last = this;
      window.clearTimeout(this.writing);
      this.writing = window.setTimeout(() => { if (last === this && this.isConnected) this.write(); }, 250);
    }

    /* The reader asks for the link. */
    keep() {
      last = this;
      this.write();
    }

    write() {
      if (window.location.hash !== this.address()) window.history.replaceState(window.history.state, "", this.address());
    }

    /* ---- keys ---- */

    help() {
      this.keys.hidden = !this.keys.hidden;
      this.helper.setAttribute("aria-expanded", String(!this.keys.hidden));
    }

    key(event) {
      if (event.altKey || event.ctrlKey || event.metaKey || event.target.matches("select")) return;
      const by = event.shiftKey ? 10 : 1;
      const acts = {
        ArrowLeft: () => this.step(-by),
        ArrowRight: () => this.step(by),
        Home: () => this.step(-this.steps.own.length),
        End: () => this.step(this.steps.own.length),
        "?": () => this.help(),
      };
      if (!event.target.closest("button, a")) acts[" "] = () => this.toggle();
      if (!acts[event.key]) return;
      event.preventDefault();
      acts[event.key]();
    }
  }

  const players = () => Array.from(document.querySelectorAll("pagewalk-player"));
  window.addEventListener("hashchange", () => players().some((player) => player.follow && player.follow(window.location.hash)));

  /* The theme writes the heading in view into the address while a page scrolls: the moment is put back behind it. */
  let scrolling = 0;
  window.addEventListener("scroll", () => {
    window.clearTimeout(scrolling);
    scrolling = window.setTimeout(() => {
      if (last && last.stage && window.location.hash === "#" + last.getAttribute("anchor")) last.write();
    }, 600);
  }, { passive: true });

  window.pagewalkPlayer = { Player };
  window.customElements.define("pagewalk-player", Player);
})();
