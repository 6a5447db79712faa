"""What a run knows of itself on the host: counts, windows, best score. Saved with every checkpoint."""

from dataclasses import dataclass, field

from strl_jax.runners.time_report import TimeReport
from strl_jax.runners.windows import EpisodeWindow


@dataclass
class Progress:
    """Host state of a run.

    Attributes:
        iteration: finished iterations.
        env_steps: environment steps of all environments.
        seconds: wall-clock of all sessions of the run.
        best_score: best mean evaluation return, None before the first.
        rewards, lengths: returns and lengths of the last 100 finished episodes.
        evaluation: scalars of the last evaluation.
        report: where the time went.
    """

    iteration: int = 0
    env_steps: int = 0
    seconds: float = 0.0
    best_score: float | None = None
    rewards: EpisodeWindow = field(default_factory=EpisodeWindow)
    lengths: EpisodeWindow = field(default_factory=EpisodeWindow)
    evaluation: dict[str, float] = field(default_factory=dict)
    report: TimeReport = field(default_factory=TimeReport)

    def state(self) -> dict:
        """As JSON."""
        return {
            "iteration": self.iteration,
            "env_steps": self.env_steps,
            "seconds": self.seconds,
            "best_score": self.best_score,
            "rewards": self.rewards.state(),
            "lengths": self.lengths.state(),
            "evaluation": self.evaluation,
            "report": self.report.state(),
        }

    @classmethod
    def from_state(cls, state: dict) -> "Progress":
        """Inverse of ``state``."""
        return cls(
            **(
                state
                | {
                    "rewards": EpisodeWindow.from_state(state["rewards"]),
                    "lengths": EpisodeWindow.from_state(state["lengths"]),
                    "report": TimeReport.from_state(state["report"]),
                }
            )
        )
