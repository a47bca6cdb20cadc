"""Tending: what a node tells of its own runners, downloads and chats, when, and what it lets go of."""

import pytest

from exo_cli.engine.core.backoff import KeyedBackoff
from exo_cli.engine.core.intents import ReportDownload, ReportRunner, ReportTask
from exo_cli.engine.core.state import State
from exo_cli.engine.core.tasks import TaskStatus
from exo_cli.engine.core.tending import STABLE_SECONDS, Tending
from tests.builders import a_download, a_state, a_status, a_task, an_instance

ONE, TWO = an_instance("i", ("a",)), an_instance("i", ("a", "b"))


def begun(instance=ONE, runners=None, node="a") -> tuple[Tending, State]:
    """A node that has just started the process of its rank, as attempt 100."""
    state = a_state(instances=[instance], runners=runners or {}, downloads=[a_download("a"), a_download("b")])
    tending = Tending(node)
    assert [each.type for each in tending.actions(state, 0.0)] == ["CreateRunner"]
    return tending, state


def say(tending, *names, now=0.0, runner_id="i-0", attempt=100):
    """What is reported of these statuses, by their short names."""
    told = []
    for name in names:
        told += tending.runner_changed(runner_id, attempt, a_status(name), now)
    return statuses(told)


def statuses(reports):
    return [each.status.type.removeprefix("Runner") for each in reports if isinstance(each, ReportRunner)]


def acts(tending, state, now=0.0):
    return [each.type for each in tending.actions(state, now)]


# Runners -------------------------------------------------------------------------------------------------------------


def test_steps_are_told_at_once_and_work_when_it_lasts():
    tending, _ = begun()
    way_up = ["Idle", "Loading", "Loaded", "WarmingUp", "Ready"]
    assert say(tending, *way_up) == way_up
    assert say(tending, "Running", now=10.0) == []
    assert say(tending, "Ready", now=10.5) == []
    assert statuses(tending.tick(20.0)) == [], "work of half a second is not told"
    assert say(tending, "Running", now=30.0) == []
    assert statuses(tending.tick(30.9)) == []
    assert statuses(tending.tick(31.0)) == ["Running"]
    assert say(tending, "Ready", now=40.0) == []
    assert say(tending, "Running", now=40.5) == [], "nor a rest of half a second"
    assert statuses(tending.tick(50.0)) == []
    assert say(tending, "Ready", now=60.0) == []
    assert statuses(tending.tick(61.0)) == ["Ready"]


def test_progress_of_a_load_is_told_once_a_second():
    tending, _ = begun()
    say(tending, "Idle", "Loading")
    told = []
    for step in range(1, 30):
        now = step / 10
        told += tending.runner_changed("i-0", 100, a_status("Loading", layers_loaded=step), now)
        told += tending.tick(now)
    assert 1 <= len(told) <= 3


def test_a_process_of_before_is_not_heard():
    tending, _ = begun()
    assert say(tending, "Ready", attempt=99) == []
    assert say(tending, "Ready", runner_id="other-0") == []
    assert tending.local.runners["i-0"].kind == "starting"


def test_a_shutdown_frees_the_place_and_a_failure_pauses():
    tending, state = begun()
    assert say(tending, "Idle", "Failed", now=5.0) == ["Idle", "Failed"]
    for report in ("Idle", "Failed"):
        tending.settled(ReportRunner(node_id="a", runner_id="i-0", attempt=100, status=a_status(report)))
    assert acts(tending, state, 5.0) == ["Shutdown"]
    assert say(tending, "Shutdown", now=5.1) == ["Shutdown"]
    assert acts(tending, state, 5.4) == []
    assert acts(tending, state, 5.5) == ["CreateRunner"]


def test_every_attempt_is_above_the_one_before_though_the_state_lags():
    tending, state = begun()
    say(tending, "Idle", "Failed", "Shutdown")
    assert acts(tending, state, 1.0) == ["CreateRunner"]
    assert tending.local.runners["i-0"].attempt == 101
    say(tending, "Shutdown", attempt=101)
    state.index = 500
    assert acts(tending, state, 1.0) == ["CreateRunner"]
    assert tending.local.runners["i-0"].attempt == 500


def test_who_fails_while_being_ended_is_at_no_fault_and_is_asked_again():
    """Sim seeds 0 and 2074: it was never let go; then its fault kept a model that cannot load beginning for ever."""
    tending, state = begun()
    say(tending, "Idle")
    del state.instances["i"]
    assert acts(tending, state) == ["Shutdown"]
    assert say(tending, "Failed") == []
    assert acts(tending, state) == ["Shutdown"]
    assert say(tending, "Shutdown") == ["Shutdown"]
    assert acts(tending, state) == []
    assert tending.local.starts.keys() == set()


def test_a_stable_ready_forgets_the_pauses():
    tending, state = begun()
    tending.local.starts.record_failure("i", 0.0)
    say(tending, "Idle", "Ready", now=1.0)
    tending.tick(STABLE_SECONDS)
    assert tending.local.starts.attempts("i") == 1
    tending.tick(STABLE_SECONDS + 1.0)
    assert tending.local.starts.attempts("i") == 0
    tending.local.starts.record_failure("i", 100.0)
    del state.instances["i"]
    acts(tending, state)
    assert tending.local.starts.keys() == set(), "and so does the end of the instance"


# Downloads -----------------------------------------------------------------------------------------------------------


def download(tending, kind, now=0.0, **fields):
    told = tending.download_changed(a_download("a", "tiny", kind, **fields), now)
    return [each.progress.kind.removeprefix("Download") for each in told]


def test_after_a_failure_only_what_gets_farther_is_news():
    tending = Tending("a")

    def settled(kind, **figures):
        said = download(tending, kind, **figures)
        tending.settled(ReportDownload(progress=a_download("a", kind="Ongoing")))
        return said

    assert settled("Ongoing", downloaded_bytes=5) == ["Ongoing"]
    assert settled("Failed") == ["Failed"]
    assert settled("Pending") == []
    assert settled("Ongoing", downloaded_bytes=5) == []
    assert settled("Ongoing", downloaded_bytes=6) == ["Ongoing"]
    assert settled("Completed", downloaded_bytes=9) == ["Completed"]
    assert settled("Ongoing", downloaded_bytes=1) == ["Ongoing"]


def test_progress_does_not_pile_up_while_nobody_takes_it():
    tending = Tending("a")
    assert download(tending, "Ongoing", downloaded_bytes=5) == ["Ongoing"]
    assert download(tending, "Ongoing", downloaded_bytes=6) == []
    assert download(tending, "Completed", downloaded_bytes=9) == ["Completed"]


def test_a_download_is_under_way_until_its_end_is_settled():
    tending = Tending("a")
    state = a_state(instances=[ONE])
    acts(tending, state)
    say(tending, "Idle")
    assert acts(tending, state) == ["DownloadModel"]
    assert download(tending, "Failed", now=0.0) == ["Failed"]
    assert acts(tending, state, 50.0) == []
    tending.settled(ReportDownload(progress=a_download("a", kind="Failed")))
    assert acts(tending, state, 50.0) == ["DownloadModel"]


def test_a_permanent_failure_is_not_tried_again_until_nobody_wants_it():
    tending = Tending("a")
    download(tending, "Failed", permanent=True)
    assert not tending.local.downloads.may_proceed("tiny", 1e9)
    assert acts(tending, a_state()) == []
    assert tending.local.downloads == KeyedBackoff()


def test_how_far_a_model_got_is_forgotten_when_nobody_wants_it():
    tending, _ = begun()
    far, near = (a_download("a", kind="Ongoing", downloaded_bytes=reached) for reached in (50, 10))
    failed = a_download("a", kind="Failed")
    tending.download_changed(far, 0.0)
    tending.download_changed(failed, 1.0)
    tending.settled(ReportDownload(progress=failed))
    assert tending.download_changed(near, 2.0) == [], "not farther than before"
    acts(tending, a_state(), 3.0)
    tending.download_changed(failed, 4.0)
    tending.settled(ReportDownload(progress=failed))
    assert tending.download_changed(near, 5.0) == [ReportDownload(progress=near)]


# Chats ---------------------------------------------------------------------------------------------------------------


def serving(instance=ONE):
    runners = dict.fromkeys(instance.runner_ids, "Ready")
    tending, _ = begun(instance, dict.fromkeys(runners, "Idle"))
    say(tending, "Idle", "Ready")
    return tending, a_state(instances=[instance], runners=runners, attempt=100)


def test_a_chat_is_forwarded_once_and_its_history_is_one_report():
    tending, state = serving()
    tending.admit(a_task(), True, 0.0)
    tending.admit(a_task(), True, 0.0)
    assert acts(tending, state) == ["TextGeneration"]
    assert acts(tending, state) == []
    (report,) = tending.end(a_task(status=TaskStatus.COMPLETE))
    assert isinstance(report, ReportTask)
    assert (report.begins, report.ends) == (True, True)
    assert tending.end(a_task(status=TaskStatus.COMPLETE)) == []


def test_a_long_chat_tells_its_beginning():
    tending, _ = serving()
    tending.admit(a_task(), True, 0.0)
    assert tending.tick(0.9) == []
    (report,) = tending.tick(1.0)
    assert isinstance(report, ReportTask)
    assert (report.begins, report.ends, report.task.task_status) == (True, False, "Running")
    (report,) = tending.end(a_task(status=TaskStatus.COMPLETE))
    assert isinstance(report, ReportTask)
    assert (report.begins, report.ends) == (False, True)


def test_history_is_told_by_the_node_of_rank_0_alone():
    tending, _ = serving()
    tending.admit(a_task(), False, 0.0)
    assert tending.tick(5.0) == []
    assert tending.end(a_task(status=TaskStatus.COMPLETE)) == []


def test_cancelling():
    tending, state = serving()
    tending.admit(a_task("early"), True, 0.0)
    assert [(each.task_id, each.code) for each in tending.cancel("early")] == [("early", "cancelled")]
    tending.end(a_task("early", status=TaskStatus.CANCELLED))
    tending.admit(a_task("late"), True, 0.0)
    assert acts(tending, state) == ["TextGeneration"]
    assert tending.cancel("late") == []
    assert acts(tending, state) == ["CancelTask"]
    assert acts(tending, state) == []
    assert tending.cancel("late") == tending.cancel("unknown") == []


def ends(tending, state):
    return [(each.task_id, each.code) for each in tending.stranded(state)]


def test_streams_of_a_deleted_instance_end_and_no_others():
    tending, state = serving()
    state.instances["j"] = an_instance("j", ("a",))
    state.runners["j-0"] = state.runners["i-0"]
    tending.admit(a_task("t1", "i"), True, 0.0)
    tending.admit(a_task("t2", "j"), True, 0.0)
    assert ends(tending, state) == []
    del state.instances["i"]
    assert ends(tending, state) == [("t1", "instance_deleted")]
    assert ends(tending, state) == [], "once"


@pytest.mark.parametrize("other", ["Failed", "ShuttingDown", None])
def test_a_chat_ends_with_any_runner_of_its_instance(other):
    tending, state = serving(TWO)
    tending.admit(a_task(), True, 0.0)
    assert ends(tending, state) == []
    if other is None:
        del state.runners["i-1"]
    else:
        state.runners["i-1"] = a_state(runners={"i-1": other}, attempt=100).runners["i-1"]
    assert ends(tending, state) == [("t", "runner_failed")]


def test_a_chat_does_not_go_on_with_a_runner_that_began_anew():
    """The records of the old one's end and of the new one's beginning may come in one step."""
    tending, state = serving(TWO)
    tending.admit(a_task(), True, 0.0)
    assert ends(tending, state) == []
    state.runners["i-1"] = a_state(runners={"i-1": "Ready"}, attempt=101).runners["i-1"]
    assert ends(tending, state) == [("t", "runner_failed")]
