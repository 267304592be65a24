"""Live runs: a server on 127.0.0.1 that shows the built site and runs its steps, each run in a process of its own.

`app` puts the routes together, `guards` refuses what is not the reader's own page, `exchange` reads a request and
streams the answer, `parameters` and `offers` say what a page may ask for, `code` takes a reader's own kernel where that
was allowed, `queue` runs one thing at a time, `process` and `child` are the two ends of a run, `pages` and `serve` are
the site itself.
"""
