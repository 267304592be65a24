"""Reads upstream source and our own kernel files as text: pins, anchors, regions, excerpts. It runs nothing.

Start at `sources.py` (where the text comes from), then `anchors.py` (how a line is found again), then
`render.py`. `errors`, `concepts`, `regions` and `spans` need the standard library only, so that they import
on a bare GPU machine.
"""
