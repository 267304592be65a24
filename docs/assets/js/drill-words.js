/* Pagewalk's drills, what answers and messages need of Python's texts: its white space, its order, its way of writing a
   value in a message. The scripts after this one say what the terminal says, to the letter. */
(function () {
  "use strict";
  const drill = (window.PagewalkDrill = window.PagewalkDrill || {});
  if (drill.words) return;

  /* What cannot be read or used; `said` is for the reader, and says what would be. */
  class Refused extends Error {
    constructor(said) {
      super(said);
      this.name = "Refused";
      this.said = said;
    }
  }

  /* A number of a JSON text that was written with a point or an exponent: Python tells 1.0 from 1. */
  class Real {
    constructor(token) { this.value = Number(token); }
  }

  // What str.isspace says; \s is another set.
  const SPACE = "\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000";
  const ENDS = new RegExp("^[" + SPACE + "]+|[" + SPACE + "]+$", "g");
  const RUN = new RegExp("[" + SPACE + "]+", "g");
  const SHORT = { "\\": "\\\\", "\n": "\\n", "\r": "\\r", "\t": "\\t" };

  const strip = (text) => text.replace(ENDS, "");
  const squeezed = (text) => text.replace(RUN, " ");
  const length = (text) => Array.from(text).length;

  /* The order of Python's strings: by code points, not by the halves of pairs. */
  function compare(a, b) {
    const left = Array.from(a), right = Array.from(b);
    for (let at = 0; at < Math.min(left.length, right.length); at += 1) {
      const apart = left[at].codePointAt(0) - right[at].codePointAt(0);
      if (apart) return apart;
    }
    return left.length - right.length;
  }

  const isPrintable = (text) => !/[\p{C}\p{Z}]/u.test(text.replaceAll(" ", ""));

  function escaped(letter) {
    if (SHORT[letter]) return SHORT[letter];
    if (letter === " " || isPrintable(letter)) return letter;
    const code = letter.codePointAt(0), hex = code.toString(16);
    if (code < 0x100) return "\\x" + hex.padStart(2, "0");
    return code < 0x10000 ? "\\u" + hex.padStart(4, "0") : "\\U" + hex.padStart(8, "0");
  }

  function quoted(text) {
    const quote = text.includes("'") && !text.includes('"') ? '"' : "'";
    return quote + Array.from(text, (letter) => (letter === quote ? "\\" + letter : escaped(letter))).join("") + quote;
  }

  function real(value) {
    if (!Number.isFinite(value)) return Number.isNaN(value) ? "nan" : value < 0 ? "-inf" : "inf";
    const [, sign, first, more, exponent] = /^(-?)(\d)(?:\.(\d+))?e([+-]\d+)$/.exec(
      Object.is(value, -0) ? "-0e+0" : value.toExponential());
    const power = Number(exponent), digits = first + (more || "");
    if (power < -4 || power >= 16) {
      const size = String(Math.abs(power)).padStart(2, "0");
      return sign + first + (more ? "." + more : "") + "e" + (power < 0 ? "-" : "+") + size;
    }
    if (power < 0) return sign + "0." + "0".repeat(-power - 1) + digits;
    return sign + digits.slice(0, power + 1).padEnd(power + 1, "0") + "." + (digits.slice(power + 1) || "0");
  }

  /* A JSON value as Python writes it in a message. */
  function repr(value) {
    if (value === null || value === undefined) return "None";
    if (typeof value === "boolean") return value ? "True" : "False";
    if (typeof value === "bigint") return String(value);
    if (typeof value === "number") return Number.isInteger(value) ? String(value + 0) : real(value);
    if (value instanceof Real) return real(value.value);
    if (typeof value === "string") return quoted(value);
    if (Array.isArray(value)) return "[" + value.map(repr).join(", ") + "]";
    return "{" + Object.entries(value).map(([name, held]) => quoted(name) + ": " + repr(held)).join(", ") + "}";
  }

  const TOKEN = /"(?:[^"\\]|\\.)*"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;
  const MARK = "\u0000number";

  function marked(token) {
    if (token[0] === '"' || /^-?0\d/.test(token)) return token;
    const whole = /^-?\d+$/.test(token);
    if (whole && Number.isSafeInteger(Number(token))) return token;
    return '{"\\u0000number":["' + token + '",' + whole + "]}";
  }

  function unmarked(key, value) {
    const held = value && typeof value === "object" ? value[MARK] : undefined;
    if (!Array.isArray(held)) return value;
    return held[1] ? BigInt(held[0]) : new Real(held[0]);
  }

  /* JSON.parse that keeps what Python tells apart: 1.0 is a Real, a whole number beyond 2^53 a BigInt. */
  function parse(text) {
    JSON.parse(text); // what is no JSON is refused as it stands
    return JSON.parse(text.replace(TOKEN, marked), unmarked);
  }

  drill.Refused = Refused;
  drill.words = { SPACE, Real, strip, squeezed, length, compare, isPrintable, repr, parse };
})();
