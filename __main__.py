"""The entry of `anchorline` and `python -m anchorline`.

What the commands do is imported when it is asked for, since torch alone takes seconds.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from . import __version__
from .adapters.cli.models_command import Flags, ListedModel, Progress
from .adapters.cli.program import CliParts, build_cli
from .adapters.cli.verify_command import Counted
from .settings import ServeSettings, exposed_keys, load

if TYPE_CHECKING:
    from .adapters.cli.replay_command import Replays
    from .adapters.cli.simulate_command import Worlds
    from .application.verify import VerifyReport


def main() -> None:
    """Run the command line on `sys.argv` and exit."""
    parts = CliParts(
        version=__version__,
        settings=ServeSettings,
        serve=_serve,
        list_models=_list_models,
        get_model=_get_model,
        verify=_verify,
        worlds=_worlds,
        replays=_replays,
        prove_model=_prove_model,
    )
    build_cli(parts)(prog_name="anchorline")


def _serve(flags: Flags, config: Path | None) -> None:
    settings = load(flags, environ=os.environ, config=config)  # a mistake shows at once
    from .container import serve  # noqa: PLC0415

    serve(settings, notice=exposed_keys(config))


def _list_models(flags: Flags, config: Path | None) -> Sequence[ListedModel]:
    from .adapters.gpu.model_store import ModelStore  # noqa: PLC0415

    return ModelStore(_models_path(flags, config)).listed()


def _get_model(name: str, flags: Flags, config: Path | None, progress: Progress) -> None:
    from .adapters.gpu.model_store import ModelStore  # noqa: PLC0415

    ModelStore(_models_path(flags, config)).get(name, progress)


def _prove_model(name: str, flags: Flags, config: Path | None) -> str:
    settings = load({**flags, "model": name}, environ=os.environ, config=config)
    from .container import proved_arithmetic  # noqa: PLC0415

    return proved_arithmetic(settings)


def _verify(flags: Flags, config: Path | None, repair: bool, progress: Counted) -> "VerifyReport":
    settings = load(flags, environ=os.environ, config=config)
    from .container_disk import verify_store  # noqa: PLC0415

    return verify_store(settings, repair, progress)


def _worlds() -> "Worlds":
    from .simulation.worlds import Worlds  # noqa: PLC0415

    return Worlds()


def _replays() -> "Replays":
    from .simulation.replays import Replays  # noqa: PLC0415

    return Replays()


def _models_path(flags: Flags, config: Path | None) -> Path:
    return load(flags, environ=os.environ, config=config).models_path


if __name__ == "__main__":
    main()
