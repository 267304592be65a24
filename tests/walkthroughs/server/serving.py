"""A real server for tests, as a program: `python serving.py SITE [SETTING=VALUE ...]` prints its address and token.

`code=stand-in` allows code, run by `coding.py`; `code=real` has it judged as for a reader. The key is printed then.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import coding  # these two are beside this file
import steps

from walkthroughs.server.app import Registry, Settings
from walkthroughs.server.code import Code
from walkthroughs.server.guards import hosts_of
from walkthroughs.server.process import Limits
from walkthroughs.server.serve import bind, new_token, serve, stoppable


def main(site: str, *pairs: str) -> None:
    limits = Limits()
    allowances: dict[str, Callable[[], Code | None]] = {
        "": lambda: None,
        "stand-in": lambda: Code(coding.DRILLS, coding.COMMAND),
        "real": Code.of_bank,
    }
    given = dict(pair.split("=") for pair in pairs)
    allowed = allowances[given.pop("code", "")]()
    for name, value in given.items():
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
            code=allowed,
        )
        said = {"url": f"http://127.0.0.1:{port}/", "token": settings.token, "key": allowed.key if allowed else ""}
        print(json.dumps(said), flush=True)
        stop.serving = True
        serve(listening, settings, None)


if __name__ == "__main__":
    main(*sys.argv[1:])
