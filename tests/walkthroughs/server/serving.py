"""A real server for tests, as a program: `python serving.py SITE [SETTING=VALUE ...]` prints its address and token."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import steps  # beside this file

from walkthroughs.server.app import Registry, Settings
from walkthroughs.server.guards import hosts_of
from walkthroughs.server.process import Limits
from walkthroughs.server.serve import bind, new_token, serve, stoppable


def main(site: str, *pairs: str) -> None:
    limits = Limits()
    for name, value in (pair.split("=") for pair in pairs):
        limits = replace(limits, **{name: float(value) if name == "seconds" else int(value)})
    with stoppable() as stop:
        listening = bind(0)
        port = listening.getsockname()[1]
        settings = Settings(
            site=Path(site),
            token=new_token(),
            hosts=hosts_of(port),
            backend="sim",
            device="SIMT machine",
            registry=Registry({**steps.PORTS, **steps.SAMPLE_PORTS}, steps.COMMAND),
            limits=limits,
        )
        print(json.dumps({"url": f"http://127.0.0.1:{port}/", "token": settings.token}), flush=True)
        stop.serving = True
        serve(listening, settings, None)


if __name__ == "__main__":
    main(*sys.argv[1:])
