"""What can go wrong, by who can mend it.

Every message names the value, the rule it breaks and what to do about it. All of them are `RankloopError`, so one
`except` catches what rankloop says and nothing else; those about values are also `ValueError`.
"""


class RankloopError(Exception):
    """The root of everything rankloop raises on purpose."""


class InvalidInput(RankloopError, ValueError):
    """A list of candidates, a feedback or an impression that breaks a rule."""


class InvalidParameter(RankloopError, ValueError):
    """A learner, user, world or data set was asked for with a value it does not take."""


class UnknownName(RankloopError, LookupError):
    """No learner, user or data set has that name. The message lists the ones there are."""


class DataError(RankloopError, ValueError):
    """A data file that cannot be read; the message has the file and, where there is one, the line number."""


class CodecError(RankloopError, ValueError):
    """Bytes that are not a whole, undamaged rankloop file of a version this release reads."""
