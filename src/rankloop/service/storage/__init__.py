"""Where impressions, feedback and what was learned are kept: SQLite in a file, or PostgreSQL by URL."""

from rankloop.service.storage.database import open_database
from rankloop.service.storage.log import NewEvent, NewImpression, Outcome
from rankloop.service.storage.writer import Writer

__all__ = ["NewEvent", "NewImpression", "Outcome", "Writer", "open_database"]
