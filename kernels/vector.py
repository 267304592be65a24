"""Vector loads: several neighbouring elements by one load instruction, as the C++ does with its `Vec` types.

    k0, k1, k2, k3 = vector_load4(k_cache, offset)

On a GPU this is one `ld.global`; on the SIMT machine one access. Its address must be a multiple of its width on both.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba.cuda import types
from numba.cuda.extending import intrinsic

WORD = ir.IntType(32)
GLOBAL = 1  # the address space of global memory


def _vector_load(count: int) -> Any:
    """A device function `(array, index)` that gives a tuple of `count` elements, 4 to 16 bytes in all.

    The array must be an argument of the kernel: global memory.
    """

    def vector_load(_typing: Any, array: Any, index: Any) -> Any:
        def codegen(context: Any, builder: Any, signature: Any, args: Any) -> Any:
            kind = signature.args[0]
            words = kind.dtype.bitwidth // 8 * count // 4
            data = builder.gep(context.make_array(kind)(context, builder, args[0]).data, [args[1]])
            address = builder.ptrtoint(
                builder.addrspacecast(data, ir.PointerType(data.type.pointee, GLOBAL)), ir.IntType(64)
            )
            # Written as PTX: as an LLVM load the compiler may split it, and the point is that it is one instruction.
            names = [f"${number}" for number in range(words)]
            result = WORD if words == 1 else ir.LiteralStructType([WORD] * words)
            wide, into = (f".v{words}", f"{{{', '.join(names)}}}") if words > 1 else ("", names[0])
            asm = ir.InlineAsm(
                ir.FunctionType(result, [ir.IntType(64)]),
                f"ld.global{wide}.u32 {into}, [${words}];",
                ",".join(["=r"] * words + ["l"]),
                side_effect=True,
            )
            loaded = builder.call(asm, [address])
            whole: Any = ir.Constant(ir.VectorType(WORD, words), ir.Undefined)
            for number in range(words):
                word = builder.extract_value(loaded, number) if words > 1 else loaded
                whole = builder.insert_element(whole, word, ir.Constant(WORD, number))
            parts = builder.bitcast(whole, ir.VectorType(context.get_data_type(kind.dtype), count))
            items = [builder.extract_element(parts, ir.Constant(WORD, number)) for number in range(count)]
            return context.make_tuple(builder, signature.return_type, items)

        return types.UniTuple(array.dtype, count)(array, types.int64), codegen

    made = intrinsic(vector_load)
    made.vector_count = count  # by this the SIMT machine knows it
    return made


vector_load2, vector_load4, vector_load8 = (_vector_load(count) for count in (2, 4, 8))
VECTOR_LOADS = {2: vector_load2, 4: vector_load4, 8: vector_load8}
"""By number of elements, for kernels whose vector size is a template parameter."""
