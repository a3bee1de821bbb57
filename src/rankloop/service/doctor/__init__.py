"""`rankloop doctor`: looks at what rankloop stands on, and says what to do where something is not as it should be.

A part a file: `installation` (Python, packages, compiled kernels), `machine` (settings, port, disk, clock, limits),
`storage` (what is in the store). Each has functions that yield findings; none changes anything.
"""

from rankloop.service.doctor.examination import Finding, State, examine

__all__ = ["Finding", "State", "examine"]
