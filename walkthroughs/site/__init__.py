"""The site: a Python-Markdown extension and the generators of the committed page stubs.

A page says `::: walkthrough ID`; the extension puts the steps there, with their panes and their evidence.
Nothing here imports MkDocs, so the same pages also build with its successor.
"""
