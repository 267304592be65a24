"""Ports of tiny-vllm's kernels: the same idea as vLLM's, in a few hundred lines, and with a race to find."""
