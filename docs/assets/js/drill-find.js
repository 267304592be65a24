/* Pagewalk's drills, the judge of lines: a port of walkthroughs/drills/find.py. What is right, and what is near, stands in
   the entry that drill_files.py made of the committed spans. */
(function () {
  "use strict";
  const drill = (window.PagewalkDrill = window.PagewalkDrill || {});
  if (drill.grade.find) return;
  const { Refused, words } = drill;

  const NEAR = 10, WIDER = 2, S = "[" + words.SPACE + "]";
  // Python, which leaves case aside, takes an i without its dot for an i, too.
  const ANSWER = new RegExp(
    "^(?:(?<path>[^" + words.SPACE + ":#]+)" + S + "*[:#]" + S + "*)?(?:l[i\u0131\u0130]nes?" + S + "+)?" +
    "l?(?<first>[0-9]{1,9})(?:" + S + "*[-\u2013]" + S + "*l?(?<last>[0-9]{1,9}))?$", "iu");

  function readPlace(text) {
    const found = ANSWER.exec(words.strip(text));
    if (!found) throw new Refused(words.repr(text) + ": lines are 249, 249-250 or file:249-250");
    const { path, first: typed, last: end } = found.groups, first = Number(typed), last = end ? Number(end) : first;
    if (first < 1 || last < first) {
      throw new Refused(words.repr(text) + ": lines count from 1, and the first is not behind the last");
    }
    return { path: path || "", first, last };
  }

  const graded = (right, said, mistake = "") => ({ right, said, mistake });
  const lines = (count) => (count === 1 ? count + " line" : count + " lines");
  const width = (place) => place.last - place.first + 1;
  const holds = (outer, inner) => outer.first <= inner.first && inner.last <= outer.last;
  const gap = (place, span) => Math.max(span.first - place.last, place.first - span.last, 0);
  const isOf = (typed, path) => !typed || ("/" + path).endsWith("/" + typed.replace(/^\.\//, "").replace(/^\/+/, ""));
  const fits = (place, span) => holds(span, place) || (holds(place, span) && width(place) <= WIDER * width(span));

  /* The first of those for which `size` is least. */
  const least = (list, size) => list.reduce((best, one) => (best === null || size(one) < size(best) ? one : best), null);

  /* The smallest place of another concept that holds the answer and one of the places wanted. */
  function enclosing(place, there, around) {
    const found = there.flatMap((span) => around[span.path]
      .map(([first, last, title]) => ({ first, last, title }))
      .filter((other) => holds(other, place) && holds(other, span)));
    return least(found, width);
  }

  /* Judge lines, typed or { path, first, last }: right inside a place, or where they cover it and are at most twice as wide. */
  function find(entry, typed) {
    const place = typeof typed === "string" ? readPlace(typed) : typed;
    const there = entry.places.filter((span) => isOf(place.path, span.path));
    if (!there.length) {
      const names = Array.from(new Set(entry.places.map((span) => span.path))).join(" or ");
      return graded(false, place.path + " is another file: look in " + names + ".", "another file");
    }
    if (there.some((span) => fits(place, span))) return graded(true, "Right.");
    const nearest = least(there, (span) => gap(place, span));
    if (holds(place, nearest)) {
      const said = "It is in there, but you named " + width(place) + " lines, and " + lines(width(nearest)) + " would do.";
      return graded(false, said, "too wide");
    }
    const apart = gap(place, nearest), way = place.first < nearest.first ? "down" : "up";
    if (apart <= NEAR) return graded(false, "Close: " + (apart ? lines(apart) : "a part of it is") + " further " + way + ".", "close");
    const around = enclosing(place, there, entry.around);
    if (!around) return graded(false, "No, it is elsewhere.");
    const said = "Close: you are in the lines of \u201c" + around.title + "\u201d, and it is further " + way + " there.";
    return graded(false, said, "close");
  }

  drill.grade.find = find;
})();
