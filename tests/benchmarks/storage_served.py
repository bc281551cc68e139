"""A server's parts with a disk tier, driven by hand on this thread, and stopped in good order."""

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from served import settings_of

from anchorline.adapters.gpu.model_store import ModelStore
from anchorline.application.admission import Admission
from anchorline.application.durability import FlushReport
from anchorline.application.scheduler import Scheduler
from anchorline.container import Server, build
from anchorline.container_disk import MaybeDisk
from anchorline.settings import ServeSettings

CLOSE_S = 60.0


class DiskServer:
    """What a benchmark needs of one."""

    def __init__(self, parts: Server) -> None:
        self.parts = parts
        self.scheduler: Scheduler = parts.scheduler()
        self.admission: Admission = parts.admission()
        maybe: MaybeDisk = parts.maybe_disk()
        disk = maybe.service
        assert disk is not None, "the disk tier is off"
        self.disk = disk

    def flush(self) -> int:
        """Make what stands in the slots durable; the bytes that were written for it."""
        before = self.disk.tier.counters.bytes_written
        reports: list[FlushReport] = []
        self.scheduler.flush(reports.append)
        while not reports:
            self.scheduler.step()
        assert reports[0].durable, reports[0]
        return self.disk.tier.counters.bytes_written - before

    def forget(self) -> None:
        """Nothing stands in the slots any more: what comes next is cold, or from the disk."""
        self.scheduler.clear_ram()


@contextmanager
def disk_server(model: str, directory: Path, *, slots: int = 1) -> Generator[DiskServer]:
    """Load the model and open what an earlier one left in the directory."""
    usual = settings_of(model)
    settings = ServeSettings(
        model=model,
        dtype=usual.dtype,
        models_dir=usual.models_path,
        cache_dir=directory,
        slots=slots,
        disk_codec="off",
        disk_idle_s=0,
        disk_free_min=0,
    )
    ModelStore(settings.models_path).get(model, lambda _: None)
    parts = build(settings)
    server = DiskServer(parts)
    try:
        yield server
    finally:
        parts.jobs().close(CLOSE_S)
        server.disk.tier.close()
