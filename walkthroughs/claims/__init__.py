"""Executable claims: what two lessons, vLLM's design document and code comments say, each with a check.

`ledger.py` reads the claims from the TOML files here, `checks.py` has the kinds of checks, `compute.py` runs them and
`verdict.py` says what follows. A verdict is always computed, never written down.
"""
