"""Runnable ports of PagedAttention kernels, with what is needed to trust them.

Start with `reference` (paged attention in plain Python), then `layout` (where every element lies), then the ports.
`cases` builds inputs, `oracle` holds the float64 truth, `block_pool` hands out the blocks.
Nothing here knows of `annotate` or `walkthroughs`.
"""
