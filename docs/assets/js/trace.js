/* Pagewalk: reads a trace (docs/trace-format.md, version 1) and answers what the state was at any event.
   Nothing is replayed: every variable, element and thread has a sorted history, so that a jump is a few searches.
   Runs in a page (window.pagewalkTrace) and in Node (module.exports); it touches no document. */
(function () {
  "use strict";
  if (typeof window !== "undefined" && window.pagewalkTrace) return;

  const WIDTHS = { C: 5, L: 4, A: 3, R: 5, V: 5, W: 5, X: 7, S: 6, B: 5, E: 4, Z: 4 };
  const CHANGED = { C: 4, L: 3, E: 3 }; // which item of a row is its flat list of changes

  /* How many of a sorted list are below `limit`. */
  function below(list, limit) {
    let low = 0;
    let high = list.length;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (list[middle] < limit) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  /* What happened to one thing, in order: event numbers and values. */
  class History {
    constructor() {
      this.events = [];
      this.values = [];
    }
    add(event, value) {
      this.events.push(event);
      this.values.push(value);
    }
    /* Its last entry before `at` events, from event `since` on; -1 for none. */
    last(at, since) {
      const place = below(this.events, at) - 1;
      return place >= 0 && this.events[place] >= (since || 0) ? place : -1;
    }
  }

  function entry(map, key, make) {
    let found = map.get(key);
    if (found === undefined) {
      found = make();
      map.set(key, found);
    }
    return found;
  }

  const newMap = () => new Map();
  const newHistory = () => new History();
  const newList = () => [];

  /* Columns as rows: a film stores its events by kind and field, which packs far better. */
  function rowsOf(packed) {
    const taken = {};
    return Array.from(packed.kinds, (letter, number) => {
      const place = taken[letter] || 0;
      taken[letter] = place + 1;
      return [letter, packed.threads[number], ...packed.columns[letter].map((column) => column[place])];
    });
  }

  class Trace {
    constructor(json) {
      if (!json || json.format !== "pagewalk-trace" || json.version !== 1) {
        throw new Error("this is not a trace of version 1: record it again, pagewalk trace");
      }
      Object.assign(this, {
        kernel: json.kernel, caseName: json.case, launch: json.launch, truncated: json.truncated, files: json.files,
        functions: json.functions, threads: json.threads, arrays: json.arrays, names: json.names, values: json.values,
        rows: Array.isArray(json.events) ? json.events : rowsOf(json.events),
      });
      const size = this.rows.length;
      this.length = size;
      this.frames = []; // every call: thread, function, depth, the frame that called, histories of its variables
      this.frameAt = new Int32Array(size); // the frame that an event stands in
      this.lineAt = new Int32Array(size);
      this.intervalAt = new Int32Array(size); // of the event's thread, after it
      this.accessAt = new Int32Array(size); // the event's thread's last access, or -1
      this.placeAt = new Int32Array(size); // its place among its thread's events
      this.own = this.threads.map(() => []);
      this.cells = new Map(); // array -> element -> thread -> history
      this.resets = new Map(); // array -> thread -> events at which a local array was made anew
      this.visitsOf = new Map(); // function:line -> for each thread its line events there
      this.rows.forEach((row, number) => this.take(row, number));
    }

    /* One row: its place in every history. */
    take(row, number) {
      const [letter, thread] = row;
      if (row.length !== WIDTHS[letter]) throw new Error("damaged trace, events[" + number + "]");
      const own = this.own[thread];
      const before = own.length ? own[own.length - 1] : -1;
      let frame = before < 0 ? -1 : this.after(before);
      if (letter === "C") {
        this.frames.push({
          thread, fn: row[2], depth: frame < 0 ? 0 : this.frames[frame].depth + 1, up: frame, first: number,
          lines: newHistory(), variables: new Map(),
        });
        frame = this.frames.length - 1;
      } else if (frame < 0 && letter !== "Z") throw new Error("damaged trace, events[" + number + "]: outside any function");
      const inside = this.frames[frame];
      if (letter === "C" || letter === "L") inside.lines.add(number, letter === "C" ? row[3] : row[2]);
      if (letter === "L") this.visit(thread, inside.fn, row[2], number);
      if (letter in CHANGED) this.change(inside, row[CHANGED[letter]], number);
      this.frameAt[number] = frame;
      this.lineAt[number] = frame < 0 ? 0 : inside.lines.values[inside.lines.values.length - 1];
      this.placeAt[number] = own.length;
      const waited = before >= 0 && this.rows[before][0] === "B" && letter !== "Z";
      this.intervalAt[number] = (before < 0 ? 0 : this.intervalAt[before]) + (waited ? 1 : 0);
      const touched = this.touch(row, number);
      this.accessAt[number] = touched ? number : before < 0 ? -1 : this.accessAt[before];
      own.push(number);
    }

    change(frame, flat, number) {
      for (let i = 0; i < flat.length; i += 2) entry(frame.variables, flat[i], newHistory).add(number, flat[i + 1]);
    }

    visit(thread, fn, line, number) {
      entry(this.visitsOf, fn + ":" + line, () => this.threads.map(newList))[thread].push(number);
    }

    /* An access to elements, or a local array made anew; answers whether it was an access. */
    touch(row, number) {
      const [letter, thread] = row;
      if (letter === "A") {
        if (this.arrays[row[2]].space === "local") entry(entry(this.resets, row[2], newMap), thread, newList).push(number);
        return false;
      }
      const [array, first, values] = this.accessOf(row) || [];
      if (!values) return false;
      const cells = entry(this.cells, array, newMap);
      values.forEach((value, offset) => entry(entry(cells, first + offset, newMap), thread, newHistory).add(number, value));
      return true;
    }

    /* The array, the first element and the values of an access row; null for other rows. */
    accessOf(row) {
      if (row[0] === "R" || row[0] === "W") return [row[2], row[3], [row[4]]];
      if (row[0] === "V") return [row[2], row[3], row[4]];
      return row[0] === "X" ? [row[3], row[4], [row[6]]] : null;
    }

    /* The innermost frame once an event has happened. */
    after(number) {
      const frame = this.frameAt[number];
      return this.rows[number][0] === "E" ? this.frames[frame].up : frame;
    }

    /* A thread's last event among the first `at` of all; -1 for none. */
    lastOf(thread, at) {
      const place = below(this.own[thread], at) - 1;
      return place < 0 ? -1 : this.own[thread][place];
    }

    file(number) {
      const frame = this.frameAt[number];
      return frame < 0 ? "" : this.files[this.functions[this.frames[frame].fn].file].path;
    }

    changed(number) {
      const row = this.rows[number];
      const flat = row[CHANGED[row[0]]] || [];
      return Array.from({ length: flat.length / 2 }, (_, i) => [this.names[flat[2 * i]], flat[2 * i + 1]]);
    }

    /* A variable (by its number in `names`) of a frame after `at` events: its number in `values`, or -1. */
    variable(frame, name, at) {
      const history = this.frames[frame].variables.get(name);
      const place = history ? history.last(at) : -1;
      return place < 0 ? -1 : history.values[place];
    }

    variables(frame, at) {
      const found = new Map();
      this.frames[frame].variables.forEach((_, name) => {
        const value = this.variable(frame, name, at);
        if (value >= 0) found.set(this.names[name], value);
      });
      return found;
    }

    /* An element as one thread last saw it: [value, event], or null. */
    cellOf(array, index, thread, at) {
      const cells = this.cells.get(array);
      const threads = cells && cells.get(index);
      const history = threads && threads.get(thread);
      if (!history) return null;
      const resets = this.resets.has(array) ? this.resets.get(array).get(thread) : null;
      const since = resets ? resets[below(resets, at) - 1] : 0;
      const place = history.last(at, since);
      return place < 0 ? null : [history.values[place], history.events[place]];
    }

    /* An element as any thread last saw it among the first `at` events: [value, event], or null. */
    cell(array, index, at) {
      const threads = this.cells.has(array) ? this.cells.get(array).get(index) : null;
      let best = null;
      if (threads) {
        threads.forEach((_, thread) => {
          const seen = this.cellOf(array, index, thread, at);
          if (seen && (!best || seen[1] > best[1])) best = seen;
        });
      }
      return best;
    }

    visits(thread, fn, line) {
      const found = this.visitsOf.get(fn + ":" + line);
      return found ? found[thread] : [];
    }

    /* Everything after the first `at` events, as kernels.simt.trace.State has it; values by their numbers. */
    state(at) {
      return { at, threads: this.threads.map((_, thread) => this.threadState(thread, at)) };
    }

    threadState(thread, at) {
      const last = this.lastOf(thread, at);
      const frames = [];
      for (let frame = last < 0 ? -1 : this.after(last); frame >= 0; frame = this.frames[frame].up) {
        const { fn, lines } = this.frames[frame];
        const variables = Object.fromEntries(this.variables(frame, at));
        frames.unshift({ function: fn, line: lines.values[lines.last(at)], variables });
      }
      const seen = {};
      this.cells.forEach((cells, array) => cells.forEach((_, index) => {
        const found = this.cellOf(array, index, thread, at);
        if (found) (seen[array] = seen[array] || {})[index] = found;
      }));
      const row = last < 0 ? null : this.rows[last];
      const doing = !row ? "not started" : row[0] === "B" ? "waits in " + this.names[row[2]]
        : row[0] === "Z" ? this.names[row[2]] : "running";
      return {
        frames, seen, doing, interval: last < 0 ? 0 : this.intervalAt[last],
        last_access: last < 0 ? -1 : this.accessAt[last],
      };
    }
  }

  /* The warp of one thread, moment by moment. A moment is an event of the focused thread; another lane is shown at ITS
     nth visit of the same line, and as many events further. A lane that never makes that visit is masked off. */
  class Lockstep {
    constructor(trace, focus) {
      this.trace = trace;
      this.focus = focus;
      this.own = trace.own[focus];
      const { block, number } = trace.threads[focus];
      this.lanes = Array(32).fill(-1); // lane -> thread, or -1 where it was not traced
      trace.threads.forEach((other, thread) => {
        if (String(other.block) === String(block) && other.number >> 5 === number >> 5) this.lanes[other.number % 32] = thread;
      });
      this.at = this.lanes.map(() => new Int32Array(this.own.length)); // a lane's event at a moment; -1 before its first
      this.on = this.lanes.map(() => new Uint8Array(this.own.length));
      this.lanes.forEach((thread, lane) => { if (thread >= 0) this.follow(thread, lane); });
      this.known = new Map(); // thread -> the moments of its events
      this.seen = new Map(); // array -> element -> its history in moments
      this.laneOf = new Map(this.lanes.map((thread, lane) => [thread, lane]).filter(([thread]) => thread >= 0));
    }

    follow(thread, lane) {
      const { trace, own } = this;
      const theirs = trace.own[thread];
      const counts = new Map();
      let place = -1; // among the lane's own events
      let alive = true;
      let before = -1;
      own.forEach((number, moment) => {
        const row = trace.rows[number];
        if (row[0] === "L") {
          const key = trace.frames[trace.frameAt[number]].fn + ":" + row[2];
          const count = counts.get(key) || 0;
          counts.set(key, count + 1);
          const visits = trace.visitsOf.get(key)[thread];
          alive = count < visits.length;
          if (alive) place = trace.placeAt[visits[count]];
        } else if (alive) {
          alive = place + 1 < theirs.length && trace.rows[theirs[place + 1]][0] === row[0];
          if (alive) place += 1;
        }
        if (alive) before = theirs[place];
        this.at[lane][moment] = before;
        this.on[lane][moment] = alive ? 1 : 0;
      });
    }

    /* The moment at which each of a thread's events has happened: in its warp in lockstep, elsewhere as they ran. */
    reached(thread) {
      return entry(this.known, thread, () => {
        const lane = this.laneOf.get(thread);
        const theirs = this.trace.own[thread];
        if (lane === undefined) return theirs.map((event) => below(this.own, event));
        const found = new Array(theirs.length).fill(Infinity);
        let next = 0;
        this.at[lane].forEach((event, moment) => {
          const place = event < 0 ? -1 : this.trace.placeAt[event];
          for (; next <= place; next += 1) found[next] = moment;
        });
        return found;
      });
    }

    /* An element through the moments: when it was seen, and its value (-1: made anew), the last seen standing last. */
    cell(array, index) {
      return entry(entry(this.seen, array, newMap), index, () => {
        const { trace } = this;
        const all = [];
        const add = (thread, event, value) => all.push([this.reached(thread)[trace.placeAt[event]], event, value]);
        const cells = trace.cells.get(array);
        const threads = cells && cells.get(index);
        if (threads) threads.forEach((history, thread) => history.events.forEach((event, i) => add(thread, event, history.values[i])));
        if (trace.resets.has(array)) trace.resets.get(array).forEach((events, thread) => events.forEach((event) => add(thread, event, -1)));
        all.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
        return { moments: all.map(([moment]) => moment), values: all.map(([, , value]) => value) };
      });
    }

    /* The number of an element's value at a moment, as the warp saw it last; -1 for none. */
    element(array, index, moment) {
      const { moments, values } = this.cell(array, index);
      const place = below(moments, moment + 1) - 1;
      return place < 0 ? -1 : values[place];
    }
  }

  /* A value as text: few digits, or all of them. */
  function text(value, digits) {
    if (!value) return "";
    const [type, data] = value;
    if (type === "none") return "none";
    if (type === "array") return "[" + data.slice(2).join(" × ") + "]" + (data[1] ? " from " + data[1] : "");
    if (typeof data === "number" && type.startsWith("float") && digits) return String(Number(data.toPrecision(digits)));
    return String(data);
  }

  const api = { read: (json) => new Trace(json), Trace, Lockstep, below, text };
  if (typeof module !== "undefined" && module.exports) module.exports = api;
  if (typeof window !== "undefined") window.pagewalkTrace = api;
})();
