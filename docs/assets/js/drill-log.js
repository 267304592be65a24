/* Pagewalk's drills, the log of what a reader did: the terminal's own format and checks. A port of
   walkthroughs/drills/log.py; a test holds both equal. An event has every field; those that it lacks are null or "". */
(function () {
  "use strict";
  const drill = (window.PagewalkDrill = window.PagewalkDrill || {});
  if (drill.log) return;
  const { Refused, words, fsrs } = drill, { repr } = words;

  const SCHEMA = 1, KIND = "pagewalk-drills", LATEST = 10 ** 14;
  const EMPTY = {
    id: "", what: "", item: "", when: 0, rating: null, form: "", seed: null, took: null, until: null, undoes: "",
  };
  const FIELDS = Object.keys(EMPTY), NEEDED = ["id", "what", "item", "when"];
  const WHAT = ["review", "suspend", "unsuspend", "bury", "reset", "undo"];
  const NOTHING = Object.freeze({ card: fsrs.NEW, reviews: 0, lapses: 0, suspended: false, buried: 0 });

  // -- how an item stands

  const asleep = (entry, now) => entry.suspended || entry.buried > now;
  const isNew = (entry) => entry.card.due === null;
  const isDue = (entry, now) => entry.card.due !== null && entry.card.due <= now && !asleep(entry, now);

  /* By time; at the same time by id, so that every machine agrees. */
  function inOrder(events) {
    return events.slice().sort((a, b) => a.when - b.when || words.compare(a.id, b.id));
  }

  /* The events of one item that count, in order: neither undone nor undoing. */
  function standing(events) {
    const undone = new Set(events.filter((event) => event.what === "undo").map((event) => event.undoes));
    return inOrder(events).filter((event) => event.what !== "undo" && !undone.has(event.id));
  }

  function after(entry, event) {
    if (event.what === "suspend") return { ...entry, suspended: true };
    if (event.what === "unsuspend") return { ...entry, suspended: false };
    if (event.what === "bury") return { ...entry, buried: event.until || 0 };
    if (event.what !== "review") return NOTHING;
    const rating = event.rating || fsrs.AGAIN, lapse = rating === fsrs.AGAIN && entry.card.state === "review";
    const card = fsrs.review(entry.card, rating, event.when);
    return { ...entry, card, reviews: entry.reviews + 1, lapses: entry.lapses + (lapse ? 1 : 0) };
  }

  /* The standing of one item, by replaying its events. */
  const derive = (events) => standing(events).reduce(after, NOTHING);

  function byItem(events) {
    const found = new Map();
    events.forEach((event) => {
      if (!found.has(event.item)) found.set(event.item, []);
      found.get(event.item).push(event);
    });
    return found;
  }

  /* The standing of every item that anything was done to, by its id. */
  function entries(events) {
    const found = Object.create(null);
    byItem(events).forEach((own, item) => { found[item] = derive(own); });
    return found;
  }

  // -- as JSON

  function row(event) {
    return Object.fromEntries(FIELDS.filter((name) => event[name] !== null && event[name] !== "").map((name) => [name, event[name]]));
  }

  const toJson = (events) => ({ schema: SCHEMA, kind: KIND, log: inOrder(events).map(row) });

  /* The events of such JSON, parsed by words.parse or JSON.parse. Throws Refused with the first thing in it that is wrong. */
  function fromJson(data) {
    if (!isTable(data) || data.kind !== KIND || !Array.isArray(data.log)) {
      throw new Refused('this is no export of drills: it should say "kind": "' + KIND + '" and hold a "log"');
    }
    const said = data.schema, schema = said instanceof words.Real ? said.value : said;
    if (schema !== SCHEMA && schema !== true) { // to Python, these are one
      throw new Refused("it has schema " + repr(said) + "; this Pagewalk reads " + SCHEMA);
    }
    return data.log.map(event);
  }

  const isTable = (value) =>
    value !== null && typeof value === "object" && !Array.isArray(value) && !(value instanceof words.Real);
  const isText = (value) => typeof value === "string" && value !== "" && words.length(value) <= 200 && words.isPrintable(value);
  const isNumber = (value, most) => Number.isInteger(value) && value >= 0 && value <= most;
  const isRating = (value) => Number.isInteger(value) && Object.hasOwn(fsrs.RATINGS, value);

  function event(held, number) {
    const known = isTable(held) && NEEDED.every((name) => Object.hasOwn(held, name)) &&
      Object.keys(held).every((name) => FIELDS.includes(name));
    if (!known) throw new Refused("log[" + number + "] is no event: " + repr(held));
    const made = { ...EMPTY, ...held };
    const fits = {
      id: isText(made.id),
      what: WHAT.includes(made.what),
      item: isText(made.item),
      when: isNumber(made.when, LATEST),
      rating: made.what === "review" ? isRating(made.rating) : made.rating === null,
      form: made.form === "" || isText(made.form),
      seed: made.seed === null || isNumber(made.seed, Number.MAX_SAFE_INTEGER),
      took: made.took === null || isNumber(made.took, LATEST),
      until: made.what === "bury" ? isNumber(made.until, LATEST) : made.until === null,
      undoes: made.what === "undo" ? isText(made.undoes) : made.undoes === "",
    };
    const wrong = Object.keys(fits).find((name) => !fits[name]);
    if (wrong) {
      throw new Refused(
        "log[" + number + "]: " + wrong + " " + repr(made[wrong]) + " does not fit an event " + repr(made.what));
    }
    return made;
  }

  // -- two histories

  const same = (a, b) => FIELDS.every((name) => a[name] === b[name]);
  const said = (event) => "Event(" + FIELDS.map((name) => name + "=" + repr(event[name])).join(", ") + ")";

  /* Both histories, in order. Throws Refused where an event is known with other content. */
  function merge(events, others) {
    const known = new Map(events.map((event) => [event.id, event]));
    others.forEach((event) => {
      const here = known.get(event.id);
      if (here && !same(here, event)) {
        throw new Refused("event " + event.id + " is known with other content: " + said(here) + " is not " + said(event));
      }
      known.set(event.id, here || event);
    });
    return inOrder(Array.from(known.values()));
  }

  /* The log with one more event, of a new id; no two have one time, or they would be replayed in the order of their ids. */
  function append(events, fields, id) {
    const times = new Set(events.map((event) => event.when));
    let when = fields.when;
    while (times.has(when)) when += 1;
    return [...events, event({ ...fields, id, when }, events.length)];
  }

  /* The last event since a moment that counts, which is what undoing undoes, or null. */
  function last(events, since = 0) {
    const counting = new Set(Array.from(byItem(events).values(), standing).flat());
    const found = events.filter((event) => event.when >= since && counting.has(event));
    return found.reduce((best, event) => (best && best.when > event.when ? best : event), null);
  }

  drill.log = {
    KIND, SCHEMA, NOTHING, asleep, isNew, isDue, inOrder, derive, entries, toJson, fromJson, merge, append, last,
  };
})();
