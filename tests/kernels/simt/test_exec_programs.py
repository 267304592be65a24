"""Random small kernels, as source text, on the machine under many schedules, against a whole-block interpreter.

A program is a tree of tuples without races: a thread stores into its own shared element in one phase, anybody reads
in the next, and a barrier lies between. `Text` writes it as a kernel; `Oracle` runs it one statement after another
for all threads of a block at once, in NumPy, and knows nothing of warps in turns.
"""

from __future__ import annotations

import random
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st

from kernels.simt import SimtError, cuda, launch

FULL = 0xFFFFFFFF
VARS, LOCALS, PRIME = 3, 2, 10007
SCHEDULES = ("in-order", "reversed", "random:1", "random:2", "replay:lanes=down", "replay:lanes=down;*=1*2,0*1,1")
COMPARISONS = ("<", "<=", "==", "!=", ">", ">=")
ATOMICS = ("add", "max", "min", "xor", "or_", "and_", "sub")
SHUFFLES = ("xor", "up", "down", "pick")
ARITHMETIC = {"times": "*", "mod": "%", "div": "//"}
WIDTHS = (2, 4, 8, 16, 32, 32, 32)


class Author:
    """Makes one program from a seed."""

    def __init__(self, seed):
        self.r = random.Random(seed)
        self.threads = self.r.choice((32, 64, 96))
        self.grid = self.r.choice((1, 1, 2))
        self.writing = True
        self.body = self.block(self.r.randint(8, 16), 0)
        self.tail = [("return_if", self.condition())] if self.r.random() < 0.4 else []
        self.tail += [self.plain(1) for _ in range(self.r.randint(0, 2))]

    def expression(self, depth=2):
        r = self.r
        if depth == 0 or r.random() < 0.25:
            leaf = r.choice(("var", "var", "const", "tid", "lane", "block", "local"))
            number = {"var": r.randrange(VARS), "const": r.randint(-20, 20), "local": r.randrange(LOCALS)}
            return leaf, number.get(leaf)
        kind = r.choice(("+", "-", "&", "|", "^", "times", "mod", "div", "select"))
        if kind in ("times", "mod", "div"):
            return kind, self.expression(depth - 1), r.randint(2, 9)
        if kind == "select":
            return kind, self.condition(depth - 1), self.expression(depth - 1), self.expression(depth - 1)
        return kind, self.expression(depth - 1), self.expression(depth - 1)

    def condition(self, depth=1):
        r = self.r
        if depth and r.random() < 0.3:
            return r.choice(("and", "or")), self.condition(depth - 1), self.condition(depth - 1)
        return "compare", r.choice(COMPARISONS), ("mod", self.expression(1), 7), ("const", r.randint(0, 6))

    def plain(self, depth):
        """A statement that some of the threads may run without the others."""
        r = self.r
        kinds = ["set", "set", "local", "own", "atomic", *["store" if self.writing else "peek"] * 3]
        kind = r.choice([*kinds, "if", "if"] if depth < 3 else kinds)
        k = r.randrange(VARS)
        if kind == "if":
            return kind, self.condition(), [self.plain(depth + 1) for _ in range(r.randint(1, 3))], [
                self.plain(depth + 1) for _ in range(r.randint(0, 2))
            ]  # fmt: skip
        if kind == "local":
            return kind, r.randrange(LOCALS), self.expression()
        if kind == "atomic":
            return kind, r.choice(ATOMICS), self.expression()
        if kind == "own":
            return kind, k
        if kind == "store":
            return kind, self.expression()
        return kind, k, self.expression()

    def block(self, count, depth):
        return [self.uniform(depth) for _ in range(count)]

    def uniform(self, depth):
        """A statement that all threads of the block run together."""
        r, k = self.r, self.r.randrange(VARS)
        kind = r.choice(
            ("plain",) * 6 + ("barrier", "barrier", "count", "shuffle", "shuffle", "vote", "match", "halves", "loop")
        )
        if kind == "barrier":
            self.writing = not self.writing
            return (kind,)
        if kind == "count":
            self.writing = not self.writing
            return kind, r.choice(("count", "and", "or")), k, self.condition()
        if kind == "shuffle":
            return kind, r.choice(SHUFFLES), k, self.expression(), r.randint(0, 35), r.choice(WIDTHS)
        if kind == "vote":
            return kind, r.choice(("ballot", "all", "any")), k, self.condition()
        if kind == "match":
            return kind, k, ("mod", self.expression(), 3)
        if kind == "halves":
            return kind, r.randint(1, 31), k, self.expression()
        if kind == "loop" and depth < 2:
            before = self.writing
            body = self.block(r.randint(1, 4), depth + 1)
            if self.writing != before:  # the end of one turn meets the start of the next
                body.append(("barrier",))
                self.writing = before
            return kind, r.randint(1, 3), body
        return self.plain(0)


class Text:
    """A program as the source of a kernel."""

    def __init__(self, program):
        self.lines = [
            "def kernel(out, totals):",
            f"    s = cuda.shared.array({program.threads}, int64)",
            f"    l = cuda.local.array({LOCALS}, int64)",
            "    i = cuda.threadIdx.x",
            "    s[i] = 0",
            *(f"    l[{n}] = 0" for n in range(LOCALS)),
            *(f"    v{k} = i + {k}" for k in range(VARS)),
        ]
        self.threads = program.threads
        self.loops = 0
        for statement in [*program.body, *program.tail]:
            self.statement(statement, 1)
        self.lines += [f"    out[cuda.blockIdx.x, i, {k}] = v{k}" for k in range(VARS)]

    def __str__(self):
        return "\n".join(self.lines)

    def e(self, e):
        kind, *rest = e
        if kind in ("tid", "lane", "block"):
            return {"tid": "i", "lane": "cuda.laneid", "block": "cuda.blockIdx.x"}[kind]
        if kind in ("var", "const", "local"):
            return {"var": f"v{rest[0]}", "const": f"({rest[0]})", "local": f"l[{rest[0]}]"}[kind]
        if kind in ("times", "mod", "div"):
            return f"({self.e(rest[0])} {ARITHMETIC[kind]} {rest[1]})"
        if kind == "select":
            return f"({self.e(rest[1])} if {self.c(rest[0])} else {self.e(rest[2])})"
        return f"({self.e(rest[0])} {kind} {self.e(rest[1])})"

    def c(self, c):
        if c[0] == "compare":
            return f"({self.e(c[2])} {c[1]} {self.e(c[3])})"
        return f"({self.c(c[1])} {c[0]} {self.c(c[2])})"

    def statement(self, s, depth):
        def put(text, more=0):
            self.lines.append("    " * (depth + more) + text)

        def mix(k, text, more=0):  # keeps what the variable held, else votes would make all values small
            put(f"v{k} = (v{k} * 3 + {text}) % {PRIME}", more)

        kind, *rest = s
        if kind == "set":
            put(f"v{rest[0]} = {self.e(rest[1])} % {PRIME}")
        elif kind == "local":
            put(f"l[{rest[0]}] = {self.e(rest[1])} % {PRIME}")
        elif kind == "store":
            put(f"s[i] = {self.e(rest[0])} % {PRIME}")
        elif kind == "own":
            mix(rest[0], "s[i]")
        elif kind == "peek":
            mix(rest[0], f"s[{self.e(rest[1])} % {self.threads}]")
        elif kind == "atomic":
            put(f"cuda.atomic.{rest[0]}(totals, {ATOMICS.index(rest[0])}, {self.e(rest[1])} % {PRIME})")
        elif kind == "if":
            put(f"if {self.c(rest[0])}:")
            for inner in rest[1]:
                self.statement(inner, depth + 1)
            if rest[2]:
                put("else:")
                for inner in rest[2]:
                    self.statement(inner, depth + 1)
        elif kind == "loop":
            self.loops += 1
            put(f"for t{self.loops} in range({rest[0]}):")
            for inner in rest[1]:
                self.statement(inner, depth + 1)
        elif kind == "barrier":
            put("cuda.syncthreads()")
        elif kind == "count":
            mix(rest[1], f"cuda.syncthreads_{rest[0]}({self.c(rest[2])})")
        elif kind == "shuffle":
            name = {"pick": "shfl_sync"}.get(rest[0], f"shfl_{rest[0]}_sync")
            mix(rest[1], f"cuda.{name}({FULL}, {self.e(rest[2])} % {PRIME}, {rest[3]}, {rest[4]})")
        elif kind == "vote":
            mix(rest[1], f"cuda.{rest[0]}_sync({FULL}, {self.c(rest[2])})")
        elif kind == "match":
            mix(rest[0], f"cuda.match_any_sync({FULL}, {self.e(rest[1])})")
        elif kind == "halves":
            low = (1 << rest[0]) - 1
            put(f"if cuda.laneid < {rest[0]}:")
            mix(rest[1], f"cuda.shfl_sync({low}, {self.e(rest[2])} % {PRIME}, 0)", 1)
            put("else:")
            mix(rest[1], f"cuda.shfl_sync({FULL - low}, {self.e(rest[2])} % {PRIME}, 31)", 1)
        elif kind == "return_if":
            put(f"if {self.c(rest[0])}:")
            put("return", 1)
        else:
            raise AssertionError(kind)


class Oracle:
    """A program run for whole blocks: each statement for all threads before the next one."""

    def __init__(self, program):
        self.n = program.threads
        self.i = np.arange(self.n)
        self.lane, self.base = self.i % 32, self.i - self.i % 32
        self.totals = np.full(len(ATOMICS), 5, np.int64)
        self.out = np.full((program.grid, self.n, VARS), -1, np.int64)
        for number in range(program.grid):
            self.number = number
            self.v = [self.i + k for k in range(VARS)]
            self.l = [np.zeros(self.n, np.int64) for _ in range(LOCALS)]
            self.s = np.zeros(self.n, np.int64)
            self.alive = np.ones(self.n, bool)
            for statement in [*program.body, *program.tail]:
                self.statement(statement, self.alive)
            self.out[number][self.alive] = np.stack(self.v, axis=1)[self.alive]

    def e(self, e):
        kind, *rest = e
        if kind in ("tid", "lane", "block"):
            return {"tid": self.i, "lane": self.lane, "block": np.full(self.n, self.number)}[kind]
        if kind in ("var", "local"):
            return {"var": self.v, "local": self.l}[kind][rest[0]]
        if kind == "const":
            return np.full(self.n, rest[0])
        if kind == "select":
            return np.where(self.c(rest[0]), self.e(rest[1]), self.e(rest[2]))
        a = self.e(rest[0])
        if kind in ("times", "mod", "div"):
            return {"times": np.multiply, "mod": np.mod, "div": np.floor_divide}[kind](a, rest[1])
        named = {"+": np.add, "-": np.subtract, "&": np.bitwise_and, "|": np.bitwise_or, "^": np.bitwise_xor}
        return named[kind](a, self.e(rest[1]))

    def c(self, c):
        if c[0] != "compare":
            return {"and": np.logical_and, "or": np.logical_or}[c[0]](self.c(c[1]), self.c(c[2]))
        named = (np.less, np.less_equal, np.equal, np.not_equal, np.greater, np.greater_equal)
        return named[COMPARISONS.index(c[1])](self.e(c[2]), self.e(c[3]))

    def set(self, k, value, on):
        self.v[k] = np.where(on, value, self.v[k])

    def mix(self, k, value, on):
        self.set(k, (self.v[k] * 3 + value) % PRIME, on)

    def statement(self, s, on):
        kind, *rest = s
        if kind == "set":
            self.set(rest[0], self.e(rest[1]) % PRIME, on)
        elif kind == "local":
            self.l[rest[0]] = np.where(on, self.e(rest[1]) % PRIME, self.l[rest[0]])
        elif kind == "store":
            self.s = np.where(on, self.e(rest[0]) % PRIME, self.s)
        elif kind == "own":
            self.mix(rest[0], self.s, on)
        elif kind == "peek":
            self.mix(rest[0], self.s[self.e(rest[1]) % self.n], on)
        elif kind == "atomic":
            self.atomic(rest[0], (self.e(rest[1]) % PRIME)[on])
        elif kind == "if":
            chosen = self.c(rest[0])
            for inner in rest[1]:
                self.statement(inner, on & chosen)
            for inner in rest[2]:
                self.statement(inner, on & ~chosen)
        elif kind == "loop":
            for _ in range(rest[0]):
                for inner in rest[1]:
                    self.statement(inner, on)
        elif kind == "count":
            true = int(self.c(rest[2]).sum())
            self.mix(rest[1], {"count": true, "and": int(true == self.n), "or": int(true > 0)}[rest[0]], on)
        elif kind == "shuffle":
            self.mix(rest[1], self.shuffle(rest[0], self.e(rest[2]) % PRIME, rest[3] % 32, rest[4]), on)
        elif kind == "vote":
            ballots = self.bits(self.c(rest[2]))
            value = {"ballot": ballots, "all": ballots == -1, "any": ballots != 0}[rest[0]]
            self.mix(rest[1], value.astype(np.int64), on)
        elif kind == "match":
            mine = self.e(rest[1])
            self.mix(rest[0], np.stack([self.bits(mine == n) for n in range(3)])[mine, self.i], on)
        elif kind == "halves":
            value = self.e(rest[2]) % PRIME
            self.mix(rest[1], value[self.base + np.where(self.lane < rest[0], 0, 31)], on)
        elif kind == "return_if":
            self.alive &= ~self.c(rest[0])

    def bits(self, true):
        words = np.packbits(true.reshape(-1, 32), axis=1, bitorder="little").view(np.int32)
        return np.repeat(words.astype(np.int64), 32)

    def shuffle(self, kind, value, n, width):
        start = self.lane // width * width
        if kind == "pick":
            return value[self.base + start + n % width]
        source = {"up": self.lane - n, "down": self.lane + n, "xor": np.bitwise_xor(self.lane, n)}[kind]
        good = source >= start if kind == "up" else source < start + width
        return value[self.base + np.where(good, source, self.lane)]

    def atomic(self, name, values):
        slot = ATOMICS.index(name)
        for value in values.tolist():
            now = int(self.totals[slot])
            self.totals[slot] = {
                "add": now + value, "sub": now - value, "max": max(now, value), "min": min(now, value),
                "xor": now ^ value, "or_": now | value, "and_": now & value,
            }[name]  # fmt: skip


def run(program, schedule, text=None):
    names = {"cuda": cuda, "int64": np.int64}
    exec(compile(text or str(Text(program)), "<generated kernel>", "exec"), names)
    out = np.full((program.grid, program.threads, VARS), -1, np.int64)
    totals = np.full(len(ATOMICS), 5, np.int64)
    launch(names["kernel"], program.grid, program.threads, (out, totals), schedule=schedule)
    return out, totals


@pytest.mark.parametrize("schedule", SCHEDULES)
@settings(max_examples=250)
@given(st.integers(0, 2**32))
def test_generated_kernels_equal_the_whole_block_oracle(schedule, seed):
    program = Author(seed)
    note(str(Text(program)))
    out, totals = run(program, schedule)
    oracle = Oracle(program)
    assert np.array_equal(out, oracle.out)
    assert np.array_equal(totals, oracle.totals)


def kinds(statements):
    for statement in statements:
        yield statement[0]
        for part in statement[1:]:
            if isinstance(part, list):
                yield from kinds(part)


def test_the_author_writes_everything_and_nothing_trivial():
    programs = [Author(seed) for seed in range(300)]
    written = Counter(kind for program in programs for kind in kinds([*program.body, *program.tail]))
    assert set(written) == {
        "set", "local", "store", "own", "peek", "atomic", "if", "loop", "barrier", "count", "shuffle", "vote", "match",
        "halves", "return_if",
    }  # fmt: skip
    assert min(written.values()) > 50
    results = [Oracle(program) for program in programs[:50]]
    assert sum(len(np.unique(oracle.out)) > 10 for oracle in results) > 35
    assert any((oracle.out[:, :, 0] == -1).any() for oracle in results)  # an early return shows


def test_the_same_seed_is_the_same_program():
    assert str(Text(Author(7))) == str(Text(Author(7))) != str(Text(Author(8)))


def test_a_barrier_left_out_shows():
    """Without its barriers a program is another one: the comparison would notice."""
    wrong = tried = 0
    for seed in range(60):
        program = Author(seed)
        text = str(Text(program))
        if program.threads == 32 or "syncthreads()" not in text:
            continue
        tried += 1
        expected = Oracle(program).out
        for schedule in SCHEDULES:
            try:
                out, _ = run(program, schedule, text.replace("cuda.syncthreads()", "cuda.syncwarp()"))
            except SimtError:
                break
            if not np.array_equal(out, expected):
                break
        else:
            continue
        wrong += 1
    assert tried > 10
    assert wrong > tried // 4


def test_an_atomic_turned_into_a_plain_store_shows():
    differ = 0
    for seed in range(40):
        program = Author(seed)
        text = str(Text(program)).replace("cuda.atomic.add(totals", "cuda.atomic.exch(totals")
        _, totals = run(program, "in-order", text)
        differ += not np.array_equal(totals, Oracle(program).totals)
    assert differ > 5
