"""The queue alone, with children that do as they are told: one at a time, in order, bounded, cancellable."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from walkthroughs.server.process import Event
from walkthroughs.server.queue import Job, QueueClosed, QueueFull, RunQueue


class Puppet:
    """A child that ends when it is told to, and says when it began."""

    def __init__(self, name: str, log: list[str]) -> None:
        self.name = name
        self.log = log
        self.end = asyncio.Event()
        self.reason = ""

    def kill(self, reason: str) -> None:
        self.reason = self.reason or reason
        self.end.set()

    async def events(self) -> AsyncIterator[Event]:
        self.log.append(f"+{self.name}")
        try:
            yield {"event": "running"}
            await self.end.wait()
            yield {"event": "ended", "reason": self.reason or "finished", "message": ""}
        finally:
            self.log.append(f"-{self.name}")


class Stage:
    def __init__(self, most_waiting: int = 3) -> None:
        self.log: list[str] = []
        self.puppets: dict[str, Puppet] = {}
        self.queue = RunQueue(self._start, most_waiting)  # type: ignore[arg-type]

    def _start(self, job: Job) -> Puppet:
        name = job.request["step"]
        self.puppets[name] = Puppet(name, self.log)
        return self.puppets[name]

    def submit(self, name: str) -> Job:
        return self.queue.submit({"step": name})


def on_stage(play: Callable[[Stage], Coroutine[Any, Any, None]], most_waiting: int = 3) -> Stage:
    async def run() -> Stage:
        stage = Stage(most_waiting)
        worker = asyncio.create_task(stage.queue.work())
        try:
            await asyncio.wait_for(play(stage), 20)
        finally:
            worker.cancel()
            await asyncio.gather(worker, return_exceptions=True)
        return stage

    return asyncio.run(run())


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def told(job: Job) -> list[Event]:
    return [event async for event in job.events()]


def ending(events: list[Event]) -> str:
    assert [event["event"] for event in events].count("ended") == 1
    assert events[-1]["event"] == "ended"
    reason: str = events[-1]["reason"]
    return reason


def test_one_at_a_time_and_in_order() -> None:
    async def play(stage: Stage) -> None:
        jobs = [stage.submit(name) for name in "abc"]
        for name in "abc":
            await settle()
            assert stage.log[-1] == f"+{name}"
            stage.puppets[name].end.set()
        assert [ending(await told(job)) for job in jobs] == ["finished"] * 3

    assert on_stage(play).log == ["+a", "-a", "+b", "-b", "+c", "-c"]


def test_who_waits_hears_each_new_place() -> None:
    async def play(stage: Stage) -> None:
        first, *others = [stage.submit(name) for name in "abc"]
        await settle()
        stage.puppets["a"].end.set()
        await settle()
        stage.puppets["b"].end.set()
        await settle()
        stage.puppets["c"].end.set()
        await told(first)
        last = await told(others[1])
        places = [(event["place"], event["of"]) for event in last if event["event"] == "queued"]
        assert places[-2:] == [(2, 2), (1, 1)]
        assert [event["event"] for event in last if event["event"] != "queued"] == ["started", "running", "ended"]
        assert {event["run"] for event in last} == {others[1].id}

    on_stage(play)


def test_a_flood_is_refused_and_does_no_harm() -> None:
    async def play(stage: Stage) -> None:
        first = stage.submit("a")
        await settle()
        waiting = [stage.submit(name) for name in "bcd"]
        for _ in range(100):
            with pytest.raises(QueueFull, match="3 runs are waiting already"):
                stage.submit("x")
        assert stage.queue.waiting == 3
        for name in "abcd":
            await settle()
            stage.puppets[name].end.set()
        for job in (first, *waiting):
            assert ending(await told(job)) == "finished"

    assert "+x" not in on_stage(play).log


def test_cancelled_while_it_waits_it_never_starts() -> None:
    async def play(stage: Stage) -> None:
        first, second, third = (stage.submit(name) for name in "abc")
        await settle()
        assert stage.queue.cancel(second.id)
        assert not stage.queue.cancel(second.id)
        assert ending(await told(second)) == "cancelled"
        stage.puppets["a"].end.set()
        await settle()
        stage.puppets["c"].end.set()
        assert ending(await told(first)) == "finished"
        assert ending(await told(third)) == "finished"

    assert on_stage(play).log == ["+a", "-a", "+c", "-c"]


def test_cancelled_while_it_runs_the_next_one_starts() -> None:
    async def play(stage: Stage) -> None:
        first, second = stage.submit("a"), stage.submit("b")
        await settle()
        assert stage.queue.cancel(first.id)
        await settle()
        assert stage.log == ["+a", "-a", "+b"]
        assert ending(await told(first)) == "cancelled"
        stage.puppets["b"].end.set()
        assert ending(await told(second)) == "finished"
        assert not stage.queue.cancel(first.id)
        assert not stage.queue.cancel("no such run")

    on_stage(play)


def test_closing_ends_everything_and_takes_nothing_more() -> None:
    async def play(stage: Stage) -> None:
        jobs = [stage.submit(name) for name in "abc"]
        await settle()
        stage.queue.close()
        assert [ending(await told(job)) for job in jobs] == ["stopping"] * 3
        with pytest.raises(QueueClosed):
            stage.submit("d")

    assert on_stage(play).log == ["+a", "-a"]


def test_a_worker_that_is_stopped_ends_its_run() -> None:
    async def run() -> tuple[list[Event], list[str]]:
        stage = Stage()
        worker = asyncio.create_task(stage.queue.work())
        job = stage.submit("a")
        await settle()
        worker.cancel()
        await asyncio.gather(worker, return_exceptions=True)
        return await told(job), stage.log

    events, log = asyncio.run(run())
    assert ending(events) == "stopping"
    assert log == ["+a", "-a"]


@pytest.mark.parametrize("error", [FileNotFoundError("no such program"), KeyError("no such program"), RecursionError()])
def test_a_child_that_breaks_is_an_answer_and_the_next_has_its_turn(error: Exception) -> None:
    class Broken(Puppet):
        async def events(self) -> AsyncIterator[Event]:
            raise error
            yield {}

    async def play(stage: Stage) -> None:
        stage.queue.start = lambda job: Broken("a", [])  # type: ignore[assignment, return-value]
        job = stage.submit("a")
        events = await told(job)
        assert ending(events) == "crashed"
        assert str(error) in events[-1]["message"]
        stage.queue.start = stage._start  # type: ignore[assignment]
        other = stage.submit("b")
        await settle()
        stage.puppets["b"].end.set()
        assert ending(await told(other)) == "finished"

    on_stage(play)


def test_a_child_cannot_speak_for_another_run() -> None:
    async def run() -> list[Event]:
        job = Job({})
        job.tell({"event": "check", "run": "another"})
        job.tell({"event": "ended", "run": "another", "reason": "finished"})
        events = await told(job)
        assert {event["run"] for event in events} == {job.id}
        return events

    assert [event["event"] for event in asyncio.run(run())] == ["check", "ended"]


def test_nothing_comes_after_the_end() -> None:
    async def run() -> list[Event]:
        job = Job({})
        job.tell({"event": "ended", "reason": "finished", "message": ""})
        job.tell({"event": "check"})
        job.tell({"event": "ended", "reason": "stopping", "message": ""})
        return await told(job)

    assert [event.get("reason") for event in asyncio.run(run())] == ["finished"]


@given(
    st.lists(st.sampled_from(["submit", "finish", "cancel-first", "cancel-last", "wait"]), max_size=25),
    st.integers(0, 4),
)
def test_whatever_happens_one_runs_and_few_wait(actions: list[str], most: int) -> None:
    async def play(stage: Stage) -> None:
        jobs: list[Job] = []
        for number, action in enumerate(actions):
            live = [job for job in jobs if not job.ended]
            if action == "submit":
                room = stage.queue.waiting < most
                try:
                    jobs.append(stage.submit(str(number)))
                    assert room
                except QueueFull:
                    assert not room
            elif action == "finish" and stage.queue.running is not None:
                stage.puppets[stage.queue.running.request["step"]].end.set()
            elif action.startswith("cancel") and live:
                assert stage.queue.cancel(live[0 if action.endswith("first") else -1].id)
            await settle()
            assert stage.queue.waiting <= most
            begun = sum(entry[0] == "+" for entry in stage.log)
            assert 0 <= begun - sum(entry[0] == "-" for entry in stage.log) <= 1
        stage.queue.close()
        for job in jobs:
            ending(await told(job))
        await settle()
        assert stage.log == [f"{sign}{entry[1:]}" for entry in stage.log[::2] for sign in "+-"]

    on_stage(play, most)
