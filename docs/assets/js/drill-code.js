/* Pagewalk: mending a kernel on its page. Where the live server allows code, an editor takes the place of the port's pane,
   and Run sends its text there, to be run and judged. What the reader wrote is kept in this browser, a text a drill: of
   two tabs, who goes on in one goes on with what was written last.
   The server's key comes behind the # of the address that the terminal shows; it is kept in this browser and sent to
   nobody else. */
(function () {
  "use strict";
  const live = window.pagewalkLive;
  const editor = window.pagewalkEditor;
  const failures = window.pagewalkFailures;
  if (!live || !editor || !failures || window.pagewalkCode) return;

  const KEY = "pagewalk-code-key";
  const TEXT = "pagewalk-fix:";
  const { element, button } = live;
  const runs = new Map(); // drill -> what its last run told, and whether it still goes on
  const bare = new Map(); // what the browser did not take when it was last written: what it holds is older
  const KEPT = "What you write is kept in this browser and never written into the checkout. Run sends it to this server.";
  const LOST = "What you write is not kept: this browser has no room for it, or keeps nothing. It lasts until the page is " +
    "closed or loaded anew, and is never written into the checkout. Run sends it to this server.";
  const ELSEWHERE = "Another tab has changed this text. The next key that you press here takes it over from there first.";

  /* ---- what is kept in this browser ---- */

  function kept(name) {
    if (bare.has(name)) return bare.get(name);
    try {
      return window.localStorage.getItem(name);
    } catch (error) {
      return null;
    }
  }

  function keep(name, value) {
    try {
      if (value === null) window.localStorage.removeItem(name);
      else window.localStorage.setItem(name, value);
      bare.delete(name);
    } catch (error) {
      bare.set(name, value); // full, or not allowed: it lasts until the page is closed
    }
  }

  /* A short mark of a text: enough to see that the port has changed since. */
  function markOf(text) {
    let mark = 5381;
    for (let at = 0; at < text.length; at += 1) mark = (mark * 33 + text.charCodeAt(at)) >>> 0;
    return mark.toString(36) + "-" + text.length;
  }

  function textOf(drill, start) {
    try {
      const found = JSON.parse(kept(TEXT + drill) || "null");
      if (found && typeof found.text === "string") return { text: found.text, old: found.of !== markOf(start) };
    } catch (error) { /* not ours: the start will do */ }
    return { text: start, old: false };
  }

  function keepText(drill, start, text) {
    keep(TEXT + drill, text === start ? null : JSON.stringify({ of: markOf(start), text }));
  }

  /* The key behind the #, taken out of the address at once: a copied address must not carry it. */
  function keyInAddress() {
    const found = /^#code=([\w-]+)$/.exec(window.location.hash);
    if (!found) return "";
    window.history.replaceState(window.history.state, "", window.location.pathname + window.location.search);
    return found[1];
  }

  function ask(options, key) {
    return live.ask("code", { ...options, headers: { "X-Pagewalk-Key": (key || kept(KEY) || "").replace(/[^\x21-\x7e]/g, "") } });
  }

  /* What the server says of this page, with the key that was kept, or with another; null where it says nothing. */
  async function about(key) {
    const response = await ask({}, key).catch(() => null);
    return response && response.ok ? response.json() : null;
  }

  /* A key is kept once the server knows it: a link of somebody else's must not take the place of the right one. */
  async function tryKey(key) {
    const said = key && live.token() ? await about(key) : null;
    if (said && said.key) keep(KEY, key);
  }

  /* ---- what stands on the page ---- */

  const mount = () => document.querySelector(".pw-fix[data-fix]");
  const startOf = (box) => box.querySelector(".pw-fix-start").content.textContent;
  const areaOf = (box) => document.getElementById(areaId(box));
  const areaId = (box) => "pw-ed-" + box.dataset.fix.replace("/", "-");

  function sideOf(box) {
    const pair = document.getElementById(box.dataset.pair);
    return pair ? pair.querySelector(".pw-side-port") : null;
  }

  function say(box, words) {
    box.querySelector(".pw-fix-note").textContent = words;
  }

  /* Whether another tab has written what does not stand here. */
  const isStale = (box) => textOf(box.dataset.fix, startOf(box)).text !== areaOf(box).value;

  function sayKept(box) {
    say(box, isStale(box) ? ELSEWHERE : bare.has(TEXT + box.dataset.fix) ? LOST : KEPT);
  }

  /* The server runs code, but not for a page without its key: it can be typed in, or the whole address. */
  function keyForm(box) {
    if (box.querySelector(".pw-fix-key")) return;
    const form = element("form", "pw-fix-key");
    const label = element("label", "", "The key, or the whole address that the terminal shows");
    const field = element("input");
    Object.assign(field, { id: "pw-fix-key", type: "password", autocomplete: "one-time-code", required: true });
    label.htmlFor = field.id;
    form.append(label, field, button("pw-live-button", "Use it", "submit"));
    box.querySelector(".pw-fix-note").after(form);
  }

  function build(box, server) {
    const start = startOf(box);
    const drill = box.dataset.fix;
    const found = textOf(drill, start);
    const made = editor.make({
      id: areaId(box), label: box.dataset.file, start, text: found.text, first: Number(box.dataset.first),
      last: Number(box.dataset.last),
      onInput: (text) => {
        keepText(drill, start, text);
        sayKept(box);
      },
      onRun: () => run(drill),
    });
    const bar = element("p", "pw-live-bar pw-ed-bar");
    const cancel = button("pw-live-button pw-live-cancel pw-ed-cancel", "Cancel");
    cancel.hidden = true;
    bar.append(button("pw-live-button pw-ed-run", "Run"), " ", cancel, " ", button("pw-live-button pw-ed-reset", "Start again"),
      " ", element("span", "pw-live-where", "on this machine, with your rights: " + server.device));
    const said = element("p", "pw-live-said");
    said.setAttribute("role", "status");
    said.setAttribute("aria-live", "polite");
    made.element.append(bar, said, element("div", "pw-fix-first"), element("div", "pw-fix-rate"));
    const side = sideOf(box);
    side.append(made.element);
    side.classList.add("pw-ed-on");
    const table = live.tableOf("every check");
    const fold = element("details", "pw-fold pw-fix-checks");
    fold.hidden = true;
    fold.append(element("summary"), table);
    box.append(fold);
    box.classList.add("pw-fix-live");
    sayKept(box);
    if (found.old) said.textContent = "The port has changed since you wrote this. Start again takes the new one.";
    editor.ready(made.area);
    show(drill);
  }

  /* ---- what a run has told ---- */

  function show(drill) {
    const box = mount();
    const told = runs.get(drill);
    if (!box || box.dataset.fix !== drill || !told || !areaOf(box)) return;
    const side = sideOf(box);
    const said = side.querySelector(".pw-live-said");
    if (said.textContent !== told.text) said.textContent = told.text;
    said.dataset.state = told.state;
    side.querySelector(".pw-ed-cancel").hidden = !told.going;
    const first = side.querySelector(".pw-fix-first");
    const mark = told.number + (told.failure ? " wrong" : "");
    if (first.dataset.mark !== mark) {
      first.dataset.mark = mark;
      first.replaceChildren(...(told.failure ? [failures.card(told.failure)] : []));
      failures.light(document.getElementById(box.dataset.pair), told.failure);
    }
    const row = side.querySelector(".pw-fix-rate");
    if (row.childElementCount !== Number(told.rates.length > 0)) row.replaceChildren(...ratings(told));
    const fold = box.querySelector(".pw-fix-checks");
    const body = fold.querySelector("tbody");
    if (body.dataset.run !== String(told.number)) {
      body.replaceChildren();
      body.dataset.run = String(told.number);
    }
    told.rows.slice(body.rows.length).forEach((event) => live.addRow(body, event));
    fold.hidden = told.rows.length === 0;
    fold.querySelector(".pw-live-table").hidden = false;
    fold.querySelector("caption").textContent = "Observed just now on " + told.where;
    fold.querySelector("summary").textContent = told.rows.length === 1 ? "1 check" : told.rows.length + " checks";
  }

  const HANDLE = {
    queued(told, event) { told.text = told.place = "Waiting: place " + event.place + " of " + event.of + "."; },
    started(told) {
      told.place = "";
      told.text = "Starting a process for this run.";
    },
    running(told, event) {
      told.where = event.backend === "sim" ? event.device : event.device + ", driver " + event.driver;
      told.text = "Running on " + told.where + ".";
    },
    launch(told, event) { told.text = "Running on " + told.where + ": launch " + event.number + ", " + event.kernel + "."; },
    // The note says in which step or case it was.
    check(told, event) { told.rows.push({ ...event, note: [event.note, event.where].filter(Boolean).join("; ") }); },
    measured(told, event) { told.rows.push(event); },
    verdict(told, event) {
      told.state = event.status;
      told.failure = event.status === "passed" ? null : event.failure || { message: event.message || "It did not hold." };
      const count = event.held + " of " + event.checks + (event.checks === 1 ? " check holds" : " checks hold");
      told.text = { passed: "✔ Passed", failed: "✘ Not yet", error: "✘ It does not run" }[event.status] + ": " + count + ", in " +
        event.seconds + " s on " + (told.where || "this machine") + ".";
    },
    ended(told, event) {
      if (event.message) {
        told.text = event.message;
        told.state = event.reason === "cancelled" ? "" : "error";
      }
    },
  };

  async function follow(drill, told, text) {
    const response = await ask({ method: "POST", body: JSON.stringify({ drill, text }) });
    if (!response.ok) {
      const problem = await live.refusal(response);
      Object.assign(told, { text: "Not run: " + problem.text.replace(/\.$/, "") + ".", state: "error" });
      return;
    }
    let ended = false;
    for await (const line of live.linesOf(response)) {
      const event = JSON.parse(line);
      told.id = event.run;
      if (HANDLE[event.event]) HANDLE[event.event](told, event);
      ended = ended || event.event === "ended";
      show(drill);
    }
    if (!ended) Object.assign(told, { text: "The server went away in the middle of the run.", state: "error" });
  }

  let count = 0;

  async function run(drill) {
    const before = runs.get(drill);
    const box = mount();
    if (!box || !areaOf(box)) return;
    if (before && before.going) {
      before.text = before.place ? "Already asked for. " + before.place : "It is being run already.";
      show(drill);
      return;
    }
    count += 1;
    const told = { number: count, rows: [], text: "Asking the server.", state: "", going: true, place: "", where: "",
      failure: null, rates: [], took: 0, begun: Date.now() };
    runs.set(drill, told);
    show(drill);
    try {
      await follow(drill, told, areaOf(box).value);
    } catch (error) {
      Object.assign(told, { state: "error", text: "The server does not answer. Is `pagewalk site serve` still running?" });
    }
    told.going = false;
    show(drill);
    if (told.state === "passed") rate(drill, told);
  }

  /* Who has mended it may note it in the drills, which are kept in this browser, and is asked again when it is due. */
  async function rate(drill, told) {
    const drills = window.PagewalkDrill;
    if (!drills || !drills.ready) return;
    await drills.ready().catch(() => null);
    if (!drills.keep || !drills.fsrs || runs.get(drill) !== told) return;
    const now = Date.now();
    const labels = drills.fsrs.labels(drills.keep.entry(drill).card, now);
    told.rates = Object.keys(labels).map((rating) => ({ rating: Number(rating), word: drills.fsrs.RATINGS[rating], back: labels[rating] }));
    told.took = now - told.begun;
    show(drill);
  }

  function note(drill, rating) {
    const told = runs.get(drill);
    const chosen = told && told.rates.find((one) => one.rating === rating);
    if (!chosen) return;
    window.PagewalkDrill.keep.append({ what: "review", item: drill, when: Date.now(), rating, form: "file", seed: 0, took: told.took });
    told.rates = [];
    told.text = "Noted in your drills as " + chosen.word + ": it comes back in " + chosen.back + ".";
    show(drill);
    sideOf(mount()).querySelector(".pw-ed-run").focus(); // the button that was pressed has gone
  }

  function ratings(told) {
    if (!told.rates.length) return [];
    const row = element("p", "pw-live-bar");
    row.append("How well did you know it? ");
    told.rates.forEach(({ rating, word, back }) => {
      const made = button("pw-live-button pw-fix-rating", word);
      made.dataset.rating = rating;
      made.append(" ", element("span", "pw-live-where", back));
      row.append(made, " ");
    });
    return [row];
  }

  async function stop(drill) {
    const told = runs.get(drill);
    if (!told || !told.going || !told.id) return;
    told.text = "Ending the run.";
    show(drill);
    await live.ask("runs/" + encodeURIComponent(told.id), { method: "DELETE" }).catch(() => null);
  }

  /* ---- the page ---- */

  function click(event) {
    const box = mount();
    const target = event.target instanceof Element ? event.target.closest("button") : null;
    if (!box || !target || !areaOf(box)) return;
    if (target.matches(".pw-ed-run")) run(box.dataset.fix);
    if (target.matches(".pw-ed-cancel")) {
      stop(box.dataset.fix);
      sideOf(box).querySelector(".pw-ed-run").focus(); // Cancel goes away under the focus
    }
    if (target.matches(".pw-ed-reset")) {
      editor.replaceAll(areaOf(box), startOf(box));
      editor.goTo(areaOf(box), Number(box.dataset.first), false);
      sideOf(box).querySelector(".pw-live-said").textContent = "As it was at the start. Undo brings your text back.";
    }
    if (target.matches(".pw-fix-rating")) note(box.dataset.fix, Number(target.dataset.rating));
    if (target.matches(".pw-fix-jump")) editor.goTo(areaOf(box), Number(target.dataset.line), true);
  }

  /* The first key in a tab whose text another one has changed: that text comes in its place, and can be undone. */
  function takeOver(event) {
    const box = mount();
    const area = box && areaOf(box);
    if (!area || event.target !== area || !event.cancelable || !isStale(box)) return;
    event.preventDefault();
    event.stopPropagation();
    editor.replaceAll(area, textOf(box.dataset.fix, startOf(box)).text);
    sideOf(box).querySelector(".pw-live-said").textContent =
      "This is the text of the other tab; the key did no more than bring it. Undo brings yours back.";
  }

  /* Keys that change the text without a `beforeinput` that could be held back. */
  function key(event) {
    const undoes = (event.ctrlKey || event.metaKey) && /^[zy]$/i.test(event.key);
    if (undoes || event.key === "Tab" || event.key === "Enter") takeOver(event);
  }

  function changedElsewhere(event) {
    const box = mount();
    if (box && areaOf(box) && (event.key === null || event.key === TEXT + box.dataset.fix)) sayKept(box);
  }

  function submit(event) {
    const form = event.target instanceof Element ? event.target.closest(".pw-fix-key") : null;
    if (!form) return;
    event.preventDefault();
    page(form.querySelector("input").value.trim().split("#code=").pop());
  }

  async function page(typed) {
    const key = keyInAddress() || (typeof typed === "string" ? typed : "");
    await tryKey(key);
    const box = mount();
    if (!box || !live.token() || areaOf(box)) return;
    const said = await about();
    // A server that was started again, or is gone; or the reader has walked on meanwhile.
    if (!said || box !== mount() || areaOf(box)) return;
    const form = box.querySelector(".pw-fix-key");
    if (!said.allowed) say(box, said.why + ".");
    else if (!said.key) {
      say(box, (key ? "That is not this server’s key. " : "") + said.why + ".");
      keyForm(box);
    } else {
      if (form) form.remove();
      build(box, said);
    }
  }

  document.addEventListener("click", click);
  document.addEventListener("submit", submit);
  document.addEventListener("beforeinput", takeOver, true);
  document.addEventListener("keydown", key, true);
  window.addEventListener("storage", changedElsewhere);
  window.addEventListener("hashchange", () => page());

  window.pagewalkCode = { page };
  if (window.document$ && window.document$.subscribe) window.document$.subscribe(() => page());
  else if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", () => page());
  else page();
})();
