"""The examples of groups that are not about topics, as processes."""

import sys

import pytest

from tests.apps.process import App
from tests.support.waiting import wait_until


@pytest.fixture
def start(kafka, tmp_path):
    running: list[App] = []

    def run(example):
        command = [sys.executable, "-m", f"examples.{example}", kafka.bootstrap_servers, "120"]
        running.append(App(command, tmp_path / f"{example}-{len(running)}.log"))
        return running[-1]

    yield run
    for app in running:
        app.kill()


@pytest.mark.long
def test_another_process_writes_when_the_writer_is_killed(start):
    first = start("single_writer")
    token = int(first.wait_for("writes, with token").split()[-1])
    second = start("single_writer")
    second.wait_for("waits")
    first.wait_for("writes, with token")
    first.kill()
    assert int(second.wait_for("writes, with token").split()[-1]) > token


def test_jobs_are_shared_by_all_workers_and_come_back(start):
    first = start("worker_pool")
    assert first.wait_for("works on").count("job-") == 10
    second = start("worker_pool")
    theirs = second.wait_for("works on")
    assert theirs.count("job-") == 5
    wait_until(lambda: first.lines()[-1].count("job-") == 5, "the first one's new share")
    assert not set(jobs_of(first.lines()[-1])) & set(jobs_of(theirs))
    second.kill()
    wait_until(lambda: first.lines()[-1].count("job-") == 10, "all jobs to come back")


def jobs_of(line):
    return [word.strip(",") for word in line.split() if word.startswith("job-")]
