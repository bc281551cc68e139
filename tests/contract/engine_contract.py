"""What `ports/engine.py` and `ports/gpu_state.py` promise, as tests over any engine.

Subclass `EngineContract`, name the subclass `Test...`, and write the two hooks of `EngineHooks`.
Every comparison is bit for bit.
"""

from contract.engine_failure_contract import EngineFailureContract
from contract.engine_hooks import GRID, PROMPT, REFUSED, WINDOW
from contract.forward_contract import ForwardContract
from contract.resume_contract import ResumeContract
from contract.row_copies_contract import RowCopiesContract
from contract.section_copies_contract import SectionCopiesContract
from contract.state_bytes_contract import StateBytesContract

__all__ = ["GRID", "PROMPT", "REFUSED", "WINDOW", "EngineContract"]


class EngineContract(
    ForwardContract,
    ResumeContract,
    SectionCopiesContract,
    RowCopiesContract,
    StateBytesContract,
    EngineFailureContract,
):
    """Holds an engine to its ports."""
