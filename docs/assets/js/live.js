/* Pagewalk: runs a step here and now, where the page comes from `pagewalk site serve`.
   That server puts a token into each page; without it this script does nothing, and the page says how to run live.
   What has been run is kept by step, so that it is still there after a walk to another page and back. */
(function () {
  "use strict";
  if (window.pagewalkLive) return;

  const BASE = "/-/live/";
  const runs = new Map(); // step -> what its last run told, and whether it still goes on
  let known = null; // what can be run, asked for once

  const all = (root, selector) => Array.from(root.querySelectorAll(selector));
  const meta = (name) => document.querySelector('meta[name="' + name + '"]');
  const token = () => (meta("pagewalk-live") ? meta("pagewalk-live").content : "");

  function element(name, className, text) {
    const made = document.createElement(name);
    if (className) made.className = className;
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function button(className, text, type) {
    const made = element("button", className, text);
    made.type = type || "button";
    return made;
  }

  function ask(path, options) {
    const json = options && options.body ? { "Content-Type": "application/json" } : {};
    const headers = { "X-Pagewalk-Token": token(), ...json, ...(options && options.headers) };
    return window.fetch(BASE + path, { ...options, headers, cache: "no-store" });
  }

  async function refusal(response) {
    const body = await response.json().catch(() => ({}));
    return { text: body.error || "the server answered " + response.status, field: body.field || "" };
  }

  /* ---- what a step's box shows ---- */

  function fieldOf(offer, box) {
    const id = "pw-live-" + box.dataset.step.replace("/", "-") + "-" + offer.name;
    const label = element("label", "", offer.label);
    label.htmlFor = id;
    const row = element("div", "pw-live-field");
    let input;
    if (offer.kind === "choice") {
      input = element("select");
      offer.options.forEach((option, place) => {
        const made = element("option", "", String(option));
        made.value = String(place);
        made.selected = option === offer.default;
        input.append(made);
      });
    } else {
      input = element("input");
      input.type = offer.kind === "whole" ? "number" : "text";
      input.value = offer.kind === "whole" ? offer.default : offer.default.join(", ");
      if (offer.kind === "whole") Object.assign(input, { min: offer.low, max: offer.high, step: 1 });
      else input.autocomplete = "off";
      const hint = element("small", "", offer.kind === "whole"
        ? offer.low + " to " + offer.high
        : "1 to " + offer.most + " numbers from " + offer.low + " to " + offer.high + ", with commas");
      hint.id = id + "-hint";
      input.setAttribute("aria-describedby", hint.id);
      row.append(hint);
    }
    Object.assign(input, { id, name: offer.name });
    row.prepend(label);
    row.append(input);
    return row;
  }

  function formOf(offer, box) {
    const fold = element("details", "pw-fold pw-live-case");
    fold.append(element("summary", "", "Change the case"));
    const form = element("form");
    form.noValidate = true; // the server says what is wrong, in words
    form.append(element("p", "pw-hint", "This runs the kernel that the step reads, " + offer.kernel +
      ", on a fresh case, and checks it against the float64 oracle. Bounded, so that it answers soon: " + offer.limit + "."));
    const grid = element("div", "pw-live-fields");
    offer.fields.forEach((field) => grid.append(fieldOf(field, box)));
    form.append(grid, button("pw-live-button", "Run this case", "submit"));
    fold.append(form);
    return fold;
  }

  function valuesOf(form, offer) {
    const values = {};
    offer.fields.forEach((field) => {
      const text = form.elements[field.name].value.trim();
      if (field.kind === "choice") values[field.name] = field.options[Number(text)];
      else if (field.kind === "whole") values[field.name] = text === "" || isNaN(Number(text)) ? text : Number(text);
      else values[field.name] = text.split(/[\s,]+/).filter(Boolean).map((part) => (isNaN(Number(part)) ? part : Number(part)));
    });
    return values;
  }

  function tableOf(title) {
    const holder = element("div", "pw-table pw-live-table");
    Object.assign(holder, { tabIndex: 0, hidden: true });
    holder.setAttribute("role", "region");
    holder.setAttribute("aria-label", "Values of this run: " + title);
    const table = element("table", "pw-evidence");
    table.append(element("caption", "", "Observed just now"));
    const head = table.createTHead().insertRow();
    ["Check", "Observed", "Expected", "Error", "Tolerance", "Verdict"].forEach((name) => {
      const cell = element("th", "", name);
      cell.scope = "col";
      head.append(cell);
    });
    table.createTBody();
    holder.append(table);
    return holder;
  }

  function boxOf(step, title) {
    const box = element("section", "pw-live");
    box.dataset.step = step;
    box.setAttribute("aria-label", "Run: " + title);
    const bar = element("p", "pw-live-bar");
    const run = button("pw-live-button pw-live-run", "Run");
    run.append(element("span", "pw-sr", " the step: " + title));
    const cancel = button("pw-live-button pw-live-cancel", "Cancel");
    cancel.append(element("span", "pw-sr", " the run of: " + title));
    cancel.hidden = true;
    bar.append(run, " ", cancel, " ", element("span", "pw-live-where", "on this machine: " + known.device));
    const said = element("p", "pw-live-said");
    said.setAttribute("role", "status");
    said.setAttribute("aria-live", "polite");
    box.append(bar);
    const offer = known.offers[known.steps[step]];
    if (offer) box.append(formOf(offer, box));
    box.append(said, tableOf(title));
    return box;
  }

  function digits(number) {
    if (number === null) return "not comparable";
    // As the recorded tables have them: 0.25, 0.0029, 1.2e-07.
    if (number === 0 || Math.abs(number) >= 1e-4) return String(Number(number.toPrecision(2)));
    return number.toExponential(1).replace(/\.0(?=e)/, "").replace(/e([+-])(\d)$/, "e$10$2");
  }

  function addRow(body, event) {
    const row = body.insertRow();
    const name = element("th", "", event.name);
    name.scope = "row";
    if (event.note) name.append(element("span", "pw-check-note", event.note));
    row.append(name);
    const check = event.event === "check";
    const cells = check
      ? [event.observed, event.expected, digits(event.max_error), digits(event.tolerance)]
      : [event.text, "–", "–", "–"];
    cells.forEach((text, index) => {
      const cell = element("td", index < 2 ? "pw-value" : "pw-number", text);
      cell.dataset.label = ["Observed", "Expected", "Error", "Tolerance"][index];
      row.append(cell);
    });
    const verdict = check ? (event.passed ? "passed" : "failed") : "measured";
    const last = element("td");
    last.dataset.label = "Verdict";
    const mark = element("span", "", { passed: "✔", failed: "✘", measured: "≈" }[verdict]);
    mark.setAttribute("aria-hidden", "true");
    const word = element("span", "pw-verdict pw-verdict-" + verdict);
    word.append(mark, " " + verdict);
    last.append(word);
    row.append(last);
  }

  /* Bring a step's box up to what its run has told. Rows are added, never drawn again. */
  function show(step) {
    const box = all(document, ".pw-live").find((other) => other.dataset.step === step);
    const run = runs.get(step);
    if (!box || !run) return;
    const said = box.querySelector(".pw-live-said");
    if (said.textContent !== run.text) said.textContent = run.text;
    said.dataset.state = run.state;
    box.querySelector(".pw-live-cancel").hidden = !run.going;
    const holder = box.querySelector(".pw-live-table");
    const body = holder.querySelector("tbody");
    if (body.dataset.run !== String(run.number)) {
      body.replaceChildren();
      body.dataset.run = String(run.number);
    }
    run.rows.slice(body.rows.length).forEach((event) => addRow(body, event));
    holder.hidden = run.rows.length === 0;
    if (run.caption) holder.querySelector("caption").textContent = run.caption;
    all(box, "form [name]").forEach((input) => {
      if (input.name === run.field) input.setAttribute("aria-invalid", "true");
      else input.removeAttribute("aria-invalid");
    });
  }

  /* ---- a run ---- */

  const HANDLE = {
    queued(run, event) {
      run.place = "Waiting: place " + event.place + " of " + event.of + ".";
      run.text = run.place;
    },
    started(run) {
      run.place = "";
      run.text = "Starting a process for this run.";
    },
    running(run, event) {
      run.where = event.backend === "sim" ? event.device : event.device + ", driver " + event.driver;
      run.text = "Running on " + run.where + ".";
      run.caption = (run.changed ? "A changed case, observed" : "Observed") + " just now on " + run.where;
    },
    launch(run, event) {
      run.text = "Running on " + run.where + ": launch " + event.number + ", " + event.kernel + ".";
    },
    check(run, event) { run.rows.push(event); },
    measured(run, event) { run.rows.push(event); },
    verdict(run, event) {
      run.state = event.status;
      const count = event.held + " of " + event.checks + (event.checks === 1 ? " check holds" : " checks hold");
      run.text = { passed: "✔ Passed", failed: "✘ Failed", error: "✘ Error" }[event.status] + ": " + count + ", in " +
        event.seconds + " s on " + run.where + "." + (event.message ? " " + event.message : "");
    },
    ended(run, event) {
      if (event.message) {
        run.text = event.message;
        run.state = event.reason === "cancelled" ? "" : "error";
      }
    },
  };

  async function* linesOf(response) {
    const reader = response.body.pipeThrough(new window.TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      yield* lines.filter(Boolean);
    }
  }

  async function follow(step, run, parameters) {
    const body = JSON.stringify(parameters ? { step, parameters } : { step });
    const response = await ask("runs", { method: "POST", body });
    if (!response.ok) {
      const problem = await refusal(response);
      const offer = known.offers[known.steps[step]];
      const field = offer && offer.fields.find((other) => other.name === problem.field);
      if (field) problem.text = problem.text.replace(field.name, field.label); // the reader sees labels only
      Object.assign(run, { text: "Not run: " + problem.text + ".", state: "error", field: problem.field });
      return;
    }
    let ended = false;
    for await (const line of linesOf(response)) {
      const event = JSON.parse(line);
      run.id = event.run;
      HANDLE[event.event](run, event);
      ended = ended || event.event === "ended";
      show(step);
    }
    if (!ended) Object.assign(run, { text: "The server went away in the middle of the run.", state: "error" });
  }

  let count = 0;

  async function start(step, parameters) {
    const before = runs.get(step);
    if (before && before.going) {
      before.text = before.place ? "Already asked for. " + before.place : "This step is being run already.";
      show(step);
      return;
    }
    count += 1;
    const run = { number: count, rows: [], text: "Asking the server.", state: "", going: true, place: "", where: "", field: "",
      changed: Boolean(parameters) };
    runs.set(step, run);
    show(step);
    try {
      await follow(step, run, parameters);
    } catch (error) {
      Object.assign(run, { state: "error", text: "The server does not answer. Is `pagewalk site serve` still running?" });
    }
    run.going = false;
    show(step);
  }

  async function stop(step) {
    const run = runs.get(step);
    if (!run || !run.going || !run.id) return;
    run.text = "Ending the run.";
    show(step);
    await ask("runs/" + encodeURIComponent(run.id), { method: "DELETE" }).catch(() => null);
  }

  /* ---- the page ---- */

  function stepOf(event) {
    const box = event.target instanceof Element ? event.target.closest(".pw-live") : null;
    return box ? box.dataset.step : "";
  }

  function click(event) {
    const step = stepOf(event);
    if (!step) return;
    if (event.target.closest(".pw-live-run")) start(step, null);
    if (event.target.closest(".pw-live-cancel")) {
      stop(step);
      event.target.closest(".pw-live").querySelector(".pw-live-run").focus(); // Cancel goes away under the focus
    }
  }

  function submit(event) {
    const step = stepOf(event);
    if (!step) return;
    event.preventDefault();
    start(step, valuesOf(event.target, known.offers[known.steps[step]]));
  }

  /* The last of a step's own elements that its box follows: the recorded values. */
  function placeOf(heading) {
    for (let next = heading.nextElementSibling; next && next.tagName !== "H2"; next = next.nextElementSibling) {
      if (next.matches(".pw-table") && next.querySelector("table.pw-evidence")) return next;
    }
    return null;
  }

  function boxes() {
    const top = document.querySelector(".md-content h1[id]");
    if (!top) return;
    all(document, '.md-content h2[id^="step-"]').forEach((heading) => {
      const step = top.id + "/" + heading.id.slice("step-".length);
      const place = placeOf(heading);
      if (!place || !(step in known.steps) || all(document, ".pw-live").some((box) => box.dataset.step === step)) return;
      const title = heading.firstChild ? heading.textContent.replace(/¶$/, "").trim() : step;
      place.after(boxOf(step, title));
      show(step);
    });
    all(document, ".pw-live-note").forEach((note) => { note.hidden = true; });
  }

  async function page() {
    if (!token() || !document.querySelector('.md-content h2[id^="step-"]')) return;
    if (!known) {
      const response = await ask("steps").catch(() => null);
      if (!response || !response.ok) return; // a server that was started again, or is gone: the note stays
      known = await response.json();
    }
    boxes();
  }

  /* With --watch, a page comes again when it was built again. */
  function watch() {
    const build = meta("pagewalk-build");
    if (!build) return;
    window.setInterval(async () => {
      const response = await ask("build").catch(() => null);
      if (!response || !response.ok) return;
      const now = await response.json();
      if (String(now.build) !== build.content) window.location.reload();
    }, 1500);
  }

  document.addEventListener("click", click);
  document.addEventListener("submit", submit);
  watch();

  window.pagewalkLive = { page, token, ask, refusal, linesOf, tableOf, addRow, element, button };
  if (window.document$ && window.document$.subscribe) window.document$.subscribe(page);
  else if (document.readyState === "loading") document.addEventListener("DOMContentLoaded", page);
  else page();
})();
