"""Where one element of a paged KV cache lies, term by term, in every layout, and which lane touches it there.

`explain` goes from (token, head, channel) to bytes and lanes, `locate` from a byte back. `geometry` holds what is
given, `places` the layouts, `lanes` and `writers` who does the work. The page's script is a port of these files.
"""

from kernels.explorer.explain import Explained, explain
from kernels.explorer.geometry import DTYPES, Geometry, check_table
from kernels.explorer.lanes import KERNELS, Kernel
from kernels.explorer.places import LAYOUTS, Layout, Located, Place, Run, Term, cache_bytes, locate
from kernels.explorer.work import Lane, Load, Step

__all__ = [
    "DTYPES",
    "KERNELS",
    "LAYOUTS",
    "Explained",
    "Geometry",
    "Kernel",
    "Lane",
    "Layout",
    "Load",
    "Located",
    "Place",
    "Run",
    "Step",
    "Term",
    "cache_bytes",
    "check_table",
    "explain",
    "locate",
]
