/* Pagewalk: the pictures and tables of the layout explorer, as text. Pure: what is shown follows from what is given.
   Cells that can be chosen carry data-token, data-head, data-channel or data-byte; layout.js listens. */
(function () {
  "use strict";
  const math = window.pagewalkLayout;
  if (!math || math.views) return;
  const { LAYOUTS, KERNELS, SECTOR, LINE, div } = math;

  const count = (number, one) => number + " " + one + (number === 1 ? "" : "s");
  const span = (first, last) => (first === last ? String(first) : first + " to " + last);
  const range = (first, end) => Array.from({ length: Math.max(0, end - first) }, (_, at) => first + at);
  const clamp = (value, low, high) => Math.max(low, Math.min(high, value));
  const round = (value) => Math.round(value * 10) / 10;

  function rect(x, y, w, h, style, more) {
    return "<rect x=\"" + round(x) + "\" y=\"" + round(y) + "\" width=\"" + round(Math.max(w, 0.5)) + "\" height=\"" + round(h) +
      "\" class=\"" + style + "\"" + (more || "") + "/>";
  }
  function text(x, y, words, style) {
    return "<text x=\"" + round(x) + "\" y=\"" + round(y) + "\" class=\"" + (style || "") + "\">" + words + "</text>";
  }
  function svg(width, height, inside, style) {
    return "<svg class=\"pw-lx-svg " + (style || "") + "\" viewBox=\"0 0 " + round(width) + " " + round(height) + "\" width=\"" + round(width) +
      "\" height=\"" + round(height) + "\" aria-hidden=\"true\" focusable=\"false\">" + inside + "</svg>";
  }

  /* Numbers of a long row that are drawn: `fit` of them, with the chosen one among them. */
  function windowOf(many, chosen, fit) {
    const first = clamp(chosen - div(fit, 2), 0, Math.max(0, many - fit));
    return range(first, Math.min(many, first + fit));
  }

  // -- tokens, block table, pool

  function cells(x, y, width, size, columns, lit, extra) {
    const side = width / columns;
    return range(0, size).map((offset) => {
      const style = "cell" + (offset === lit ? " own" : "");
      return rect(x + (offset % columns) * side, y + div(offset, columns) * side, side - 1, side - 1, style, extra(offset));
    }).join("");
  }

  /* Logical blocks with their tokens, the block table under them, and the way of each entry into the pool. */
  function tokenMap(state, found, width) {
    const size = state.geometry.block_size, table = state.table;
    const columns = size <= 8 ? Math.min(size, 4) : size <= 16 ? 8 : 16;
    const fit = clamp(div(width, 108), 2, 8), shown = windowOf(table.length, found.logical, fit);
    const gap = 12, step = Math.min((width + gap) / shown.length, 190), box = step - gap;
    const rows = Math.ceil(size / columns), side = box / columns, tall = rows * side;
    const yTable = 18 + tall + 16, yPool = yTable + 24 + 62;
    const pool = poolOf(table, shown), poolStep = Math.min(width / pool.length, 150), poolBox = poolStep - 6;
    const xOf = (block) => pool.indexOf(block) * poolStep;
    let out = "";
    shown.forEach((logical, at) => {
      const x = at * step, block = table[logical], own = logical === found.logical;
      const mid = x + box / 2, goal = xOf(block) + poolBox / 2;
      out += text(x, 11, (logical === shown[0] ? "tokens " : "") + logical * size + "–" + ((logical + 1) * size - 1), "soft");
      out += cells(x, 18, box, size, columns, own ? found.offset : -1, (offset) => " data-token=\"" + (logical * size + offset) + "\"");
      out += "<path class=\"way" + (own ? " on" : "") + "\" d=\"M" + round(mid) + " " + (yTable + 24) + " C" + round(mid) + " " + (yTable + 58) + " " +
        round(goal) + " " + (yPool - 40) + " " + round(goal) + " " + (yPool - 14) + "\"/>";
      out += rect(x, yTable, box, 24, "entry" + (own ? " on" : ""), " data-token=\"" + (logical * size + found.offset) + "\"");
      const named = own && box > 120 ? "block_table[" + logical + "] = " + block : String(block);
      out += text(mid, yTable + 16, named, "mid mono" + (own ? " bold" : ""));
    });
    pool.forEach((block, at) => {
      const x = at * poolStep;
      if (block === null) { out += text(x + poolBox / 2, yPool + 14, "…", "mid soft"); return; }
      const logical = table.indexOf(block), own = block === found.block;
      const to = logical < 0 ? "" : " data-token=\"" + (logical * size + found.offset) + "\"";
      out += rect(x, yPool, poolBox, 22, "block" + (own ? " on" : logical < 0 ? " free" : ""), to);
      if (own) out += rect(x + found.offset * poolBox / size, yPool, Math.max(poolBox / size, 2), 22, "own");
      out += text(x + poolBox / 2, yPool - 3, own && poolBox > 60 ? "block " + block : String(block), "mid mono small" + (own ? " bold" : " soft"));
    });
    return svg(width, yPool + 26, out, "pw-lx-map");
  }

  /* The blocks that the pool's row shows: all of a small one, else those that are pointed at, with gaps (null). */
  function poolOf(table, shown) {
    const most = table.reduce((high, block) => Math.max(high, block), 0);
    if (most < 12) return range(0, most + 1);
    const named = shown.map((logical) => table[logical]).sort((a, b) => a - b);
    return named.flatMap((block, at) => (block > (at ? named[at - 1] + 1 : 0) ? [null, block] : [block]));
  }

  // -- heads and channels

  function headMap(state, found, width) {
    const many = state.geometry.num_kv_heads, group = state.geometry.num_heads / many;
    const fit = clamp(div(width, 52), 1, 16), shown = windowOf(many, found.head, fit);
    const step = Math.min(width / shown.length, 90), box = step - 6, drawn = Math.min(group, 8);
    let out = "";
    shown.forEach((head, at) => {
      const x = at * step, own = head === found.head, data = " data-head=\"" + head + "\"";
      range(0, drawn).forEach((query) => {
        const each = box / drawn;
        out += rect(x + query * each, 0, each - 1.5, 12, "query" + (own ? " on" : ""), data);
        out += "<path class=\"way" + (own ? " on" : "") + "\" d=\"M" + round(x + query * each + each / 2) + " 12 L" + round(x + box / 2) + " 30\"/>";
      });
      out += rect(x, 30, box, 24, "entry" + (own ? " on" : ""), data);
      out += text(x + box / 2, 46, String(head), "mid mono" + (own ? " bold" : ""));
    });
    return svg(width, 56, out);
  }

  function channelMap(state, found, width) {
    const many = state.geometry.head_size, x = 16 / math.DTYPES[state.geometry.dtype][0];
    const columns = Math.min(many, width < 520 ? 32 : 64), side = Math.min(width / columns, 14);
    const out = range(0, many).map((channel) => {
      const style = "cell" + (channel === found.channel ? " own" : div(channel, x) === div(found.channel, x) ? " group" : div(channel, x) % 2 ? " odd" : "");
      return rect((channel % columns) * side, div(channel, columns) * side, side - 1, side - 1, style, " data-channel=\"" + channel + "\"");
    });
    return svg(columns * side, Math.ceil(many / columns) * side, out.join(""));
  }

  // -- the bytes around the element

  /* What lies in a run of bytes: each element with what it belongs to. Past the cache's end there is nothing. */
  function elementsOf(state, array, first, bytes) {
    const size = math.DTYPES[state.geometry.dtype][0];
    return range(0, bytes / size).map((at) => (first + at * size < array.bytes ? array.at(first + at * size) : null));
  }

  function kindOfCell(found, place, element) {
    if (!element) return "past";
    if (element.element === place.element) return "own";
    if (element.token === null) return "free";
    if (element.kind !== place.kind) return "kin";
    if (element.head !== found.head) return "far";
    if (element.token === found.token) return "token";
    return element.channel === found.channel ? "channel" : "near";
  }

  function strip(state, found, place, array) {
    const from = place.line * LINE, elements = elementsOf(state, array, from, LINE), size = LINE / elements.length;
    const unit = 5, break_ = 8, width = LINE * unit + 3 * break_;
    let out = rect((place.sector % 4) * (SECTOR * unit + break_) - 3, 0, SECTOR * unit + 6, 30, "sector");
    out += elements.map((element, at) => {
      const x = at * size * unit + div(at * size, SECTOR) * break_;
      const to = element && element.token !== null ? " data-byte=\"" + (from + at * size) + "\" data-in=\"" + place.layout + "\"" : "";
      return rect(x, 4, size * unit - 1, 22, "byte " + kindOfCell(found, place, element), to);
    }).join("");
    return "<svg class=\"pw-lx-svg pw-lx-strip\" viewBox=\"-4 0 " + (width + 8) + " 30\" preserveAspectRatio=\"none\" aria-hidden=\"true\" focusable=\"false\">" + out + "</svg>";
  }

  /* The element's sector in words: whose numbers 32 bytes hold. */
  function sectorWords(state, place, array) {
    const held = elementsOf(state, array, place.sector * SECTOR, SECTOR).filter((one) => one && one.token !== null);
    const many = (name, one) => {
      const values = held.map((element) => element[name]), low = Math.min(...values), high = Math.max(...values);
      return low === high ? one + " " + low : one + "s " + low + "–" + high;
    };
    return [many("token", "token"), many("channel", "channel")].join(", ") + (new Set(held.map((one) => one.head)).size > 1 ? ", " + many("head", "head") : "");
  }

  function strips(state, found) {
    return found.places.map((place) => {
      const array = math.locator(place.layout, state.geometry, state.table);
      const own = place.layout === state.layout && place.kind === state.kind;
      return "<li class=\"pw-lx-row" + (own ? " on" : "") + "\"><button type=\"button\" data-layout=\"" + place.layout + "\" data-kind=\"" + place.kind +
        "\" aria-pressed=\"" + own + "\"><b>" + place.kind + "</b> " + LAYOUTS[place.layout].title + "</button>" + strip(state, found, place, array) +
        "<p class=\"pw-lx-words\">byte <code>" + place.first + "</code>, sector <code>" + place.sector + "</code>: " + sectorWords(state, place, array) + "</p></li>";
    }).join("");
  }

  // -- tables

  function table(caption, head, rows, style) {
    const cell = (words, at) => (at ? "<td>" + words + "</td>" : "<th scope=\"row\">" + words + "</th>");
    return "<div class=\"pw-lx-scroll\" role=\"region\" tabindex=\"0\" aria-label=\"" + caption + "\"><table class=\"pw-lx-table " + (style || "") + "\"><caption>" +
      caption + "</caption><thead><tr>" + head.map((name) => "<th scope=\"col\">" + name + "</th>").join("") + "</tr></thead><tbody>" +
      rows.map((row) => "<tr>" + row.map(cell).join("") + "</tr>").join("") + "</tbody></table></div>";
  }

  function address(place) {
    const rows = place.terms.map((term) => [term.axis, term.how, term.index + " × " + term.stride, term.factor, term.product]);
    const out = table(
      place.kind + " in " + place.layout, ["axis", "index", "index × stride", "stride is", "product"],
      [...rows, ["element", "", "", "sum", "<b>" + place.element + "</b>"]], "terms",
    );
    const size = place.last - place.first + 1, last = place.in_sector + size - 1, run = place.run;
    const lies = run.pieces === 1
      ? "This token's channels of the head are one run of " + count(run.size, "byte") + "."
      : "This token's channels of the head lie in " + run.pieces + " pieces of " + count(run.size, "byte") + ", " + run.apart + " bytes apart.";
    return out + "<p>" + place.element + " × " + count(size, "byte") + " = byte <b>" + place.first + "</b>. It is " + (size > 1 ? "bytes " : "byte ") + span(place.in_sector, last) +
      " of sector " + place.sector + ", in line " + place.line + ". " + lies + "</p>";
  }

  function divisions(located) {
    const rows = located.divisions.map((one) => [one.axis, one.rest + " // " + one.stride, one.index, one.stride > 1 ? one.rest % one.stride : ""]);
    return table("Back by division, from element " + located.element, ["axis", "rest // stride", "index", "rest left"], rows, "terms");
  }

  function locatedWords(located) {
    const what = "Byte " + located.inside + " of " + located.kind + ", KV head " + located.head + ", channel " + located.channel;
    const where = " Physical block " + located.block + ", offset " + located.offset + ", slot " + located.slot + ".";
    if (located.token !== null) return what + ", token " + located.token + "." + where;
    return what + ". Block " + located.block + " is not in this block table: it is no token of this sequence." + where;
  }

  // -- the warp

  /* Lanes above, the sectors that they ask for below in the order of memory, and a line from each lane to its bytes. */
  function warp(load, width) {
    const each = width / 32, sectors = [...new Set(load.lanes.flatMap((lane) => (lane
      ? range(div(lane.first, SECTOR), div(lane.first + lane.size - 1, SECTOR) + 1) : [])))].sort((a, b) => a - b);
    const gaps = sectors.map((sector, at) => (at && sector !== sectors[at - 1] + 1 ? 1 : 0)), gap = 5;
    const wide = (width - gap * gaps.reduce((a, b) => a + b, 0)) / sectors.length;
    let at = 0;
    const left = new Map(sectors.map((sector, n) => { at += gaps[n] * gap + (n ? wide : 0); return [sector, at]; }));
    const xOf = (byte) => left.get(div(byte, SECTOR)) + (byte % SECTOR) * wide / SECTOR;
    const high = 26, low = 100;
    let out = sectors.map((sector) => rect(left.get(sector), low, wide - 1, 22, "sector")).join("");
    load.lanes.forEach((lane, number) => {
      const own = number === load.lane, x = number * each;
      const to = lane ? " data-byte=\"" + lane.first + "\" data-in=\"" + load.layout + "\"" : "";
      out += rect(x, 2, each - 1.5, high - 2, "lane" + (own ? " own" : lane ? "" : " idle"), to);
      if (each > 16 || number % 8 === 0) out += text(x + each / 2, 18, String(number), "mid mono small" + (own ? " inverse" : ""));
      if (!lane) return;
      const start = xOf(lane.first), end = xOf(lane.first + lane.size - 1) + wide / SECTOR;
      out += rect(start, low + 3, end - start - 0.6, 16, "piece" + (own ? " own" : ""), to);
      out += "<path class=\"way" + (own ? " on" : "") + "\" d=\"M" + round(x + each / 2) + " " + high + " C" + round(x + each / 2) + " 60 " +
        round((start + end) / 2) + " 66 " + round((start + end) / 2) + " " + low + "\"/>";
    });
    return svg(width, low + 24, out, "pw-lx-warp");
  }

  function loadView(kernel, load, width) {
    const head = "<h3>" + kernel + " " + load.does + " " + load.kind + " (" + load.layout + ")</h3>";
    const steps = table("The way to the lane: " + load.kind + " in " + load.layout, ["name", "how", "value"], load.steps.map((step) => [step.name, step.how, step.value]), "terms");
    if (load.missing) return head + "<p class=\"pw-lx-missing\">✘ " + load.missing + "</p>" + (load.steps.length ? steps : "");
    const asked = load.lanes.reduce((sum, lane) => sum + (lane ? lane.size : 0), 0);
    return head + "<p><b>Thread " + load.thread + "</b>: warp " + load.warp + ", lane " + load.lane + ". It " + load.does + " " +
      count(load.vector, "element") + " at once, " + count(load.size, "byte") + " from byte " + load.first + " on. At the same time the whole warp " +
      (load.does === "loads" ? "asks for " : "writes ") + count(asked, "byte") + " in <b>" + count(load.sectors, "sector") + "</b>.</p>" + warp(load, width) +
      "<p class=\"pw-lx-words\">Lanes above, the 32-byte sectors that they touch below, in the order of memory. Thread blocks: " + load.blocks + ".</p>" + steps;
  }

  /* The kernel's accesses that belong to what is looked at: of a kernel with many layouts, only the chosen one's. */
  function loadsOf(state, found) {
    const own = found.loads.filter((load) => load.layout === state.layout);
    return found.loads.length <= 2 || !own.length ? found.loads.slice(0, 2) : own;
  }

  function saying(found, place) {
    return "Token " + found.token + " is in logical block " + found.logical + ". block_table[" + found.logical + "] is physical block " + found.block +
      ". There it has offset " + found.offset + ", so its slot is " + found.slot + ". In " + place.layout + ", " + place.kind + " of its channel " +
      found.channel + " is at byte " + place.first + ".";
  }

  const notes = (found) => found.notes.map((note) => "<li>" + note + "</li>").join("");
  const titles = () => Object.values(KERNELS).map((kernel) => [kernel.id, kernel.title]);

  math.views = {
    address, channelMap, clamp, divisions, headMap, loadView, loadsOf, locatedWords, notes, saying, span, strips, table, titles, tokenMap,
  };
})();
