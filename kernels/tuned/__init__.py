"""The ladder: decode attention over vLLM's paged layout, from readable to the bandwidth limit, one file a rung."""
