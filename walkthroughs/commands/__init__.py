"""The commands of `pagewalk`, one module for each group of them; `walkthroughs.cli` imports them on use."""
