/* Pagewalk's drills, what is kept in this browser: the log of answers as the JSON that `pagewalk drill export json` writes,
   and the open sitting. Tabs write at once and lose nothing: each puts its events together with what is there, and when
   another tab has written over them, it puts them back. Where the browser keeps nothing, all works until the page is left. */
(function () {
  "use strict";
  const drill = window.PagewalkDrill;
  if (!drill || drill.keep) return;

  const LOG = "pagewalk-drills", SESSION = "pagewalk-drill-session";
  const events = new Map(); // id -> event
  const entries = new Map(); // item -> how it stands; made anew when the item changes
  const listeners = new Set();
  let session = null; // as text, where the browser keeps none
  const troubles = new Map(); // key -> why it is not kept, in words
  const trouble = () => Array.from(troubles.values())[0] || "";
  let unread = false;

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

  function read(text) {
    if (text === null) return [];
    try {
      return drill.log.fromJson(JSON.parse(text));
    } catch (error) {
      // What cannot be read is left where it is under another name, rather than written over.
      unread = true;
      store(LOG + "-unread", text);
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
  }

  /* Puts together what is stored and what this tab knows; answers whether the stored one is short of something. A log that
     has gone was reset by another tab. */
  function pull() {
    const text = stored(LOG);
    if (text === null && seen !== null && !troubles.has(LOG)) forget();
    const known = text !== null && text === seen;
    seen = text;
    if (known) return false;
    const there = read(text);
    take(there);
    return there.length < events.size;
  }

  function push() {
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
    session = null;
    seen = null;
    store(SESSION, null);
    store(LOG, null);
    tell();
  }

  /* ---- the open sitting ---- */

  function opened() {
    const kept = stored(SESSION);
    try {
      return JSON.parse(kept === null && troubles.has(SESSION) ? session : kept);
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

  window.addEventListener("storage", (event) => {
    if (event.key !== LOG && event.key !== SESSION && event.key !== null) return;
    // Another tab may have written between this one's reading and writing: what it did not know is put back.
    if (pull()) push();
    tell();
  });

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
