"""GET /v1/models and GET /v1/models/{id}."""

from pathlib import Path
from typing import Literal

from litestar import get
from litestar.di import NamedDependency
from litestar.params import FromPath
from msgspec import Struct

from ...domain.errors import RequestError
from .serving import Serving


class ModelBody(Struct, frozen=True):
    """A model that is served.

    Attributes:
        max_model_len: tokens of a prompt and its answer together, under vLLM's name.
    """

    id: str
    created: int
    max_model_len: int
    owned_by: str = "anchorline"
    object: Literal["model"] = "model"


class ModelsBody(Struct, frozen=True):
    """All of them: one."""

    data: list[ModelBody]
    object: Literal["list"] = "list"


@get("/v1/models")
async def models(serving: NamedDependency[Serving]) -> ModelsBody:
    """The served models."""
    return ModelsBody([_served(serving)])


@get("/v1/models/{model:path}")
async def model(model: FromPath[Path], serving: NamedDependency[Serving]) -> ModelBody:
    """One model, whose name may hold slashes."""
    name = model.as_posix().removeprefix("/")
    if name != serving.model:
        raise RequestError(
            f"this server serves {serving.model!r}, not {name[:200]!r}",
            field="model",
            code="model_not_found",
        )
    return _served(serving)


def _served(serving: Serving) -> ModelBody:
    return ModelBody(
        id=serving.model,
        created=serving.created_s,
        max_model_len=serving.service.profile.window,
    )
