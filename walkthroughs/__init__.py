"""The product: steps that run the ports and check what they observe, the records, the site and the command line.

Start at `step.py` (what a step is), then `catalog/` (the walkthroughs themselves), then `runner.py` and `evidence.py`.
Uses `annotate` and `kernels`; neither of them knows of this package.
"""
