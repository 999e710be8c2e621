"""`FrontFinetuning`: trains the nets of the front on, once all nets of a search have been proposed and have ended."""

from ...results.runs.events import Event
from ...results.runs.status import Weights
from .producer import Idle, Producer
from .search_trials import SearchTrials


class FrontFinetuning(Producer):
    """Has the nets start that are trained on, one by one; what has started is among the search's trials."""

    def __init__(self, search: SearchTrials) -> None:
        self._search = search

    @property
    def complete(self) -> bool:
        return self._search.proposed_all and not self._search.finetuning.waits

    def next(self) -> Event | Idle:
        """The start of the next net, once nothing else is left; the search knows what runs."""
        search = self._search
        waiting = search.finetuning.waits if search.all_ended else []
        if not waiting:
            return Idle.OVER
        net, steps = waiting[0]
        assert net.record is not None, "a net of a plan has ended"
        number, parent = search.history.next_number, net.record.trial
        return Event("started", number, net.record.trial_key, {}, parent, Weights.FINETUNED.value, steps)
