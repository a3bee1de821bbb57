"""Lists that were logged before rankloop was there, to begin with what they teach.

`lists` says what a logged list is and what is wrong with one, `files` reads them (JSON lines, TSV, Parquet), `learning`
teaches a learner with them. The service does the same with its own store: `rankloop.service.control.warm_start`.
"""

from rankloop.logs.files import FORMATS, Reading
from rankloop.logs.impressions import Features, LoggedList, parse_line
from rankloop.logs.warm_start import Report, warm, warm_file

__all__ = ["FORMATS", "Features", "LoggedList", "Reading", "Report", "parse_line", "warm", "warm_file"]
