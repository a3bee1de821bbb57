"""Lists that were logged before rankloop was there, to begin with what they teach.

`lists` says what a logged list is and what is wrong with one, `files` reads them (JSON lines, TSV, Parquet), `learning`
teaches a learner with them. The service does the same with its own store: `rankloop.service.operations.warm_start`.
"""

from rankloop.logged.files import FORMATS, Reading
from rankloop.logged.learning import Report, warm, warm_file
from rankloop.logged.lists import Features, LoggedList, parse_line

__all__ = ["FORMATS", "Features", "LoggedList", "Reading", "Report", "parse_line", "warm", "warm_file"]
