"""Strategies: any events in any order, over so few names that they often meet. Much of them makes no sense."""

from hypothesis import strategies as st

from exo_cli.engine.core.events import (
    DeleteReason,
    InstanceCreated,
    InstanceDeleted,
    NodeDownloadProgress,
    NodeGatheredInfo,
    NodeJoined,
    NodeTimedOut,
    RunnerStatusUpdated,
    TaskCreated,
    TaskDeleted,
    TaskStatusUpdated,
    TermStarted,
    TopologyEdgeCreated,
    TopologyEdgeDeleted,
    VotersChanged,
)
from exo_cli.engine.core.runners import TRANSITIONS
from exo_cli.engine.core.tasks import TaskStatus
from exo_cli.engine.core.topology import Edge
from tests.builders import a_card, a_download, a_node, a_record, a_status, a_task, an_instance

NODES, INSTANCES, TASKS, MODELS = "abc", ("i", "j"), ("t1", "t2"), ("tiny", "other")
NODE, INSTANCE = st.sampled_from(NODES), st.sampled_from(INSTANCES)
RUNNER = st.sampled_from([f"{each}-{rank}" for each in INSTANCES for rank in (0, 1)])
STATUS = st.sampled_from([a_status(name.removeprefix("Runner")) for name in TRANSITIONS])
PLACED = st.builds(
    an_instance,
    INSTANCE,
    st.sampled_from([("a",), ("a", "b"), ("b", "c")]),
    st.sampled_from([a_card(each) for each in MODELS]),
)
FACTS = st.builds(a_node, NODE, memory_bytes=st.sampled_from([1 << 30, 1 << 33]))
PROGRESS = st.builds(
    a_download, NODE, st.sampled_from(MODELS), st.sampled_from(["Pending", "Ongoing", "Completed", "Failed"])
)
TASK = st.builds(a_task, st.sampled_from(TASKS), INSTANCE, st.sampled_from(TaskStatus))
EDGE = st.builds(Edge, source=NODE, sink=NODE, address=st.sampled_from(["x:1", "y:1"]))
EVENTS = st.one_of(
    st.builds(InstanceCreated, instance=PLACED),
    st.builds(InstanceDeleted, instance_id=INSTANCE, reason=st.sampled_from(DeleteReason)),
    st.builds(RunnerStatusUpdated, runner_id=RUNNER, runner_status=STATUS, attempt=st.none() | st.integers(0, 3)),
    TASK.map(lambda task: TaskCreated(task_id=task.task_id, task=task)),
    st.builds(
        TaskStatusUpdated,
        task_id=st.sampled_from(TASKS),
        task_status=st.sampled_from(TaskStatus),
        tokens=st.none() | st.integers(0, 9),
    ),
    st.builds(TaskDeleted, task_id=st.sampled_from(TASKS)),
    st.builds(NodeDownloadProgress, download_progress=PROGRESS),
    st.builds(NodeJoined, node_id=NODE, facts=FACTS, incarnation=st.integers(0, 3)),
    st.builds(NodeGatheredInfo, node_id=NODE, facts=FACTS),
    st.builds(NodeTimedOut, node_id=NODE),
    st.builds(TopologyEdgeCreated, edge=EDGE),
    st.builds(TopologyEdgeDeleted, edge=EDGE),
    st.builds(TermStarted, master=NODE, cluster_id=st.just("c-1")),
    st.builds(VotersChanged, voters=st.just(("a",))),
)
STEPS = st.tuples(EVENTS, st.sampled_from([0.0, 1.0, 70.0]), st.sampled_from([None, None, "c1", "c2"]))
LOGS = st.lists(STEPS, max_size=25).map(
    lambda steps: [
        a_record(event, index, seconds=index * wait, command_id=command_id)
        for index, (event, wait, command_id) in enumerate(steps)
    ]
)
