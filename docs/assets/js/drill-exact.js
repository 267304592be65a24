/* Pagewalk's drills, exact arithmetic: fractions of BigInts, as Python's. A fraction is { n, d }, in lowest terms, d > 0. */
(function () {
  "use strict";
  const drill = (window.PagewalkDrill = window.PagewalkDrill || {});
  if (drill.exact) return;

  function gcd(a, b) {
    while (b) [a, b] = [b, a % b];
    return a < 0n ? -a : a;
  }

  function fraction(n, d = 1n) {
    n = BigInt(n);
    d = BigInt(d);
    const by = (d < 0n ? -1n : 1n) * (gcd(n, d) || 1n);
    return { n: n / by, d: d / by };
  }

  /* What a double holds, exactly. */
  function ofNumber(value) {
    let d = 1n;
    while (!Number.isInteger(value)) {
      value *= 2;
      d *= 2n;
    }
    return fraction(BigInt(value), d);
  }

  const add = (a, b) => fraction(a.n * b.d + b.n * a.d, a.d * b.d);
  const subtract = (a, b) => fraction(a.n * b.d - b.n * a.d, a.d * b.d);
  const multiply = (a, b) => fraction(a.n * b.n, a.d * b.d);
  const divide = (a, b) => fraction(a.n * b.d, a.d * b.n);
  const abs = (a) => ({ n: a.n < 0n ? -a.n : a.n, d: a.d });
  const equal = (a, b) => a.n === b.n && a.d === b.d;
  const atMost = (a, b) => a.n * b.d <= b.n * a.d;
  const isWhole = (a) => a.d === 1n;

  /* A whole number to a whole power, which may be negative. */
  function power(base, exponent) {
    const to = BigInt(base) ** BigInt(Math.abs(exponent));
    return exponent < 0 ? fraction(1n, to) : fraction(to);
  }

  const bits = (n) => n.toString(2).length;

  /* The nearest double, infinite where none is near. */
  function toNumber({ n, d }) {
    if (n < 0n) return -toNumber({ n: -n, d });
    if (n === 0n) return 0;
    // 57 bits of the quotient, the last of which says that more follow: Number() then rounds once.
    const shift = 57 - (bits(n) - bits(d));
    const [top, bottom] = shift > 0 ? [n << BigInt(shift), d] : [n, d << BigInt(-shift)];
    const quotient = Number((top / bottom) | (top % bottom ? 1n : 0n));
    const half = Math.trunc(-shift / 2);
    return quotient * 2 ** half * 2 ** (-shift - half);
  }

  drill.exact = { fraction, ofNumber, add, subtract, multiply, divide, abs, equal, atMost, isWhole, power, toNumber };
})();
