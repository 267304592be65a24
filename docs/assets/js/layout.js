/* Pagewalk: the layout explorer, <pagewalk-layout>. It holds what is asked, shows the answer, and keeps the question in the
   address, so that it can be linked to: layout/?token=20&head=3. Listens on the document, once. Without this script the
   element shows the worked example that the build put into it. */
(function () {
  "use strict";
  const math = window.pagewalkLayout;
  if (!math || !math.views || window.customElements.get("pagewalk-layout")) return;
  const { LAYOUTS, KERNELS, DTYPES, LayoutError, views } = math;

  const START = {
    kernel: "classic-v1",
    geometry: { block_size: 16, head_size: 128, num_heads: 32, num_kv_heads: 8, dtype: "float16" },
    table: [7, 2, 5], token: 20, head: 3, channel: 10, layout: "classic-k", kind: "K", stray: null,
  };
  const MODELS = {
    "Llama-3-8B": { head_size: 128, num_heads: 32, num_kv_heads: 8, dtype: "bfloat16" },
    "Llama-3.2-1B": { head_size: 64, num_heads: 32, num_kv_heads: 8, dtype: "bfloat16" },
    "Qwen2.5-7B": { head_size: 128, num_heads: 28, num_kv_heads: 4, dtype: "bfloat16" },
    "Small, to count": { block_size: 8, head_size: 32, num_heads: 4, num_kv_heads: 2, dtype: "float32" },
  };
  /* Field -> what it sets; the names are those of the command line. */
  const SIZES = { "block-size": "block_size", "head-size": "head_size", heads: "num_heads", "kv-heads": "num_kv_heads" };
  const POINT = ["token", "head", "channel"];
  const FIELD_OF = {
    block_size: "block-size", head_size: "head-size", num_heads: "heads", num_kv_heads: "kv-heads", block_table: "table",
  };

  const all = (root, selector) => Array.from(root.querySelectorAll(selector));
  /* A number, or what was typed instead: the arithmetic refuses that, and shows it. */
  const whole = (words) => (/^\s*-?\d+\s*$/.test(words) ? Number(words) : words.trim());
  const explorerOf = (event) => (event.target instanceof Element ? event.target.closest("pagewalk-layout") : null);

  function copyOf(state) { return { ...state, geometry: { ...state.geometry }, table: state.table.slice() }; }

  /* The choice of layout must exist, and hold what is looked at. */
  function settled(state) {
    if (!Object.hasOwn(LAYOUTS, state.layout)) state.layout = "classic-k";
    const kinds = LAYOUTS[state.layout].kinds;
    if (!kinds.includes(state.kind)) state.kind = kinds[0];
    return state;
  }

  // -- the address

  function fromAddress(search) {
    const query = new URLSearchParams(search), state = copyOf(START);
    const words = (name) => { if (query.has(name)) state[name] = query.get(name); };
    words("kernel");
    if (query.has("dtype")) state.geometry.dtype = query.get("dtype");
    Object.entries(SIZES).forEach(([name, size]) => { if (query.has(name)) state.geometry[size] = whole(query.get(name)); });
    if (query.has("table")) state.table = query.get("table").split(",").map(whole);
    POINT.forEach((name) => { if (query.has(name)) state[name] = whole(query.get(name)); });
    if (Object.hasOwn(KERNELS, state.kernel)) state.layout = KERNELS[state.kernel].layouts[0];
    words("layout");
    words("kind");
    if (query.has("byte")) state.stray = whole(query.get("byte"));
    return query.has("byte") && !POINT.some((name) => query.has(name)) ? led(settled(state)) : state;
  }

  /* The point that the byte leads to, where it is one of the sequence's. */
  function led(state) {
    try {
      const found = math.locate(state.layout, state.geometry, state.table, state.stray);
      state.kind = found.kind;
      if (found.token !== null) Object.assign(state, { token: found.token, head: found.head, channel: found.channel });
    } catch (error) {
      if (!(error instanceof LayoutError)) throw error; // it is said when the state is shown
    }
    return state;
  }

  function fieldsOf(state) {
    const fields = { kernel: state.kernel };
    Object.entries(SIZES).forEach(([name, size]) => { fields[name] = state.geometry[size]; });
    return {
      ...fields, dtype: state.geometry.dtype, table: state.table.join(","), token: state.token, head: state.head, channel: state.channel,
    };
  }

  function toAddress(state) {
    const query = new URLSearchParams(fieldsOf(state));
    query.set("layout", state.layout);
    query.set("kind", state.kind);
    if (state.stray !== null) query.set("byte", state.stray);
    return "?" + query.toString().replaceAll("%2C", ",");
  }

  function command(state) {
    const fields = state.stray === null ? fieldsOf(state) : Object.fromEntries(
      Object.entries(fieldsOf(state)).filter(([name]) => !POINT.includes(name)).concat([["byte", state.stray]]));
    return "pagewalk layout" + Object.entries({ ...fields, layout: state.layout }).map(([name, value]) => " --" + name + " " + value).join("");
  }

  // -- the skeleton

  let made = 0;

  function field(id, name, label, control) {
    return "<label for=\"" + id + "-" + name + "\"><span>" + label + "</span>" + control.replace("*", "id=\"" + id + "-" + name + "\" name=\"" + name +
      "\" aria-describedby=\"" + id + "-error\"") + "</label>";
  }
  const number = "<input * type=\"text\" inputmode=\"numeric\" autocomplete=\"off\">";
  const options = (pairs) => pairs.map(([value, words]) => "<option value=\"" + value + "\">" + words + "</option>").join("");
  const select = (pairs) => "<select *>" + options(pairs) + "</select>";

  function slider(id, name, title, label, hint) {
    return "<section aria-labelledby=\"" + id + "-h-" + name + "\"><div class=\"pw-lx-head\"><h2 id=\"" + id + "-h-" + name + "\">" + title + "</h2>" +
      field(id, name, label, number) + "</div><div class=\"pw-lx-slider\" role=\"slider\" tabindex=\"0\" data-axis=\"" + name + "\" aria-label=\"" + label +
      "\" aria-valuemin=\"0\"></div><p class=\"pw-lx-words\">" + hint + "</p></section>";
  }

  const LEGEND = [
    ["own", "this element"], ["token", "same token, other channels"], ["channel", "same channel, other tokens"], ["near", "same head, others"],
    ["far", "another head"], ["kin", "the other of K and V"], ["free", "no token of this sequence"],
  ];

  function skeleton(id) {
    const legend = LEGEND.map(([style, words]) => "<li><svg class=\"pw-lx-svg\" width=\"14\" height=\"14\" aria-hidden=\"true\"><rect x=\"1\" y=\"1\" width=\"12\" height=\"12\" class=\"byte " +
      style + "\"/></svg> " + words + "</li>").join("");
    return "<form class=\"pw-lx-form\" aria-label=\"Kernel, sizes and block table\" novalidate>" +
      field(id, "model", "Sizes of", select([["", "my own"], ...Object.keys(MODELS).map((name) => [name, name])])) +
      field(id, "kernel", "Kernel", select(views.titles())) +
      field(id, "block-size", "Block size", number) + field(id, "head-size", "Head size", number) +
      field(id, "heads", "Query heads", number) + field(id, "kv-heads", "KV heads", number) +
      field(id, "dtype", "Element type", select(Object.keys(DTYPES).map((name) => [name, name]))) +
      field(id, "table", "Block table", "<input * type=\"text\" autocomplete=\"off\" spellcheck=\"false\">") +
      "</form><p class=\"pw-lx-error\" id=\"" + id + "-error\" role=\"alert\"></p><p class=\"pw-lx-say\" role=\"status\"></p>" +
      slider(id, "token", "Pick a token", "Token", "Above the tokens of the sequence, in blocks. Below them the block table, and where each entry leads in the pool.") +
      slider(id, "head", "Pick a head", "KV head", "Query heads above, the KV head that they share below.") +
      slider(id, "channel", "Pick a channel", "Channel", "One cell an element of the head. The shaded ones share a 16-byte group.") +
      "<section aria-labelledby=\"" + id + "-h-bytes\"><h2 id=\"" + id + "-h-bytes\">Its bytes in every layout</h2><p class=\"pw-lx-words\">Each bar is the 128-byte line that holds the element. " +
      "The frame is its 32-byte sector. Choose a layout, or click a cell to go there.</p><ul class=\"pw-lx-legend\">" + legend + "</ul><ol class=\"pw-lx-strips\"></ol></section>" +
      "<div class=\"pw-lx-both\"><section aria-labelledby=\"" + id + "-h-address\"><h2 id=\"" + id + "-h-address\">Its address, term by term</h2><div class=\"pw-lx-address\"></div></section>" +
      "<section aria-labelledby=\"" + id + "-h-back\"><div class=\"pw-lx-head\"><h2 id=\"" + id + "-h-back\">And back from a byte</h2>" +
      field(id, "byte", "Byte in <code class=\"pw-lx-in\"></code>", number) + "</div><p class=\"pw-lx-located\" role=\"status\"></p><div class=\"pw-lx-back\"></div></section></div>" +
      "<section aria-labelledby=\"" + id + "-h-who\"><h2 id=\"" + id + "-h-who\">Who touches it</h2><ul class=\"pw-lx-notes\"></ul><div class=\"pw-lx-loads\"></div></section>" +
      "<p class=\"pw-lx-command\">The same in the terminal: <code></code></p>";
  }

  // -- the element

  class PagewalkLayout extends HTMLElement {
    connectedCallback() {
      if (!this.root) {
        made += 1;
        this.root = document.createElement("div");
        this.root.className = "pw-lx";
        this.root.innerHTML = skeleton("pw-lx-" + made);
        this.append(this.root);
      }
      all(this, ".pw-lx-static").forEach((part) => { part.hidden = true; });
      this.state = copyOf(START);
      this.show(copyOf(START), false);
      if (window.location.search) this.show(fromAddress(window.location.search), false);
      this.watch = new ResizeObserver(() => { if (Math.abs(this.root.clientWidth - this.width) > 8) this.draw(); });
      this.watch.observe(this.root);
    }

    disconnectedCallback() { if (this.watch) this.watch.disconnect(); }

    part(name) { return this.root.querySelector(".pw-lx-" + name); }

    input(name) { return this.root.querySelector("[name=\"" + name + "\"]"); }

    /* Take a question if it can be answered; otherwise say why, and keep showing the last one. */
    show(state, remember = true) {
      try {
        settled(state);
        const found = math.explain(state.kernel, state.geometry, state.table, state.token, state.head, state.channel);
        const place = found.places.find((one) => one.layout === state.layout && one.kind === state.kind);
        const byte = state.stray === null ? place.first : state.stray;
        const located = math.locate(state.layout, state.geometry, state.table, byte);
        Object.assign(this, { state, found, place, byte, located });
        this.refuse(null);
      } catch (error) {
        if (!(error instanceof LayoutError)) throw error;
        this.refuse(error);
        return false;
      }
      this.fill();
      this.draw();
      if (remember) window.history.replaceState(window.history.state, "", toAddress(this.state) + window.location.hash);
      return true;
    }

    refuse(error) {
      const argument = error ? error.argument.replace(/\[.*/, "") : "", name = FIELD_OF[argument] || argument;
      all(this.root, "input, select").forEach((one) => one.toggleAttribute("aria-invalid", false));
      if (error && this.input(name)) this.input(name).setAttribute("aria-invalid", "true");
      this.part("error").textContent = error ? error.argument + " = " + (error.value === "" ? "nothing" : error.value) + ": " + error.must + "." : "";
    }

    /* Fields follow the state, except the one that is being typed into. */
    fill() {
      const values = { ...fieldsOf(this.state), byte: this.byte };
      values.table = this.state.table.join(", ");
      Object.entries(values).forEach(([name, value]) => {
        const one = this.input(name);
        if (one !== document.activeElement) one.value = value;
      });
      const now = this.state.geometry;
      const model = Object.entries(MODELS).find(([, sizes]) => Object.entries(sizes).every(([name, value]) => now[name] === value));
      if (this.input("model") !== document.activeElement) this.input("model").value = model ? model[0] : "";
    }

    draw() {
      const { state, found } = this, width = Math.max(this.root.clientWidth, 280);
      this.width = this.root.clientWidth;
      const last = { token: state.table.length * state.geometry.block_size - 1, head: state.geometry.num_kv_heads - 1, channel: state.geometry.head_size - 1 };
      const says = {
        token: "token " + found.token + ", logical block " + found.logical + ", physical block " + found.block + ", offset " + found.offset,
        head: "KV head " + found.head + ", of query heads " + views.span(found.first_query_head, found.last_query_head),
        channel: "channel " + found.channel,
      };
      const pictures = { token: views.tokenMap, head: views.headMap, channel: views.channelMap };
      POINT.forEach((name) => {
        const one = this.root.querySelector("[data-axis=\"" + name + "\"]");
        one.setAttribute("aria-valuemax", last[name]);
        one.setAttribute("aria-valuenow", state[name]);
        one.setAttribute("aria-valuetext", says[name]);
        one.innerHTML = pictures[name](state, found, width);
      });
      this.part("say").textContent = views.saying(found, this.place);
      this.keepFocus(() => { this.part("strips").innerHTML = views.strips(state, found); });
      this.part("address").innerHTML = views.address(this.place);
      this.part("in").textContent = state.layout;
      this.part("located").textContent = views.locatedWords(this.located);
      this.part("back").innerHTML = views.divisions(this.located);
      this.part("notes").innerHTML = views.notes(found) + this.strange();
      this.part("loads").innerHTML = views.loadsOf(state, found).map((load) => views.loadView(found.kernel, load, width)).join("");
      this.part("command").querySelector("code").textContent = command(state);
    }

    /* A layout that the kernel does not touch can be looked at; then it is said. */
    strange() {
      const theirs = KERNELS[this.state.kernel].layouts;
      return theirs.includes(this.state.layout) ? "" : "<li>" + this.state.kernel + " does not touch " + this.state.layout + ". It knows " + theirs.join(", ") + ".</li>";
    }

    keepFocus(change) {
      const at = document.activeElement, button = at && at.closest ? at.closest(".pw-lx-row button") : null;
      change();
      if (button && this.contains(this.root)) {
        const again = this.root.querySelector(".pw-lx-row button[data-layout=\"" + button.dataset.layout + "\"][data-kind=\"" + button.dataset.kind + "\"]");
        if (again) again.focus({ preventScroll: true });
      }
    }

    change(changes) { return this.show({ ...copyOf(this.state), stray: null, ...changes }); }

    /* What the form says; the point is moved inside where sizes shrink under it. */
    read(name) {
      if (name === "byte") { this.readByte(); return; }
      const next = { ...copyOf(this.state), stray: null };
      if (name === "model") Object.assign(next.geometry, MODELS[this.input("model").value] || {});
      else {
        next.kernel = this.input("kernel").value;
        next.geometry.dtype = this.input("dtype").value;
        Object.entries(SIZES).forEach(([field, size]) => { next.geometry[size] = whole(this.input(field).value); });
        next.table = this.input("table").value.split(/[\s,]+/).filter(Boolean).map(whole);
      }
      if (name === "kernel" && !KERNELS[next.kernel].layouts.includes(next.layout)) next.layout = KERNELS[next.kernel].layouts[0];
      if (POINT.includes(name)) POINT.forEach((one) => { next[one] = whole(this.input(one).value); });
      else {
        next.token = views.clamp(next.token, 0, Math.max(0, next.table.length * next.geometry.block_size - 1) || 0);
        next.head = views.clamp(next.head, 0, Math.max(0, next.geometry.num_kv_heads - 1) || 0);
        next.channel = views.clamp(next.channel, 0, Math.max(0, next.geometry.head_size - 1) || 0);
      }
      this.show(next);
    }

    readByte() { this.toByte(this.state.layout, whole(this.input("byte").value)); }

    /* Go where a byte leads; where it is none of the sequence's, say so and stay. */
    toByte(layout, byte) {
      if (this.show(led({ ...copyOf(this.state), layout, stray: byte })) && this.located.token !== null && this.located.inside === 0) {
        this.state.stray = null;
        window.history.replaceState(window.history.state, "", toAddress(this.state) + window.location.hash);
        this.part("command").querySelector("code").textContent = command(this.state);
      }
    }

    press(axis, key) {
      const big = { token: this.state.geometry.block_size, head: 1, channel: 16 / DTYPES[this.state.geometry.dtype][0] }[axis];
      const last = Number(this.root.querySelector("[data-axis=\"" + axis + "\"]").getAttribute("aria-valuemax")), now = this.state[axis];
      const to = {
        ArrowRight: now + 1, ArrowUp: now + 1, ArrowLeft: now - 1, ArrowDown: now - 1, PageUp: now + big, PageDown: now - big, Home: 0, End: last,
      }[key];
      if (to === undefined) return false;
      this.change({ [axis]: views.clamp(to, 0, last) });
      return true;
    }

    pick(target) {
      const cell = target.closest("[data-token], [data-head], [data-channel], [data-byte]");
      const button = target.closest("button[data-layout]");
      if (button) this.change({ layout: button.dataset.layout, kind: button.dataset.kind });
      else if (cell && cell.dataset.byte !== undefined) this.toByte(cell.dataset.in, Number(cell.dataset.byte));
      else if (cell) POINT.forEach((name) => { if (cell.dataset[name] !== undefined) this.change({ [name]: Number(cell.dataset[name]) }); });
    }
  }

  document.addEventListener("click", (event) => {
    const explorer = explorerOf(event);
    if (explorer) explorer.pick(event.target);
  });
  /* A link that asks the explorer of the same page something; the theme would load the page anew. */
  document.addEventListener("click", (event) => {
    const link = event.target instanceof Element ? event.target.closest("a[data-lx]") : null, explorer = document.querySelector("pagewalk-layout");
    if (!link || !explorer || event.ctrlKey || event.metaKey || event.shiftKey || event.altKey) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    explorer.show(fromAddress(new URL(link.href).search));
    explorer.scrollIntoView({ block: "start", behavior: window.matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth" });
  }, true);
  ["input", "change"].forEach((kind) => document.addEventListener(kind, (event) => {
    const explorer = explorerOf(event), list = event.target instanceof HTMLSelectElement;
    if (explorer && event.target.name && list === (kind === "change")) explorer.read(event.target.name);
  }));
  document.addEventListener("focusout", (event) => {
    const explorer = explorerOf(event);
    if (explorer && event.target.name && !event.target.hasAttribute("aria-invalid")) window.setTimeout(() => explorer.isConnected && explorer.fill(), 0);
  });
  document.addEventListener("submit", (event) => { if (explorerOf(event)) event.preventDefault(); });
  document.addEventListener("keydown", (event) => {
    const explorer = explorerOf(event), one = explorer && event.target.closest("[data-axis]");
    if (!one || event.altKey || event.ctrlKey || event.metaKey) return;
    if (explorer.press(one.dataset.axis, event.key)) { event.preventDefault(); event.stopPropagation(); }
  });

  window.customElements.define("pagewalk-layout", PagewalkLayout);
})();
