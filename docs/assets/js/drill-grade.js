/* Pagewalk's drills, the judge of drawn questions: ports of walkthroughs/drills/compute/grading.py and of predict.py's
   grading, with their words. A draw comes from drill_files.py: whole numbers as digits, real ones as numbers. */
(function () {
  "use strict";
  const drill = (window.PagewalkDrill = window.PagewalkDrill || {});
  if (drill.grade) return;
  const { Refused, words, exact, quantities } = drill;

  const NEAR = exact.fraction(1, 200), RELATIVE = 1e-4, MOST_DIGITS = 4300;
  const NOT_FINITE = { nan: NaN, inf: Infinity, "-inf": -Infinity };

  /* A value of a draw: a BigInt, a number, a boolean, or a list of BigInts. */
  function valueOf(given) {
    if (Array.isArray(given)) return given.map(BigInt);
    if (typeof given !== "string") return given;
    return Object.hasOwn(NOT_FINITE, given) ? NOT_FINITE[given] : BigInt(given);
  }

  const graded = (right, said, mistake = "") => ({ right, said, mistake });
  const isRight = (draw, extra = "") => graded(true, "Right: " + draw.shown + extra + ".");
  const slipsOf = (draw) => draw.slips.map(([value, mistake]) => [valueOf(value), mistake]);

  function isWrong(mistake, otherwise) {
    return graded(false, mistake ? "No: it looks as if you " + mistake + "." : otherwise, mistake);
  }

  // -- compute

  /* The verdict on what was typed: { right, said, mistake }; throws Refused, with an example, where it cannot be read. */
  function compute(draw, text) {
    const right = valueOf(draw.answer);
    if (typeof right === "boolean") return judgeExact(draw, right, quantities.yes(text));
    if (Array.isArray(right)) return judgeExact(draw, right, quantities.wholeNumbers(text));
    const real = typeof right === "number", typed = quantities.number(text, draw.unit, real);
    return real ? judgeReal(draw, right, typed) : judgeWhole(draw, exact.fraction(right), typed);
  }

  function same(a, b) {
    if (!Array.isArray(a) || !Array.isArray(b)) return a === b;
    return a.length === b.length && a.every((one, at) => one === b[at]);
  }

  const sorted = (list) => list.slice().sort((a, b) => (a < b ? -1 : a > b ? 1 : 0));

  function judgeExact(draw, right, typed) {
    if (same(typed, right)) return isRight(draw);
    const slip = slipsOf(draw).find(([value]) => same(value, typed));
    let otherwise = "No: " + quantities.shown(typed) + " is not it.";
    if (Array.isArray(typed)) {
      if (same(sorted(typed), sorted(right))) otherwise = "No: these are the right numbers in another order.";
      else if (typed.length !== right.length) {
        otherwise = "No: you name " + typed.length + ", and there are " + right.length + ".";
      }
    }
    return isWrong(slip ? slip[1] : "", otherwise);
  }

  function judgeReal(draw, right, typed) {
    const value = exact.toNumber(typed.value), near = (other) => draw.tolerance * Math.abs(other);
    if (Math.abs(value - right) <= near(right)) return isRight(draw);
    const slips = slipsOf(draw)
      .map(([slip, mistake]) => [Math.abs(value - Number(slip)), mistake, near(Number(slip))])
      .filter(([apart, , most]) => apart <= most)
      .sort((a, b) => a[0] - b[0] || words.compare(a[1], b[1]));
    return isWrong(slips.length ? slips[0][1] : "", apart(right ? value / right : 0));
  }

  function judgeWhole(draw, right, typed) {
    if (exact.equal(typed.value, right)) return isRight(draw);
    const slips = slipsOf(draw).map(([value, mistake]) => [
      typeof value === "number" ? exact.ofNumber(value) : exact.fraction(value), mistake]);
    let rounded = slips.filter(([value]) => quantities.roundsTo(typed, value));
    if (quantities.roundsTo(typed, right)) {
      if (rounded.length) throw new Refused("That is rounded too far to be judged: " + quantities.examples(draw.unit) + ".");
      return isRight(draw, ", to the digits that you gave");
    }
    const hit = slips.find(([value]) => exact.equal(value, typed.value));
    if (hit) return isWrong(hit[1], "");
    if (!rounded.length && !exact.isWhole(typed.value)) {
      // A wrong value with endless decimals is typed rounded.
      rounded = slips.filter(([value]) => !exact.isWhole(value) && exact.atMost(
        exact.abs(exact.subtract(value, typed.value)), exact.multiply(NEAR, exact.abs(value))));
    }
    const ratio = right.n ? exact.toNumber(exact.divide(typed.value, right)) : 0;
    return isWrong(rounded.length ? rounded[0][1] : "", apart(ratio));
  }

  /* What to say of a wrong number: a whole factor says which term is missing or too many. */
  function apart(ratio) {
    for (const [factor, said] of [[ratio, "times the right answer"], [ratio ? 1 / ratio : 0, "times too small"]]) {
      const whole = Math.round(factor);
      if (factor >= 2 && factor <= 4096 && Math.abs(factor - whole) < 1e-9 * factor) {
        return "No: that is exactly " + whole + " " + said + ".";
      }
    }
    if (ratio <= 0) return "No: that is not it.";
    return ratio > 1 ? "No: that is too large." : "No: that is too small.";
  }

  // -- predict

  const WHOLE = /^[+-]?\d+(?:_\d+)*$/;
  const REAL = /^[+-]?(?:(?:\d+(?:_\d+)*)?\.\d+(?:_\d+)*|\d+(?:_\d+)*\.?)(?:e[+-]?\d+(?:_\d+)*)?$/i;
  const NAMED = /^([+-]?)(?:(inf(?:inity)?)|nan)$/i;

  /* Python reads the digits of every script; the first of ten is a zero. */
  function ascii(text) {
    return Array.from(text, (letter) => {
      if (letter < "\u0080" || !/\p{Nd}/u.test(letter)) return letter;
      let first = letter.codePointAt(0);
      while (/\p{Nd}/u.test(String.fromCodePoint(first - 1))) first -= 1;
      return String((letter.codePointAt(0) - first) % 10);
    }).join("");
  }

  /* A number as it was typed: a BigInt or a number. */
  function readNumber(text) {
    const typed = ascii(words.strip(text).replace(/\u2212/g, "-")), plain = typed.replace(/_/g, "");
    if (WHOLE.test(typed) && plain.length <= MOST_DIGITS) {
      return plain[0] === "-" ? -BigInt(plain.slice(1)) : BigInt(plain.replace("+", ""));
    }
    if (WHOLE.test(typed) || REAL.test(typed)) return Number(plain);
    const named = NAMED.exec(typed);
    if (!named) throw new Refused(words.repr(text) + " is no number: 12, -0.25 and 3e-5 are some");
    return named[2] ? Number(named[1] + "Infinity") : NaN;
  }

  /* Exactly where the right one is whole, else within 1e-4 of its size. */
  function agree(typed, right) {
    // eslint-disable-next-line eqeqeq -- a BigInt and a number are compared by value
    if (typeof right === "bigint") return typed == right;
    const value = Number(typed);
    if (Number.isNaN(right)) return Number.isNaN(value);
    if (!Number.isFinite(right) || !Number.isFinite(value)) return value === right && typeof typed === "number";
    return Math.abs(value - right) <= RELATIVE * Math.abs(right);
  }

  function predict(draw, text) {
    const typed = readNumber(text);
    if (agree(typed, valueOf(draw.answer))) return graded(true, "Right.");
    const slip = slipsOf(draw).find(([value]) => agree(typed, value));
    return slip ? graded(false, "That is " + slip[1] + ".", slip[1]) : graded(false, "No, the trace has another value.");
  }

  drill.grade = { compute, predict };
})();
