/* Pagewalk: which thread and lane touches an element, in each kernel, and everything that is said of one element. The
   second half of the port of kernels/explorer (work, lanes, writers, explain); layout-math.js comes first. */
(function () {
  "use strict";
  const math = window.pagewalkLayout;
  if (!math || math.explain) return;
  const { LAYOUTS, SECTOR, LayoutError, byId, div, mod, step, multiple, geometry, checkTable, checkPoint, strides, byteOf, place } = math;

  const WARP = 32, NUM_THREADS = 128, PARTITION_SIZE = 512, MAX_WRITER_THREADS = 512, VECTOR_BYTES = 16, TINY_INT = 2 ** 31;
  const HEAD_SIZES = [32, 64, 80, 96, 112, 120, 128, 192, 256];
  const TINY = { block_size: 16, head_size: 64, num_heads: 32, num_kv_heads: 8, dtype: "bfloat16" };
  const CLASSIC = ["classic-k", "classic-v"];
  const FLASH = ["nhd-k", "nhd-v", "hnd-k", "hnd-v", "side-nhd", "side-hnd"];
  const KERNELS = byId([
    { id: "classic-v1", title: "vLLM's classic kernel, v1", layouts: CLASSIC, work: classic },
    { id: "classic-v2", title: "vLLM's classic kernel, v2", layouts: CLASSIC, work: classic },
    { id: "reshape-and-cache", title: "vLLM's writer, classic layout", layouts: CLASSIC, work: classicWriter },
    { id: "reshape-and-cache-flash", title: "vLLM's writer, NHD and HND", layouts: FLASH, work: flashWriter },
    { id: "paged-2d", title: "The 2d kernel that vLLM runs today", layouts: CLASSIC, work: tiles },
    { id: "tiny-vllm", title: "tiny-vllm's kernel", layouts: ["tiny"], work: tiny },
  ]);

  // -- the shape of an access (work.py)

  function finished(layout, kind, does, blocks, thread, vector, element, steps, ofLane) {
    const lanes = Array.from({ length: WARP }, (_, lane) => {
      const found = ofLane(lane);
      return found ? { first: found[0], size: found[1] } : null;
    });
    const touched = new Set();
    lanes.forEach((lane) => {
      if (!lane) return;
      for (let at = div(lane.first, SECTOR); at <= div(lane.first + lane.size - 1, SECTOR); at += 1) touched.add(at);
    });
    const own = lanes[thread % WARP];
    return {
      layout, kind, does, blocks, thread, warp: div(thread, WARP), lane: thread % WARP, vector, element,
      first: own.first, size: own.size, lanes, sectors: touched.size, steps, missing: "",
    };
  }

  function nobody(layout, kind, does, steps, missing) {
    return {
      layout, kind, does, blocks: "", thread: -1, warp: -1, lane: -1, vector: 0, element: 0, first: -1, size: 0,
      lanes: [], sectors: 0, steps, missing,
    };
  }

  function byteAt(p, made, kind, head, offset, channel, logical) {
    return byteOf(made, p.g, p.table[logical === undefined ? p.logical : logical], head, offset, channel, kind);
  }

  function queryHeads(p) {
    const first = p.head * p.g.group, last = first + p.g.group - 1;
    return first === last ? String(first) : first + " to " + last;
  }

  // -- readers (lanes.py)

  function classic(kernel, made, kind, p) {
    const warps = NUM_THREADS / WARP, steps = [];
    let blocks = "blockIdx.x = " + queryHeads(p) + " (query heads), blockIdx.y = the sequence", ordinal = p.logical;
    if (kernel.id === "classic-v2") {
      const per = div(PARTITION_SIZE, p.g.block_size), partition = div(p.logical, per);
      ordinal = p.logical % per;
      blocks += ", blockIdx.z = " + partition + " (partition)";
      steps.push(
        step("partition_idx", p.logical + " // " + per + " blocks a partition", partition),
        step("block in the partition", p.logical + " % " + per, ordinal),
      );
    }
    const warp = ordinal % warps;
    steps.push(step("warp_idx", ordinal + " % " + warps + " warps", warp));
    return (kind === "K" ? classicKeys : classicValues)(made, p, blocks, warp, steps);
  }

  function threadGroupSize(size) {
    if (WARP % size && size % WARP) {
      throw new LayoutError("block_size", size, "must divide the warp of 32 lanes or be a multiple of it");
    }
    return Math.max(div(WARP, size), 1);
  }

  function classicKeys(made, p, blocks, warp, steps) {
    const size = p.g.block_size, e = p.g.computed, group = threadGroupSize(size);
    const vec = Math.max(div(VECTOR_BYTES / e, group), 1);
    multiple("head_size", p.g.head_size, group, "group_size");
    multiple("head_size", p.g.head_size, group * vec, "group_size * vec_size");
    const groups = WARP / group, vecIdx = div(p.channel, vec), inside = p.channel % vec;
    const turn = div(vecIdx, group), member = vecIdx % group, inWarp = p.offset % groups;
    const again = mod(div(p.offset, groups) - warp, size / groups), lane = inWarp * group + member, thread = warp * WARP + lane;
    if (size > groups) {
      steps.push(step("i", "(" + p.offset + " // " + groups + " - " + warp + ") % " + size / groups, again));
    }
    steps.push(
      step("THREAD_GROUP_SIZE", "max(32 lanes // " + size + " tokens, 1)", group),
      step("VEC_SIZE", "max(16 bytes // " + group + " threads // " + e + " bytes, 1)", vec),
      step("thread group in the warp", p.offset + " % " + groups, inWarp),
      step("vec_idx", p.channel + " // " + vec, vecIdx),
      step("thread_group_offset", vecIdx + " % " + group, member),
      step("j", vecIdx + " // " + group, turn),
      step("lane", inWarp + " * " + group + " + " + member, lane),
      step("thread_idx", warp + " * 32 + " + lane, thread),
      step("element of the vector", p.channel + " % " + vec, inside),
    );
    return finished(made.id, "K", "loads", blocks, thread, vec, inside, steps, (lane) => {
      const offset = (warp * groups + div(lane, group) + again * WARP) % size;
      return [byteAt(p, made, "K", p.head, offset, (lane % group + turn * group) * vec), vec * p.g.itemsize];
    });
  }

  function classicValues(made, p, blocks, warp, steps) {
    const size = p.g.block_size, e = p.g.computed, vec = Math.min(VECTOR_BYTES / e, size);
    multiple("block_size", size, vec, "v_vec_size");
    const perRow = size / vec;
    if (WARP % perRow) {
      throw new LayoutError("block_size", size, "must give rows of " + perRow + " loads that divide the warp of 32 lanes");
    }
    const rows = WARP / perRow, turn = div(p.channel, rows), inside = p.offset % vec;
    const lane = p.channel % rows * perRow + div(p.offset, vec), thread = warp * WARP + lane;
    steps.push(
      step("V_VEC_SIZE", "min(16 bytes // " + e + " bytes, " + size + " tokens)", vec),
      step("NUM_V_VECS_PER_ROW", size + " tokens // " + vec, perRow),
      step("NUM_ROWS_PER_ITER", "32 lanes // " + perRow, rows),
      step("i", p.channel + " // " + rows, turn),
      step("lane", "(" + p.channel + " % " + rows + ") * " + perRow + " + " + p.offset + " // " + vec, lane),
      step("thread_idx", warp + " * 32 + " + lane, thread),
      step("element of the vector", p.offset + " % " + vec, inside),
    );
    return finished(made.id, "V", "loads", blocks, thread, vec, inside, steps, (lane) => {
      const channel = div(lane, perRow) + turn * rows;
      if (channel >= p.g.head_size) return null;
      return [byteAt(p, made, "V", p.head, lane % perRow * vec, channel), vec * p.g.itemsize];
    });
  }

  function tiles(kernel, made, kind, p) {
    if (p.g.itemsize < p.g.computed) return nobody(made.id, kind, "loads", [], "Our port of this kernel has no fp8.");
    const size = p.g.block_size, x = p.g.x, tile = size & (size - 1) ? 32 : Math.min(size, 32);
    const many = p.g.head_size * tile, number = div(p.token, tile), n = p.token % tile, K = kind === "K";
    const i = K ? div(p.channel, x) * x * tile + n * x + p.channel % x : p.channel * tile + n;
    const how = K
      ? p.channel + " // " + x + " * " + x * tile + " + " + n + " * " + x + " + " + p.channel + " % " + x
      : p.channel + " * " + tile + " + " + n;
    const turn = div(i, NUM_THREADS), thread = i % NUM_THREADS;
    const steps = [
      step("tile", p.token + " // " + tile + " tokens", number),
      step("offs_n", p.token + " % " + tile, n),
      step("i", how, i),
      step("thread_idx", i + " % " + NUM_THREADS, thread),
      step("turn of the loop", i + " // " + NUM_THREADS, turn),
    ];
    const blocks = "blockIdx.x = the sequence, blockIdx.y = " + p.head + " (KV head)";
    return finished(made.id, kind, "loads", blocks, thread, 1, 0, steps, (lane) => {
      const at = turn * NUM_THREADS + div(thread, WARP) * WARP + lane;
      if (at >= many) return null;
      const other = number * tile + (K ? div(at, x) % tile : at % tile), logical = div(other, size);
      if (logical >= p.table.length) return null;
      const channel = K ? div(at, x * tile) * x + at % x : div(at, tile);
      return [byteAt(p, made, kind, p.head, other % size, channel, logical), p.g.itemsize];
    });
  }

  function tiny(kernel, made, kind, p) {
    if (p.g.itemsize < p.g.computed) return nobody(made.id, kind, "loads", [], "tiny-vllm has no fp8 cache.");
    const thread = p.channel;
    const steps = [
      step("thread_id", "the channel", thread),
      step("warp", thread + " // 32", div(thread, WARP)),
      step("lane", thread + " % 32", thread % WARP),
      step("turn of the loop", "the token", p.token),
    ];
    const blocks = "blockIdx.x = the sequence, blockIdx.y = " + queryHeads(p) + " (query heads)";
    return finished(made.id, kind, "loads", blocks, thread, 1, 0, steps, (lane) => {
      const channel = div(thread, WARP) * WARP + lane;
      return channel < p.g.head_size ? [byteAt(p, made, kind, p.head, p.offset, channel), p.g.itemsize] : null;
    });
  }

  // -- writers (writers.py)

  const WRITER_BLOCKS = "blockIdx.x = the token's place in slot_mapping";

  function classicWriter(kernel, made, kind, p) {
    const g = p.g, x = g.x, groups = g.head_size / x, threads = Math.min(g.num_kv_heads * groups, MAX_WRITER_THREADS);
    const group = div(p.channel, x), inside = p.channel % x, thread = p.head * groups + group;
    const steps = [
      step("h_block_count", g.head_size + " // " + x, groups),
      step("h_block", p.channel + " // " + x, group),
      step("thread", p.head + " * " + groups + " + " + group, thread),
      step("threads started", "min(" + g.num_kv_heads + " * " + groups + ", " + MAX_WRITER_THREADS + ")", threads),
      step("element of the group", p.channel + " % " + x, inside),
    ];
    if (thread >= threads) {
      const why = "No thread has number " + thread + ": " + threads + " are started and there is no loop. ";
      return nobody(made.id, kind, "stores", steps, why + "This element is not written.");
    }
    const K = kind === "K";
    return finished(made.id, kind, "stores", WRITER_BLOCKS, thread, K ? x : 1, K ? inside : 0, steps, (lane) => {
      const number = div(thread, WARP) * WARP + lane;
      if (number >= threads) return null;
      const channel = number % groups * x + (K ? 0 : inside);
      return [byteAt(p, made, kind, div(number, groups), p.offset, channel), (K ? x : 1) * g.itemsize];
    });
  }

  function flashWriter(kernel, made, kind, p) {
    const g = p.g, size = g.head_size, vec = g.computed === 2 ? 8 : 4;
    const threads = Math.min(g.num_kv_heads * size, MAX_WRITER_THREADS), stride = strides(made, g).head;
    const steps = [
      step("blockDim.x", "min(" + g.num_kv_heads + " * " + size + ", " + MAX_WRITER_THREADS + ")", threads),
      step("VEC_SIZE", g.computed + " bytes an element", vec),
    ];
    if (stride === size) return wholeRow(made, kind, p, vec, threads, steps);
    steps.push(step("head_stride", "not " + size + ": the heads do not touch", stride));
    if (threads < WARP) {
      const why = threads + " threads make no warp, and this kernel gives heads to warps.";
      return nobody(made.id, kind, "stores", steps, why);
    }
    return headByHead(made, kind, p, vec, threads, steps);
  }

  function wholeRow(made, kind, p, vec, threads, steps) {
    const size = p.g.head_size, at = p.head * size + p.channel, number = div(at, vec), inside = at % vec;
    const turn = div(number, threads), thread = number % threads;
    steps.push(
      step("head_stride", "the head size: a token's heads are one run", size),
      step("element of the row", p.head + " * " + size + " + " + p.channel, at),
      step("vector", at + " // " + vec, number),
      step("thread", number + " % " + threads, thread),
      step("turn of the loop", number + " // " + threads, turn),
      step("element of the vector", at + " % " + vec, inside),
    );
    return finished(made.id, kind, "stores", WRITER_BLOCKS, thread, vec, inside, steps, (lane) => {
      const own = div(thread, WARP) * WARP + lane, first = (turn * threads + own) * vec;
      if (own >= threads || first >= p.g.num_kv_heads * size) return null;
      return [byteAt(p, made, kind, div(first, size), p.offset, first % size), vec * p.g.itemsize];
    });
  }

  function headByHead(made, kind, p, vec, threads, steps) {
    const size = p.g.head_size, warps = div(threads, WARP), warp = p.head % warps;
    const number = div(p.channel, vec), inside = p.channel % vec, turn = div(number, WARP), lane = number % WARP;
    steps.push(
      step("warp", p.head + " % " + warps + " warps", warp),
      step("vector", p.channel + " // " + vec, number),
      step("lane", number + " % 32", lane),
      step("thread", warp + " * 32 + " + lane, warp * WARP + lane),
      step("turn of the loop", number + " // 32", turn),
      step("element of the vector", p.channel + " % " + vec, inside),
    );
    return finished(made.id, kind, "stores", WRITER_BLOCKS, warp * WARP + lane, vec, inside, steps, (lane) => {
      const channel = (turn * WARP + lane) * vec;
      return channel < size ? [byteAt(p, made, kind, p.head, p.offset, channel), vec * p.g.itemsize] : null;
    });
  }

  // -- everything of one element (explain.py)

  function notes(kernel, p) {
    const g = p.g, found = [];
    if (kernel.work === classic && ![8, 16, 32].includes(g.block_size)) {
      found.push("vLLM compiles this kernel for block sizes 8, 16 and 32 only.");
    }
    if (kernel.work === classic && !HEAD_SIZES.includes(g.head_size)) {
      found.push("vLLM compiles this kernel for head sizes " + HEAD_SIZES.join(", ") + " only.");
    }
    if (kernel.work === flashWriter && g.block_size % 16) {
      found.push("vLLM's FlashAttention cache takes block sizes that are multiples of 16 only.");
    }
    if (kernel.work === tiles) {
      found.push("Triton does not say which thread loads what. The threads are those of our port.");
    }
    if (kernel.work === tiny) {
      Object.entries(TINY).forEach(([name, value]) => {
        if (g[name] !== value) found.push("tiny-vllm's own " + name + " is " + value + ": a constant in its code.");
      });
      if (p.table[p.logical] * 2 * g.block_elements * g.itemsize >= TINY_INT) {
        found.push("tiny-vllm computes a block's first byte as an int. This one is past 2^31 and comes out wrong.");
      }
    }
    return found;
  }

  function explain(name, given, table, token, head, channel) {
    const g = geometry(given);
    if (!Object.hasOwn(KERNELS, name)) throw new LayoutError("kernel", name, "must be " + Object.keys(KERNELS).join(", "));
    checkTable(table, g);
    checkPoint(g, table, token, head, channel);
    const kernel = KERNELS[name], size = g.block_size, logical = div(token, size), offset = token % size;
    const block = table[logical], slot = block * size + offset, p = { g, table, token, head, channel, logical, offset };
    const each = (names, make) => names.flatMap((id) => LAYOUTS[id].kinds.map((kind) => make(LAYOUTS[id], kind)));
    return {
      kernel: name, token, head, channel,
      first_query_head: head * g.group, last_query_head: head * g.group + g.group - 1,
      logical, block, offset, slot,
      steps: [
        step("logical block", token + " // " + size, logical),
        step("offset in the block", token + " % " + size, offset),
        step("physical block", "block_table[" + logical + "]", block),
        step("slot", block + " * " + size + " + " + offset, slot),
      ],
      places: each(Object.keys(LAYOUTS), (made, kind) => place(made, g, table, token, head, channel, kind)),
      loads: each(kernel.layouts, (made, kind) => kernel.work(kernel, made, kind, p)),
      notes: notes(kernel, p),
    };
  }

  Object.assign(math, { KERNELS, WARP, explain });
})();
