"""What the learners of one network share."""

from __future__ import annotations

from typing import Any, ClassVar, TypeVar

from rankloop.learners.composed import ModelLearner
from rankloop.learners.models.network import CARRIES, NetworkModel

AnyNetwork = TypeVar("AnyNetwork", bound=NetworkModel)


class NetworkLearner(ModelLearner[AnyNetwork]):
    """A learner whose `model_` is a network. Subclasses have `rank` and `learn`."""

    carries: ClassVar[str] = CARRIES

    def module(self, member: int = 0) -> Any:
        """A copy of your own module with the learned weights."""
        return self.model_.module(member)
