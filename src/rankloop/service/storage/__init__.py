"""The store of the service: impressions, feedback and learned states, in SQLite or PostgreSQL."""

from rankloop.service.storage.database import open_database
from rankloop.service.storage.events import NewEvent
from rankloop.service.storage.impressions import NewImpression
from rankloop.service.storage.outcomes import Outcome
from rankloop.service.storage.writer import Writer

__all__ = ["NewEvent", "NewImpression", "Outcome", "Writer", "open_database"]
