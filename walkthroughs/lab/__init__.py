"""The live lab: say how many KV blocks a real vLLM engine will hold, then watch it hold them.

The engine lives in an environment of its own and runs in a process of its own; nothing here imports vLLM but
`engine`, a script for that environment's Python. The prediction is arithmetic on `kernels.layout` and
`kernels.block_pool`, and needs neither.
"""
