"""Actions: what the planner answers with. The worker's steps, or a generation task to hand to its runner."""

from exo_cli.engine.core.tasks import (
    CancelTask,
    ConnectToGroup,
    CreateRunner,
    DownloadModel,
    GenerationTask,
    LoadModel,
    Shutdown,
    StartWarmup,
)

Action = (
    CancelTask | Shutdown | CreateRunner | DownloadModel | ConnectToGroup | LoadModel | StartWarmup | GenerationTask
)
