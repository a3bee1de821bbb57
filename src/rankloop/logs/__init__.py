"""Readers of impression logs (JSON lines, TSV, Parquet, search engines), and warm start of learners."""

from rankloop.logs.files import FORMATS, LogReader
from rankloop.logs.impressions import CandidateBuilder, LoggedImpression, parse_line
from rankloop.logs.warm_start import WarmStartReport, warm_start, warm_start_file

__all__ = [
    "FORMATS",
    "CandidateBuilder",
    "LogReader",
    "LoggedImpression",
    "WarmStartReport",
    "parse_line",
    "warm_start",
    "warm_start_file",
]
