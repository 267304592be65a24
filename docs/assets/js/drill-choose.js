/* Pagewalk's drills, which item is asked next, and with which seed: a port of walkthroughs/drills/session.py; a test holds
   both equal. Sessions have the terminal's JSON keys, so that a kept one is the same there and here. `items`: the bank's
   list, in its order; `entries`: how items stand, by id (log.entries). Nothing is changed in place. */
(function () {
  "use strict";
  const drill = (window.PagewalkDrill = window.PagewalkDrill || {});
  if (drill.choose) return;
  const { log, fsrs, words } = drill;

  const NEW_ITEMS = 10, AHEAD = 20 * 60000, APART = 60000;

  const standing = (name, entries) => (name in entries ? entries[name] : log.NOTHING);
  const isNew = (name, entries) => log.isNew(standing(name, entries));
  const ids = (items) => new Set(items.map((item) => item.id));

  function begin(seed, started, limit = NEW_ITEMS, kinds = []) {
    return {
      seed, started, limit, kinds, item: "", question: 0, asked: 0, fresh: 0, follows: [], skipped: [], ratings: [0, 0, 0, 0],
    };
  }

  /* Being learnt, due soon, and not answered just now: it may be asked ahead of its time. */
  function isSoon(entry, now) {
    const { state, due, last } = entry.card;
    if (due === null || last === null || (state !== "learning" && state !== "relearning")) return false;
    return now < due && due <= now + AHEAD && now - last >= APART && !log.asleep(entry, now);
  }

  const byDue = (entries) => (a, b) => entries[a].card.due - entries[b].card.due || words.compare(a, b);

  /* The ids to be asked from now on, in order, were each answered once and none well enough for its follow-ups. */
  function queue(session, items, entries, now) {
    const awake = items.filter((item) => !session.skipped.includes(item.id) &&
      (!session.kinds.length || session.kinds.includes(item.kind)) && !log.asleep(standing(item.id, entries), now));
    const names = awake.map((item) => item.id), there = new Set(names);
    const due = new Set(names.filter((name) => log.isDue(standing(name, entries), now)));
    let room = session.limit - session.fresh;
    const first = [];
    session.follows.forEach((name) => {
      const fresh = there.has(name) && isNew(name, entries);
      if (!due.has(name) && !(fresh && room > 0)) return;
      first.push(name);
      if (fresh) room -= 1;
    });
    const later = names.filter((name) => due.has(name) && !first.includes(name)).sort(byDue(entries));
    const rest = freshOnes(awake, entries).filter((name) => !first.includes(name)).slice(0, Math.max(0, room));
    const soon = names.filter((name) => isSoon(standing(name, entries), now) && !first.includes(name)).sort(byDue(entries));
    return [...first, ...later, ...rest, ...soon];
  }

  /* The new items in the order in which they are met: by level, the kinds in turn, the one of which fewest were met first;
     a follow-up after its parent. */
  function freshOnes(items, entries) {
    const there = ids(items), met = new Map();
    items.filter((item) => !isNew(item.id, entries)).forEach((item) => met.set(item.kind, (met.get(item.kind) || 0) + 1));
    const order = ([one], [other]) => (met.get(one) || 0) - (met.get(other) || 0);
    const fresh = items.filter((item) => isNew(item.id, entries) &&
      (!item.after || !isNew(item.after, entries) || !there.has(item.after)));
    const levels = Array.from(new Set(fresh.map((item) => item.level))).sort((a, b) => a - b);
    return levels.flatMap((level) => {
      const columns = new Map();
      fresh.filter((item) => item.level === level)
        .forEach((item) => columns.set(item.kind, [...(columns.get(item.kind) || []), item.id]));
      const lists = Array.from(columns).sort(order).map(([, list]) => list), most = Math.max(...lists.map((list) => list.length));
      return Array.from({ length: most }, (_, at) => lists.filter((list) => at < list.length).map((list) => list[at])).flat();
    });
  }

  /* The session with an open question: the one that is open if it still can be asked, else the next; or none. */
  function advance(session, items, entries, now) {
    if (ids(items).has(session.item) && !session.skipped.includes(session.item)) {
      const entry = standing(session.item, entries);
      if (!log.asleep(entry, now) && (log.isDue(entry, now) || log.isNew(entry) || isSoon(entry, now))) return session;
    }
    const [name] = queue(session, items, entries, now);
    if (name === undefined) return { ...session, item: "", question: 0 };
    const follows = session.follows.filter((other) => other !== name);
    return { ...session, item: name, question: seedOf(session, name), follows };
  }

  /* The session after its open question was rated; `entry` is the item's standing before. */
  function answered(session, items, entry, rating) {
    const behind = rating >= fsrs.GOOD ? items.filter((item) => item.after === session.item).map((item) => item.id) : [];
    return {
      ...session,
      item: "",
      question: 0,
      asked: session.asked + 1,
      fresh: session.fresh + (log.isNew(entry) ? 1 : 0),
      follows: [...behind, ...session.follows.filter((name) => !behind.includes(name) && name !== session.item)],
      ratings: session.ratings.map((count, at) => count + (at + 1 === rating ? 1 : 0)),
    };
  }

  /* The session after something was undone: that item is asked again, with the same seed. `rating`: that of the review
     undone, or null where it was none; `entry`: the item's standing after the undoing. */
  function reopened(session, items, item, question, rating, entry) {
    const children = items.filter((child) => child.after === item).map((child) => child.id);
    const waiting = Array.from(new Set(session.item ? [session.item, ...session.follows] : session.follows));
    const follows = waiting.filter((name) => name !== item && !children.includes(name));
    const opened = { ...session, item, question, follows };
    if (rating === null) return opened;
    return {
      ...opened,
      asked: Math.max(0, session.asked - 1),
      fresh: Math.max(0, session.fresh - (log.isNew(entry) ? 1 : 0)),
      ratings: session.ratings.map((count, at) => Math.max(0, count - (at + 1 === rating ? 1 : 0))),
    };
  }

  /* The session without its open question, which cannot be asked here. */
  const skip = (session) => ({ ...session, item: "", question: 0, skipped: [...session.skipped, session.item] });

  /* The seed of the question that is asked next: fresh at each review, the same on every machine. */
  function seedOf(session, item) {
    return sha256(session.seed + "/" + session.asked + "/" + item) >>> 1;
  }

  /* The draw that a seed means: its own, where it was recorded, else one of them. */
  function draw(draws, seed) {
    return draws.find((one) => one.seed === seed) || draws[seed % draws.length];
  }

  /* A session that was kept, or null for what is none. */
  function fromJson(data) {
    const whole = (value) => Number.isInteger(value), isText = (value) => typeof value === "string";
    const list = (value, right) => Array.isArray(value) && value.every(right);
    const numbers = ["seed", "started", "limit", "question", "asked", "fresh"], lists = ["kinds", "follows", "skipped"];
    if (!data || !numbers.every((name) => whole(data[name])) || !lists.every((name) => list(data[name], isText))) return null;
    if (!list(data.ratings, whole) || data.ratings.length !== 4 || !isText(data.item)) return null;
    return Object.fromEntries(Object.keys(begin(0, 0)).map((name) => [name, data[name]]));
  }

  // -- SHA-256, its first 32 bits. A page from file:// or another host's has no crypto.subtle, and that one has to be waited for.

  const primes = (count) => {
    const found = [];
    for (let one = 2; found.length < count; one += 1) if (found.every((prime) => one % prime)) found.push(one);
    return found;
  };
  const part = (value) => Math.floor((value - Math.floor(value)) * 2 ** 32) | 0;
  const K = primes(64).map((prime) => part(Math.cbrt(prime)));
  const START = primes(8).map((prime) => part(Math.sqrt(prime)));
  const turn = (value, by) => (value >>> by) | (value << (32 - by));

  function sha256(text) {
    const bytes = new TextEncoder().encode(text), size = Math.ceil((bytes.length + 9) / 64) * 64;
    const view = new DataView(new ArrayBuffer(size));
    bytes.forEach((byte, at) => view.setUint8(at, byte));
    view.setUint8(bytes.length, 0x80);
    view.setUint32(size - 4, bytes.length * 8);
    let state = START;
    for (let at = 0; at < size; at += 64) state = compressed(state, (index) => view.getInt32(at + 4 * index));
    return state[0];
  }

  function compressed(state, word) {
    const w = [];
    let [a, b, c, d, e, f, g, h] = state;
    for (let at = 0; at < 64; at += 1) {
      if (at < 16) w[at] = word(at);
      else {
        const low = turn(w[at - 15], 7) ^ turn(w[at - 15], 18) ^ (w[at - 15] >>> 3);
        const high = turn(w[at - 2], 17) ^ turn(w[at - 2], 19) ^ (w[at - 2] >>> 10);
        w[at] = (w[at - 16] + low + w[at - 7] + high) | 0;
      }
      const choice = (e & f) ^ (~e & g), majority = (a & b) ^ (a & c) ^ (b & c);
      const one = (h + (turn(e, 6) ^ turn(e, 11) ^ turn(e, 25)) + choice + K[at] + w[at]) | 0;
      const two = ((turn(a, 2) ^ turn(a, 13) ^ turn(a, 22)) + majority) | 0;
      [a, b, c, d, e, f, g, h] = [(one + two) | 0, a, b, c, (d + one) | 0, e, f, g];
    }
    return [a, b, c, d, e, f, g, h].map((value, at) => (value + state[at]) | 0);
  }

  drill.choose = {
    NEW_ITEMS, begin, queue, advance, answered, reopened, skip, isSoon, seedOf, draw, fromJson,
  };
})();
