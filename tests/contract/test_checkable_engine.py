"""The in-memory engine, with every kind of parts, against the engine contract."""

from anchorline.adapters.memory.checkable_engine import CheckableEngine
from anchorline.adapters.memory.checkable_state import CheckableState, Parts
from anchorline.ports.engine import Engine
from contract.engine_contract import GRID, WINDOW, EngineContract


class CheckableContract(EngineContract):
    parts = Parts.HYBRID
    row_invariant = False

    def make_engine(self, *, slots: int = 1, window: int = WINDOW, grid: int = GRID) -> Engine:
        return CheckableEngine(
            slots=slots,
            window=window,
            grid=grid,
            parts=self.parts,
            row_invariant=self.row_invariant,
        )

    def fail_next_forward(self, engine: Engine) -> None:
        assert isinstance(engine, CheckableEngine)
        engine.fail_next_forward()


class TestCheckableHybrid(CheckableContract):
    pass


class TestCheckableWhoseRowsLanesBringIn(CheckableContract):
    def make_engine(self, *, slots: int = 1, window: int = WINDOW, grid: int = GRID) -> Engine:
        engine = super().make_engine(slots=slots, window=window, grid=grid)
        for state in engine.slots:
            assert isinstance(state, CheckableState)
            state.lanes_place = True
        return engine


class TestCheckableAttention(CheckableContract):
    parts = Parts.ATTENTION


class TestCheckableRecurrent(CheckableContract):
    parts = Parts.RECURRENT


class TestCheckableRowInvariant(CheckableContract):
    row_invariant = True
