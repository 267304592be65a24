"""What a reader takes along: tours for an editor, notebooks for a GPU service, the site on a stick.

`in_notebook` is what a notebook calls, and runs on a bare GPU machine; the rest makes the files and runs here.
"""
