"""Instructions that Numba has no word for: tensor cores, 8 by 8 matrices, bulk copies and their barriers, as PTX.

Each is a device function. On a GPU it becomes the one instruction that its table row names; the SIMT machine knows it
by that name and runs a model (`kernels.simt.tensor`). Words are 32 bits and hold two 16-bit numbers, the first one low.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

SHARED, GLOBAL = 3, 1
_LETTERS: dict[str, tuple[Any, Any]] = {
    "r": (types.int32, ir.IntType(32)),
    "l": (types.int64, ir.IntType(64)),
    "f": (types.float32, ir.FloatType()),
}
# In `takes`: a shared or a global array with an index, as an address.
_PLACES = {"s": ("r", SHARED), "g": ("l", GLOBAL)}


def _instruction(name: str, asm: str, gives: str, takes: str, *, pure: bool = False) -> Any:
    """A device function for one instruction.

    `gives`: letters of what it answers, r (32-bit), l (64-bit) and f (float32). `takes`: those, and s and g, which
    take an array in shared or global memory and an index, and pass the element's address. `pure`: it touches no memory.
    """
    names: list[str] = []
    for number, letter in enumerate(takes):
        names += [f"array{number}", f"index{number}"] if letter in _PLACES else [f"value{number}"]

    def build(_typing: Any, *given: Any) -> Any:
        rest = list(given)
        signature = []
        for letter in takes:
            signature += [rest.pop(0), types.int64] if letter in _PLACES else [_LETTERS[letter][0]]
            rest.pop(0)
        answer = [_LETTERS[letter][0] for letter in gives]
        result = types.void if not answer else answer[0] if len(answer) == 1 else types.UniTuple(answer[0], len(answer))

        def codegen(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            return _emit(context, builder, sig, list(args), asm, gives, takes, pure)

        return result(*signature), codegen

    made = intrinsic(_with_names(build, name, names))
    # By this the SIMT machine knows it: the machine's own word for "not a plain Python function".
    made.vector_count = name
    return made


def _with_names(build: Callable[..., Any], name: str, names: list[str]) -> Callable[..., Any]:
    """`build` under a name and with parameters of its own: Numba counts them."""
    listed = ", ".join(["typingctx", *names])
    scope: dict[str, Any] = {"build": build}
    exec(f"def {name}({listed}):\n    return build({listed})\n", scope)
    function: Callable[..., Any] = scope[name]
    return function


def _emit(
    context: Any, builder: Any, signature: Any, args: list[Any], asm: str, gives: str, takes: str, pure: bool
) -> Any:
    operands, constraints, kinds = [], [], list(signature.args)
    for letter in takes:
        value, kind = args.pop(0), kinds.pop(0)
        if letter in _PLACES:
            index = context.cast(builder, args.pop(0), kinds.pop(0), types.int64)
            constraint, space = _PLACES[letter]
            operands.append(_address(context, builder, kind, value, index, space))
        else:
            constraint = letter
            operands.append(value)
        constraints.append(constraint)
    outputs = [_LETTERS[letter][1] for letter in gives]
    result = ir.VoidType() if not outputs else outputs[0] if len(outputs) == 1 else ir.LiteralStructType(outputs)
    listed = [f"={letter}" for letter in gives] + constraints + ([] if pure else ["~{memory}"])
    function = ir.FunctionType(result, [_LETTERS[c][1] for c in constraints])
    called = builder.call(ir.InlineAsm(function, asm, ",".join(listed), side_effect=not pure), operands)
    if not outputs:
        return context.get_dummy_value()
    if len(outputs) == 1:
        return called
    parts = [builder.extract_value(called, number) for number in range(len(outputs))]
    return context.make_tuple(builder, signature.return_type, parts)


def _address(context: Any, builder: Any, kind: Any, array: Any, index: Any, space: int) -> Any:
    data = context.make_array(kind)(context, builder, array).data
    word = ir.IntType(32 if space == SHARED else 64)
    first = builder.ptrtoint(builder.addrspacecast(data, ir.PointerType(data.type.pointee, space)), word)
    # Shared memory is small: 32 bits will do, and a register holds them.
    place = builder.trunc(index, word) if space == SHARED else index
    return builder.add(first, builder.mul(place, ir.Constant(word, kind.dtype.bitwidth // 8)))


# Tensor cores. Lane 4g + t holds, of A [16, 16]: rows g and g + 8, columns 2t, 2t + 1 and these plus 8; of B [16, 8]:
# column g, rows 2t, 2t + 1 and these plus 8; of C [16, 8]: rows g and g + 8, columns 2t and 2t + 1.
def _mma(kind: str) -> Any:
    asm = (
        f"mma.sync.aligned.m16n8k16.row.col.f32.{kind}.{kind}.f32 "
        "{$0, $1, $2, $3}, {$4, $5, $6, $7}, {$8, $9}, {$10, $11, $12, $13};"
    )
    return _instruction(f"mma_{kind}", asm, "ffff", "rrrrrrffff", pure=True)


mma_bf16, mma_f16 = _mma("bf16"), _mma("f16")
"""(a0, a1, a2, a3, b0, b1, c0, c1, c2, c3) -> A times B plus C, float32."""

ldmatrix_x4 = _instruction(
    "ldmatrix_x4", "ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0, $1, $2, $3}, [$4];", "rrrr", "s"
)
"""(shared array, index) -> four words: lane 8j + r names row r of matrix j, 16 bytes; lane 4g + t gets word t of row g
of each matrix. What `mma` takes as A, where the four are its quarters, column by column."""
transpose_8x8 = _instruction("transpose_8x8", "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;", "r", "r")
"""A word of an 8 by 8 matrix, spread as `ldmatrix_x4` spreads it -> the word of its transpose."""

pack_bf16 = _instruction("pack_bf16", "cvt.rn.bf16x2.f32 $0, $2, $1;", "r", "ff", pure=True)
pack_f16 = _instruction("pack_f16", "cvt.rn.f16x2.f32 $0, $2, $1;", "r", "ff", pure=True)
"""(first, second) -> both rounded to 16 bits, in one word."""
halves_e4m3, halves_e5m2 = (
    _instruction(
        f"halves_{kind}",
        "{ .reg .b16 low, high; mov.b32 {low, high}, $2; "
        f"cvt.rn.f16x2.{kind}x2 $0, low; cvt.rn.f16x2.{kind}x2 $1, high; }}",
        "rr",
        "r",
        pure=True,
    )
    for kind in ("e4m3", "e5m2")
)
"""A word of four fp8 codes -> the same numbers as float16, two to a word; every one of them is exact."""
as_float = _instruction("as_float", "mov.b32 $0, $1;", "f", "r", pure=True)
as_word = _instruction("as_word", "mov.b32 $0, $1;", "r", "f", pure=True)
"""The same 32 bits under the other type."""
exp2 = _instruction("exp2", "ex2.approx.ftz.f32 $0, $1;", "f", "f", pure=True)
"""Two to the power of x, within two units in the last place."""
load_word = _instruction("load_word", "ld.global.nc.u32 $0, [$1];", "r", "g")
"""(global array, index) -> four bytes from there as a word."""

# Bulk copies: one thread asks, the copy engine does it, a barrier in shared memory counts the bytes that came.
mbarrier_init = _instruction("mbarrier_init", "mbarrier.init.shared::cta.b64 [$0], $1;", "", "sr")
"""(barriers, index, count): a barrier whose phase ends after `count` arrivals and all the bytes announced."""
mbarrier_fence = _instruction(
    "mbarrier_fence", "fence.mbarrier_init.release.cluster; fence.proxy.async.shared::cta;", "", ""
)
"""Let the copy engine see barriers that this thread initialised."""
mbarrier_expect = _instruction("mbarrier_expect", "mbarrier.arrive.expect_tx.shared::cta.b64 _, [$0], $1;", "", "sr")
"""(barriers, index, bytes): arrive, and announce so many bytes."""
mbarrier_passed = _instruction(
    "mbarrier_passed",
    "{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [$1], $2; selp.s32 $0, 1, 0, p; }",
    "r",
    "sr",
)
"""(barriers, index, parity) -> 1 once the phase of that parity has ended, else 0 after a while."""
bulk_load = _instruction(
    "bulk_load",
    "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1], $2, [$3];",
    "",
    "sgrs",
)
"""(shared array, index, global array, index, bytes, barriers, index): copy, and tell the barrier. Addresses and
size are multiples of 16 bytes. The data may come at any time until the barrier's phase has ended."""

# Launches that follow each other on a stream, the second of which may come to the GPU early (CUDA: programmatic
# dependent launch). Without that, both do nothing.
grid_launch = _instruction("grid_launch", "griddepcontrol.launch_dependents;", "", "")
"""From here on the next launch's thread blocks may come, once every block of this one has said so or has ended."""
grid_wait = _instruction("grid_wait", "griddepcontrol.wait;", "", "")
"""Wait until the launches before have ended and what they wrote can be read."""

# Wide accesses to global memory, as words. An address is a multiple of the width.
load_words_x2, load_words_x4 = (
    _instruction(
        f"load_words_x{count}",
        f"ld.global.nc.L1::no_allocate.v{count}.u32 {{{', '.join(f'${word}' for word in range(count))}}}, [${count}];",
        count * "r",
        "g",
    )
    for count in (2, 4)
)
"""(global array, index) -> 8 or 16 bytes that nobody writes meanwhile, as words; the first level cache keeps none."""
read_words_x4 = _instruction("read_words_x4", "ld.global.L1::no_allocate.v4.u32 {$0, $1, $2, $3}, [$4];", "rrrr", "g")
"""As `load_words_x4`, but the compiler leaves it before the stores that come after it."""
store_words_x2, store_words_x4 = (
    _instruction(
        f"store_words_x{count}",
        f"st.global.v{count}.u32 [$0], {{{', '.join(f'${word + 1}' for word in range(count))}}};",
        "",
        "g" + count * "r",
    )
    for count in (2, 4)
)
"""(global array, index, words...): 8 or 16 bytes, written in one access."""
