/* Pagewalk's drills, what a reader types as an answer: numbers with or without a unit, yes or no, lists of whole numbers.
   A port of walkthroughs/drills/compute/quantities.py with its names and its words; a test holds both equal. */
(function () {
  "use strict";
  const drill = (window.PagewalkDrill = window.PagewalkDrill || {});
  if (drill.quantities) return;
  const { Refused, words, exact } = drill;
  const { fraction } = exact;

  const LONGEST = 400, MOST_EXPONENT = 300, MOST_ITEMS = 1000;
  const POWERS = "KMGTPE";
  const BYTES = new Map([["b", fraction(1)], ["byte", fraction(1)], ["bytes", fraction(1)]]);
  Array.from(POWERS.toLowerCase()).forEach((letter, at) => {
    BYTES.set(letter + "ib", exact.power(1024, at + 1));
    BYTES.set(letter + "b", exact.power(1000, at + 1));
  });
  const TIMES = new Map();
  const time = (value, ...names) => names.forEach((name) => TIMES.set(name, value));
  time(fraction(1, 1000), "ns", "nanosecond", "nanoseconds");
  time(fraction(1), "us", "\u00b5s", "\u03bcs", "microsecond", "microseconds");
  time(fraction(1000), "ms", "millisecond", "milliseconds");
  time(fraction(1000000), "s", "sec", "second", "seconds");
  const YES = ["yes", "y", "true", "it does", "it fits"];
  const NO = ["no", "n", "false", "it does not", "it doesn't"];

  const GROUPED = "[0-9]{1,3}(?:(?<sep>[,_' ])[0-9]{3})(?:\\k<sep>[0-9]{3})*";
  const NUMBER = new RegExp(
    "^(?<sign>[+-]?)(?<whole>" + GROUPED + "|[0-9]*)(?<point>\\.(?<decimals>[0-9]*))?(?:[eE](?<exponent>[+-]?[0-9]{1,3}))?$");
  const HEX = /^0[xX][0-9a-fA-F]{1,32}$/;
  const POWER = /^(?<base>[0-9]{1,6}) ?(?:\^|\*\*) ?(?<exponent>-?[0-9]{1,3})(?: ?(?<sign>[+-]) ?(?<more>[0-9]{1,9}))?$/;
  const UNIT = /^(?<number>.*?) *(?<unit>[a-zA-Z\u00b5\u03bc%]*)$/s;
  const RANGE = /^([0-9]{1,6}) *(?:-|\u2013|\.\.|to) *([0-9]{1,6})$/;

  const { repr, strip } = words;

  /* One line, plain spaces, an ASCII minus, without a leading `=` or `about`. */
  function clean(text) {
    const count = words.length(text);
    if (count > LONGEST) throw new Refused("The answer has " + count + " characters; at most " + LONGEST + " are read.");
    return strip(words.squeezed(text.replace(/\u2212/g, "-").replace(/`/g, " "))).replace(/^(?:=|\u2248|~|about ) */, "");
  }

  /* What can be read as a number in this unit, as the end of a sentence. */
  function examples(unit, real = false) {
    if (unit === "bytes") return "write for example `131072`, `131,072 bytes`, `128 KiB` or `1.5 GB`";
    if (unit === "us") return "write for example `3.2`, `3.2 us` or `0.0032 ms`";
    if (unit === "%") return "write for example `12.5`, `12.5 %` or `1/8` of a per cent";
    if (real) return "write for example `0.375`, `3/8` or `3.75e-1`";
    return "write for example `4096`, `4,096" + (unit ? " " + unit : "") + "`, `2^12` or `0x1000`";
  }

  function units(unit) {
    if (unit === "bytes") return BYTES;
    if (unit === "us") return TIMES;
    const one = fraction(1);
    if (unit === "%") return new Map([["%", one], ["percent", one]]);
    return new Map(unit ? [[unit, one], [unit.replace(/s$/, ""), one]] : []);
  }

  /* [what one of the stated unit is in the question's, whether one was stated, the rest] */
  function splitUnit(typed, unit, real) {
    const one = fraction(1);
    if (HEX.test(typed)) return [one, false, typed]; // its last letters are digits and no unit
    const { number: rest, unit: name } = UNIT.exec(typed).groups;
    if (!name) return [one, false, rest];
    if (unit === "bytes" && /^[KMGTPE]b$/.test(name)) {
      throw new Refused(
        name + " may mean bits: write " + name[0] + "B for powers of 1000 or " + name[0] + "iB for powers of 1024.");
    }
    const scale = units(unit).get(name.toLowerCase());
    if (!scale) {
      const asked = unit ? "is asked in " + unit : "asks for a plain number";
      throw new Refused(
        repr(typed) + " has the unit " + repr(name) + ", and the question " + asked + ": " + examples(unit, real) + ".");
    }
    return [scale, true, rest];
  }

  function powerOf(found, text) {
    const base = Number(found.base), exponent = Number(found.exponent);
    if (Math.abs(exponent) > MOST_EXPONENT || (base === 0 && exponent < 0)) throw tooLarge(text);
    const more = BigInt(found.more || 0);
    return exact.add(exact.power(base, exponent), fraction(found.sign === "-" ? -more : more));
  }

  const tooLarge = (text) =>
    new Refused(repr(text) + ": the exponent must lie between -" + MOST_EXPONENT + " and " + MOST_EXPONENT + ".");

  /* A number without its unit. */
  function plain(typed, text, unit, real) {
    const nothing = fraction(0);
    if (HEX.test(typed)) return { value: fraction(BigInt(typed)), half: nothing, digits: typed.length, scaled: false };
    const power = POWER.exec(typed);
    if (power) return { value: powerOf(power.groups, text), half: nothing, digits: 0, scaled: false };
    const match = NUMBER.exec(typed);
    if (!match || !(match.groups.whole || match.groups.decimals)) {
      if (/^[+-]?[0-9]+,[0-9]+$/.test(typed)) {
        throw new Refused(
          repr(text) + ": a comma parts thousands here; write " + typed.replace(/,/g, ".") + " for a decimal.");
      }
      throw new Refused(repr(text) + " cannot be read: " + examples(unit, real) + ".");
    }
    const whole = match.groups.whole.replace(/[,_' ]/g, ""), decimals = match.groups.decimals || "";
    const exponent = Number(match.groups.exponent || 0);
    if (Math.abs(exponent) > MOST_EXPONENT) throw tooLarge(text);
    const last = exact.power(10, exponent - decimals.length);
    const size = exact.multiply(fraction(BigInt(whole + decimals)), last);
    const value = match.groups.sign === "-" ? exact.subtract(nothing, size) : size;
    const digits = (whole + decimals).replace(/^0+/, "").length;
    return { value, half: exact.divide(last, fraction(2)), digits, scaled: false };
  }

  /* The number in `text`; a bare one counts `unit`. `real`: the answer is no whole number, so that 3/8 will do. */
  function number(text, unit = "", real = false) {
    const [scale, stated, rest] = splitUnit(clean(text), unit, real), slash = rest.indexOf("/");
    if (slash >= 0) {
      if (!real) throw new Refused(repr(text) + " is a fraction; the answer is a whole number: " + examples(unit, real) + ".");
      const [over, under] = [rest.slice(0, slash), rest.slice(slash + 1)].map((part) => plain(strip(part), text, unit, real));
      if (!under.value.n) throw new Refused(repr(text) + " divides by zero: " + examples(unit, real) + ".");
      const value = exact.multiply(exact.divide(over.value, under.value), scale);
      return { value, half: fraction(0), digits: 0, scaled: false };
    }
    const found = plain(rest, text, unit, real);
    return {
      value: exact.multiply(found.value, scale),
      half: exact.multiply(found.half, scale),
      digits: found.digits,
      scaled: stated && !exact.equal(scale, fraction(1)),
    };
  }

  /* Whether an exact value, rounded to the digits that were typed, is this: with a scaled unit and 3 digits at least. */
  function roundsTo(typed, value) {
    if (!typed.scaled || typed.digits < 3) return false;
    return exact.atMost(exact.abs(exact.subtract(typed.value, value)), typed.half);
  }

  function yes(text) {
    const word = clean(text).toLowerCase().replace(/[.!]+$/, "");
    if (YES.includes(word)) return true;
    if (NO.includes(word)) return false;
    throw new Refused(repr(text) + " cannot be read: write `yes` or `no`.");
  }

  /* A list such as `7, 2, 5`, `[7, 2, 5]`, `32-39` (with all between), or `none`, as BigInts. */
  function wholeNumbers(text, most = MOST_ITEMS) {
    const typed = clean(text).replace(/^[[\](){} ]+|[[\](){} ]+$/g, "");
    if (["none", "no", "empty", "nothing"].includes(typed.toLowerCase()) || (!typed && strip(text))) return [];
    const found = [];
    for (const part of typed.replace(/ +(?:and|und) +/g, ", ").split(/ *[,;] */)) {
      const run = RANGE.exec(part);
      if (run) {
        const first = Number(run[1]), last = Number(run[2]);
        if (first > last || last >= first + most) {
          throw new Refused(repr(part) + " is no range: write `7, 2, 5`, `32-39` or `none`.");
        }
        for (let one = first; one <= last; one += 1) found.push(BigInt(one));
        continue;
      }
      for (const word of part.split(" ").filter(Boolean)) {
        if (!/^-?[0-9]{1,12}$/.test(word) && !HEX.test(word)) {
          throw new Refused(repr(text) + " cannot be read at " + repr(word) + ": write `7, 2, 5`, `32-39` or `none`.");
        }
        found.push(word[0] === "-" ? -BigInt(word.slice(1)) : BigInt(word));
      }
    }
    if (!found.length || found.length > most) {
      throw new Refused(repr(text) + " cannot be read: write whole numbers such as `7, 2, 5`, or `none`.");
    }
    return found;
  }

  /* A list or a yes or no as we write it. */
  function shown(value) {
    if (typeof value === "boolean") return value ? "yes" : "no";
    const neighbours = value.length > 4 && value.every((one, at) => one === value[0] + BigInt(at));
    return neighbours ? value[0] + "-" + value[value.length - 1] : value.join(", ") || "none";
  }

  drill.quantities = { number, roundsTo, yes, wholeNumbers, examples, shown };
})();
