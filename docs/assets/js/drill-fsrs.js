/* Pagewalk's drills, when an item comes back: FSRS-6 with py-fsrs's default parameters, without fuzz, as
   walkthroughs/drills/schedule.py sets it up; a test holds both equal. Times are whole milliseconds since 1970.
   A card is { state, step, stability (days), difficulty (1 to 10), due, last }. */
(function () {
  "use strict";
  const drill = (window.PagewalkDrill = window.PagewalkDrill || {});
  if (drill.fsrs) return;

  const AGAIN = 1, HARD = 2, GOOD = 3, EASY = 4;
  const RATINGS = { 1: "Again", 2: "Hard", 3: "Good", 4: "Easy" };
  const MINUTE = 60000, HOUR = 60 * MINUTE, DAY = 24 * HOUR;
  const W = [
    0.212, 1.2931, 2.3065, 8.2956, 6.4133, 0.8334, 3.0194, 0.001, 1.8722, 0.1666, 0.796,
    1.4835, 0.0614, 0.2629, 1.6483, 0.6014, 1.8729, 0.5425, 0.0912, 0.0658, 0.1542,
  ];
  const RETENTION = 0.9, LEAST_STABILITY = 0.001, MOST_DAYS = 36500;
  const STEPS = { learning: [MINUTE, 10 * MINUTE], relearning: [10 * MINUTE] };
  const DECAY = -W[20], FACTOR = 0.9 ** (1 / DECAY) - 1;
  const NEW = Object.freeze({ state: "new", step: null, stability: null, difficulty: null, due: null, last: null });

  const exp = (power) => Math.E ** power;
  const clamp = (value, low, high) => Math.min(Math.max(value, low), high);

  /* Python's round(): halves go to the even neighbour. */
  function round(value) {
    const low = Math.floor(value), apart = value - low;
    if (apart !== 0.5) return apart < 0.5 ? low : low + 1;
    return low % 2 === 0 ? low : low + 1;
  }

  // -- what is remembered

  const recalled = (stability, days) => (1 + (FACTOR * Math.max(0, days)) / stability) ** DECAY;
  const firstDifficulty = (rating) => W[4] - exp(W[5] * (rating - 1)) + 1;

  function nextDifficulty(difficulty, rating) {
    const moved = difficulty + ((10 - difficulty) * -(W[6] * (rating - 3))) / 9;
    return clamp(W[7] * firstDifficulty(EASY) + (1 - W[7]) * moved, 1, 10);
  }

  /* Two reviews on one day. */
  function sameDay(stability, rating) {
    const growth = exp(W[17] * (rating - 3 + W[18])) * stability ** -W[19];
    return stability * (rating === AGAIN ? growth : Math.max(growth, 1));
  }

  function forgotten(difficulty, stability, recall) {
    const long = W[11] * difficulty ** -W[12] * ((stability + 1) ** W[13] - 1) * exp((1 - recall) * W[14]);
    return Math.min(long, stability / exp(W[17] * W[18]));
  }

  function kept(difficulty, stability, recall, rating) {
    const penalty = rating === HARD ? W[15] : 1, bonus = rating === EASY ? W[16] : 1;
    const growth = exp(W[8]) * (11 - difficulty) * stability ** -W[9] * (exp((1 - recall) * W[10]) - 1);
    return stability * (1 + growth * penalty * bonus);
  }

  /* The stability and the difficulty after a review; `days` is null where there was none before. */
  function memory(card, rating, days) {
    if (card.stability === null || card.difficulty === null) {
      return [Math.max(W[rating - 1], LEAST_STABILITY), clamp(firstDifficulty(rating), 1, 10)];
    }
    const { stability, difficulty } = card;
    let next;
    if (days !== null && days < 1) next = sameDay(stability, rating);
    else {
      const recall = days === null ? 0 : recalled(stability, days);
      next = rating === AGAIN ? forgotten(difficulty, stability, recall) : kept(difficulty, stability, recall, rating);
    }
    return [Math.max(next, LEAST_STABILITY), nextDifficulty(difficulty, rating)];
  }

  // -- when it comes back

  function interval(stability) {
    const days = (stability / FACTOR) * (RETENTION ** (1 / DECAY) - 1);
    return Math.min(Math.max(round(days), 1), MOST_DAYS) * DAY;
  }

  /* [state, step, milliseconds until it is due] */
  function next(card, rating, stability) {
    const learnt = ["review", null, interval(stability)];
    if (card.state === "review") return rating === AGAIN ? ["relearning", 0, STEPS.relearning[0]] : learnt;
    const state = card.state === "relearning" ? "relearning" : "learning", steps = STEPS[state], step = card.step || 0;
    if (rating === EASY || (step >= steps.length && rating !== AGAIN)) return learnt;
    if (rating === AGAIN) return [state, 0, steps[0]];
    if (rating === GOOD) return step + 1 === steps.length ? learnt : [state, step + 1, steps[step + 1]];
    if (step > 0) return [state, step, steps[step]];
    return [state, step, steps.length > 1 ? (steps[0] + steps[1]) / 2 : steps[0] * 1.5];
  }

  /* The card after a review at a moment. */
  function review(card, rating, now) {
    if (!Object.hasOwn(RATINGS, rating)) throw new RangeError("rating " + rating + ": 1 Again, 2 Hard, 3 Good or 4 Easy");
    const days = card.last === null ? null : Math.floor((now - card.last) / DAY);
    const [stability, difficulty] = memory(card, rating, days);
    const [state, step, wait] = next(card, rating, stability);
    return { state, step, stability, difficulty, due: now + wait, last: now };
  }

  // -- in words

  /* An interval in its largest fitting unit: min, h, d, mo or y; never less than a minute. */
  function label(wait) {
    const minutes = Math.max(1, round(wait / MINUTE));
    if (minutes < 60) return minutes + " min";
    if (minutes < 24 * 60) return round(minutes / 60) + " h";
    const days = round(wait / DAY);
    if (days < 31) return days + " d";
    return days < 365 ? (days / 30.44).toFixed(1) + " mo" : (days / 365.25).toFixed(1) + " y";
  }

  /* How long until the item comes back, in words, for each of the four ratings. */
  function labels(card, now) {
    return Object.fromEntries(Object.keys(RATINGS).map((rating) => [rating, label(review(card, Number(rating), now).due - now)]));
  }

  /* When the reader's next day begins: four in the morning, where the reader is. */
  function tomorrow(now) {
    const start = new Date(now);
    start.setHours(4, 0, 0, 0);
    if (start.getTime() <= now) start.setDate(start.getDate() + 1);
    return start.getTime();
  }

  drill.fsrs = { NEW, RATINGS, AGAIN, HARD, GOOD, EASY, review, labels, label, tomorrow };
})();
