/* Pagewalk: where an element of a paged KV cache lies, and back from a byte. A port of kernels/explorer with its names: a
   test holds both equal over thousands of random points. No page and no state; every number is exact below 2^53.
   layout-lanes.js goes on with the threads. */
(function () {
  "use strict";
  if (window.pagewalkLayout) return;

  const SECTOR = 32, LINE = 128, VECTOR_BYTES = 16;
  const MOST_BLOCKS = 4096, MOST_BLOCK_NUMBER = 2 ** 31 - 1, MOST_BYTES = 2 ** 53;
  const DTYPES = { float32: [4, 4], float16: [2, 2], bfloat16: [2, 2], fp8: [1, 2] };
  const MOST = { block_size: 256, head_size: 1024, num_heads: 1024, num_kv_heads: 1024 };

  const NHD = ["block", "token", "head", "channel"], HND = ["block", "head", "token", "channel"];
  const LAYOUTS = byId([
    { id: "classic-k", title: "Classic K, with x", kinds: ["K"], axes: ["block", "head", "group", "token", "x"] },
    { id: "classic-v", title: "Classic V", kinds: ["V"], axes: ["block", "head", "channel", "token"] },
    { id: "nhd-k", title: "NHD, K apart", kinds: ["K"], axes: NHD },
    { id: "nhd-v", title: "NHD, V apart", kinds: ["V"], axes: NHD },
    { id: "hnd-k", title: "HND, K apart", kinds: ["K"], axes: HND },
    { id: "hnd-v", title: "HND, V apart", kinds: ["V"], axes: HND },
    { id: "side-nhd", title: "NHD, K and V side by side", kinds: ["K", "V"], axes: ["block", "token", "head", "kv", "channel"] },
    { id: "side-hnd", title: "HND, K and V side by side", kinds: ["K", "V"], axes: ["block", "head", "token", "kv", "channel"] },
    { id: "tiny", title: "tiny-vllm", kinds: ["K", "V"], axes: ["block", "kv", "token", "head", "channel"] },
  ]);
  const SIZE_NAMES = { head: "num_kv_heads", token: "block_size", group: "head_size / x", x: "x", channel: "head_size", kv: "2" };

  class LayoutError extends Error {
    constructor(argument, value, must) {
      super(argument + " = " + value + ": " + must);
      Object.assign(this, { argument, value, must });
    }
  }

  function byId(list) { return Object.fromEntries(list.map((made) => [made.id, made])); }
  const div = (a, b) => Math.floor(a / b);
  const mod = (a, b) => ((a % b) + b) % b;
  const step = (name, how, value) => ({ name, how, value });

  // -- what is given (geometry.py)

  function within(argument, value, low, high, why) {
    if (!Number.isInteger(value) || value < low || value > high) {
      throw new LayoutError(argument, value, "must be an integer from " + low + " to " + high + (why || ""));
    }
    return value;
  }

  function multiple(argument, value, of, what) {
    if (value % of) throw new LayoutError(argument, value, "must be divisible by " + what + " = " + of);
  }

  /* The sizes with what follows from them; throws LayoutError. */
  function geometry(given) {
    Object.keys(MOST).forEach((name) => within(name, given[name], 1, MOST[name]));
    if (!Object.hasOwn(DTYPES, given.dtype)) {
      throw new LayoutError("dtype", given.dtype, "must be " + Object.keys(DTYPES).join(", "));
    }
    multiple("num_heads", given.num_heads, given.num_kv_heads, "num_kv_heads");
    const [itemsize, computed] = DTYPES[given.dtype], x = VECTOR_BYTES / itemsize;
    multiple("head_size", given.head_size, x, "x");
    const { block_size, head_size, num_heads, num_kv_heads, dtype } = given;
    return {
      block_size, head_size, num_heads, num_kv_heads, dtype, itemsize, computed, x,
      group: num_heads / num_kv_heads,
      block_elements: num_kv_heads * head_size * block_size,
    };
  }

  function checkTable(table, g) {
    if (table.length < 1 || table.length > MOST_BLOCKS) {
      throw new LayoutError("block_table", table, "must name 1 to " + MOST_BLOCKS + " physical blocks");
    }
    const seen = new Map();
    let largest = -1;
    table.forEach((block, entry) => {
      within("block_table[" + entry + "]", block, 0, MOST_BLOCK_NUMBER);
      if (seen.has(block)) {
        const must = "is there already, as entry " + seen.get(block) + "; a sequence has a block once";
        throw new LayoutError("block_table[" + entry + "]", block, must);
      }
      seen.set(block, entry);
      largest = Math.max(largest, block);
    });
    const most = div(MOST_BYTES, 2 * g.block_elements * g.itemsize) - 1;
    if (largest > most) {
      const must = "must be at most " + most + ", or the cache has more than 2^53 bytes";
      throw new LayoutError("block_table[" + seen.get(largest) + "]", largest, must);
    }
    return table;
  }

  function checkPoint(g, table, token, head, channel) {
    const held = ": " + table.length + " blocks of " + g.block_size + " tokens";
    within("token", token, 0, table.length * g.block_size - 1, held);
    within("head", head, 0, g.num_kv_heads - 1, ": a KV head");
    within("channel", channel, 0, g.head_size - 1);
  }

  // -- places (places.py)

  function layoutOf(name) {
    if (!Object.hasOwn(LAYOUTS, name)) throw new LayoutError("layout", name, "must be " + Object.keys(LAYOUTS).join(", "));
    return LAYOUTS[name];
  }

  const isClassic = (made) => made.id.startsWith("classic");

  function strides(made, g) {
    const many = { head: g.num_kv_heads, token: g.block_size, group: g.head_size / g.x, x: g.x, channel: g.head_size, kv: 2, block: 1 };
    const found = {};
    let next = 1;
    made.axes.slice().reverse().forEach((axis) => { found[axis] = next; next *= many[axis]; });
    return found;
  }

  function strideName(made, axis) {
    if (isClassic(made) && (axis === "block" || axis === "head")) return "kv_" + axis + "_stride";
    return made.axes.slice(made.axes.indexOf(axis) + 1).map((later) => SIZE_NAMES[later]).join(" * ") || "1";
  }

  function byteOf(made, g, block, head, offset, channel, kind) {
    const at = { block, head, token: offset, channel, group: div(channel, g.x), x: channel % g.x, kv: kind === "V" ? 1 : 0 };
    return Object.entries(strides(made, g)).reduce((sum, [axis, stride]) => sum + at[axis] * stride, 0) * g.itemsize;
  }

  function place(made, g, table, token, head, channel, kind) {
    const logical = div(token, g.block_size), block = "block_table[" + logical + "]";
    const indices = {
      block: [block, table[logical]],
      head: ["KV head " + head, head],
      token: [token + " % " + g.block_size, token % g.block_size],
      group: [channel + " // " + g.x, div(channel, g.x)],
      x: [channel + " % " + g.x, channel % g.x],
      channel: ["channel " + channel, channel],
      kv: [kind === "K" ? "K first" : "V second", kind === "V" ? 1 : 0],
    };
    const found = strides(made, g);
    const terms = made.axes.map((axis) => {
      const [how, index] = indices[axis], stride = found[axis];
      return { axis, how, index, factor: strideName(made, axis), stride, product: index * stride };
    });
    const element = terms.reduce((sum, term) => sum + term.product, 0), first = element * g.itemsize;
    return {
      layout: made.id, kind, terms, element, first, last: first + g.itemsize - 1,
      sector: div(first, SECTOR), in_sector: first % SECTOR, line: div(first, LINE), run: runOf(made, g),
    };
  }

  function runOf(made, g) {
    const length = made.axes.includes("x") ? g.x : 1;
    const apart = strides(made, g)[length > 1 || made.axes.includes("x") ? "group" : "channel"];
    if (apart === length || length === g.head_size) return { pieces: 1, size: g.head_size * g.itemsize, apart: 0 };
    return { pieces: g.head_size / length, size: length * g.itemsize, apart: apart * g.itemsize };
  }

  /* A layout's array: its bytes, and `at`, which says what a byte belongs to. What does not depend on the byte is done once. */
  function locator(name, given, table) {
    const made = layoutOf(name), g = geometry(given), found = strides(made, g), size = found.block * g.itemsize;
    const blocks = checkTable(table, g).reduce((most, block) => Math.max(most, block), 0) + 1;
    const entries = new Map(table.map((block, entry) => [block, entry]));
    const at = (byte) => {
      within("byte", byte, 0, blocks * size - 1, ": " + blocks + " blocks of " + size + " bytes");
      const element = div(byte, g.itemsize), index = { kv: 0 };
      let rest = element;
      const divisions = made.axes.map((axis) => {
        const one = { axis, rest, stride: found[axis], index: div(rest, found[axis]) };
        index[axis] = one.index;
        rest %= found[axis];
        return one;
      });
      const logical = entries.has(index.block) ? entries.get(index.block) : null;
      return {
        layout: name, kind: made.kinds[index.kv], token: logical === null ? null : logical * g.block_size + index.token,
        logical, block: index.block, offset: index.token, slot: index.block * g.block_size + index.token, head: index.head,
        channel: "channel" in index ? index.channel : index.group * g.x + index.x, element, inside: byte % g.itemsize, divisions,
      };
    };
    return { bytes: blocks * size, at };
  }

  const cacheBytes = (name, given, table) => locator(name, given, table).bytes;
  const locate = (name, given, table, byte) => locator(name, given, table).at(byte);

  window.pagewalkLayout = {
    LAYOUTS, DTYPES, MOST, SECTOR, LINE, LayoutError,
    byId, div, mod, step, within, multiple, geometry, checkTable, checkPoint, strides, byteOf, place, locator, locate, cacheBytes,
  };
})();
