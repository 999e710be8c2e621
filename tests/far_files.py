"""`FarFiles`: the driver's files as a worker on another node has them, without Ray."""

from typing import Any

from alternas.search.engine.driver_files import DriverFiles, FileServer


class FarFiles(DriverFiles):
    """Asks the server in this process; `asked` is for what."""

    def __init__(self) -> None:
        super().__init__(FileServer(), "")
        self.asked: list[tuple[str, Any]]
        object.__setattr__(self, "asked", [])

    @property
    def are_here(self) -> bool:
        return False

    def _ask(self, what: str, *given: Any) -> Any:
        self.asked.append((what, given[0]))
        return getattr(self.server, what)(*given)
