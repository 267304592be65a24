/* Pagewalk's drills, what is kept in this browser: the log of answers as the JSON that `pagewalk drill export json` writes,
   and the open sitting. Tabs write at once and lose nothing: each puts its events together with what is there, and when
   another tab has written over them, it puts them back; a mark tells what was reset from what was written over. Where the
   browser keeps nothing, all works until the page is left. */
(function () {
  "use strict";
  const drill = window.PagewalkDrill;
  if (!drill || drill.keep) return;

  const LOG = "pagewalk-drills", SESSION = "pagewalk-drill-session", EPOCH = LOG + "-epoch", UNREAD = LOG + "-unread";
  const events = new Map(); // id -> event
  const entries = new Map(); // item -> how it stands; made anew when the item changes
  const listeners = new Set();
  let session = null; // as text, where the browser keeps none
  const troubles = new Map(); // key -> why it is not kept, in words
  const trouble = () => Array.from(troubles.values())[0] || "";
  let unread = false;
  let held = null; // a log that could be neither read nor put aside: it is not written over
  let epoch = null; // changes with every reset

  /* ---- the browser's storage, which may refuse ---- */

  function stored(key) {
    try {
      return window.localStorage.getItem(key);
    } catch (error) {
      troubles.set(key, "This browser lets the page keep nothing");
      return null;
    }
  }

  function store(key, text) {
    try {
      if (text === null) window.localStorage.removeItem(key);
      else window.localStorage.setItem(key, text);
      troubles.delete(key);
      return true;
    } catch (error) {
      const full = error.name === "QuotaExceededError";
      troubles.set(key, full ? "This browser has no room left for the page" : "This browser lets the page keep nothing");
      return false;
    }
  }

  /* ---- the log ---- */

  /* Keeps a text that cannot be read under a name that is free; answers whether it is there. */
  function putAside(text) {
    let name = UNREAD, there = stored(name);
    for (let number = 2; there !== null && there !== text; number += 1) {
      name = UNREAD + "-" + number;
      there = stored(name);
    }
    const done = there === text || store(name, text);
    troubles.delete(name);
    if (done) troubles.delete(UNREAD);
    else troubles.set(UNREAD, "What was kept can be neither read nor put aside, and nothing is written over it from this page");
    return done;
  }

  function read(text) {
    held = null;
    if (text === null) return [];
    try {
      return drill.log.fromJson(JSON.parse(text));
    } catch (error) {
      unread = true;
      if (!putAside(text)) held = text;
      return [];
    }
  }

  function take(list) {
    list.filter((event) => !events.has(event.id)).forEach((event) => {
      events.set(event.id, event);
      entries.delete(event.item);
    });
  }

  let seen = null; // the log as it was when it was last looked at

  function forget() {
    events.clear();
    entries.clear();
    session = null;
    held = null;
    seen = null; // what is stored is read anew
    troubles.delete(UNREAD);
  }

  /* Puts together what is stored and what this tab knows; answers whether the stored one is short of something. A log that
     has gone was reset by another tab; one of another epoch was, too, while this page slept. */
  function pull() {
    const text = stored(LOG), mark = stored(EPOCH);
    if (text === null && seen !== null && !troubles.has(LOG)) forget();
    if (mark !== epoch && !troubles.has(EPOCH)) {
      forget();
      epoch = mark;
    }
    const known = text !== null && text === seen;
    seen = text;
    if (known) return false;
    const there = read(text);
    take(there);
    return there.length < events.size;
  }

  function push() {
    if (held !== null && !putAside(held)) return;
    held = null;
    const text = JSON.stringify(drill.log.toJson(all()));
    if (store(LOG, text)) seen = text;
  }

  function id() {
    return Array.from(window.crypto.getRandomValues(new Uint8Array(16)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  }

  const all = () => Array.from(events.values());

  function append(fields) {
    pull();
    const made = drill.log.append(all(), fields, id()).pop();
    take([made]);
    push();
    tell();
    return made;
  }

  /* How every item stands that anything was done to, by its id. */
  function standing() {
    const byItem = new Map();
    events.forEach((event) => { if (!entries.has(event.item)) byItem.set(event.item, [...(byItem.get(event.item) || []), event]); });
    byItem.forEach((list, item) => entries.set(item, drill.log.derive(list)));
    return Object.assign(Object.create(null), Object.fromEntries(entries));
  }

  const entry = (item) => standing()[item] || drill.log.NOTHING;

  /* Undo the last thing that counts and was done since a moment (to one item, if one is named); answers it, or null. */
  function undo(now, since, item) {
    pull();
    const last = drill.log.last(all().filter((event) => !item || event.item === item), since);
    if (last) append({ what: "undo", item: last.item, when: now, undoes: last.id });
    return last;
  }

  /* The last review of an item, or null. */
  function review(item) {
    return drill.log.last(all().filter((event) => event.item === item && event.what === "review"));
  }

  /* ---- in and out ---- */

  const text = () => JSON.stringify(drill.log.toJson(all()), null, 1) + "\n";

  /* Merge the text of an export; answers how many events were new. Throws an Error with what is wrong with it. */
  function bring(content) {
    let data;
    try {
      data = drill.words.parse(content);
    } catch (error) {
      throw new Error("This is no export of drills: it is not JSON");
    }
    const found = drill.log.fromJson(data);
    pull();
    const before = events.size;
    take(drill.log.merge(all(), found));
    push();
    tell();
    return events.size - before;
  }

  function reset() {
    forget();
    store(SESSION, null);
    store(LOG, null);
    const mark = id();
    if (store(EPOCH, mark)) epoch = mark;
    tell();
  }

  /* ---- the open sitting ---- */

  function opened() {
    const kept = stored(SESSION);
    try {
      return JSON.parse(troubles.has(SESSION) ? session : kept); // what is stored may be older
    } catch (error) {
      return null;
    }
  }

  /* `quiet`: nothing that others show has changed. */
  function keep(state, quiet = false) {
    session = state === null ? null : JSON.stringify(state);
    store(SESSION, session);
    if (!quiet) tell();
  }

  /* ---- other tabs, other elements ---- */

  function tell() {
    listeners.forEach((listener) => listener());
  }

  /* Another tab may have written between this one's reading and writing: what it did not know is put back. */
  function look() {
    if (pull()) push();
    tell();
  }

  window.addEventListener("storage", (event) => {
    if (![LOG, SESSION, EPOCH, null].includes(event.key)) return;
    if (event.key === null || (event.key === LOG && event.newValue === null)) forget();
    if (event.key === SESSION) troubles.delete(SESSION); // the other tab's is the newer one
    look();
  });
  window.addEventListener("pageshow", (event) => { if (event.persisted) look(); });

  drill.keep = {
    append, bring, entry, keep, opened, reset, review, standing, text, undo, trouble,
    events: all,
    listen: (listener) => { listeners.add(listener); return () => listeners.delete(listener); },
    unread: () => unread,
  };
  pull();
  // Found out before the first answer, not after it.
  if (store(LOG + "-try", "1")) store(LOG + "-try", null);
})();
