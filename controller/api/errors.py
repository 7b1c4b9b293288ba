"""Errors as HTTP answers: ``{"error": one line, "kind": the class}``."""

from collections.abc import Iterator, Mapping
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.exceptions import HTTPException

from controller.errors import (
    Conflict,
    GuestError,
    NoSuch,
    PlaneError,
    PlaneUnreachable,
    SpecError,
    SplitplaneError,
    StoreError,
)
from controller.spec.document import PATTERN_WORDS

_STATUS: dict[type[SplitplaneError], int] = {
    SpecError: 422,
    Conflict: 409,
    NoSuch: 404,
    PlaneUnreachable: 503,
    PlaneError: 502,
    GuestError: 424,
    StoreError: 507,
}


class Problem(BaseModel):
    """Why a request was not carried out."""

    error: str
    kind: str


def status_of(problem: SplitplaneError) -> int:
    """Return the HTTP status of an error."""
    return next((_STATUS[kind] for kind in type(problem).__mro__ if kind in _STATUS), 500)


def body_of(problem: SplitplaneError) -> dict[str, str]:
    """Return the body of an error."""
    return {"error": str(problem), "kind": type(problem).__name__}


async def _splitplane_error(_: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, SplitplaneError)
    return JSONResponse(body_of(problem), status_of(problem))


async def _invalid_request(_: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, RequestValidationError)
    first = min(problem.errors(), key=lambda one: one["type"].endswith("_type"))  # of a union, what came further
    place = ".".join(_place(first, problem.body))
    return JSONResponse({"error": f"{place}: {_words(first)}", "kind": "InvalidRequest"}, 400)


def _place(problem: Mapping[str, Any], body: Any) -> Iterator[str]:
    """Walk to where the problem is, without what pydantic calls the alternatives of a union, which are no keys."""
    part, *keys = problem["loc"]
    yield str(part)
    for at, key in enumerate(keys, 1):
        inside = key in body if isinstance(body, dict) else isinstance(body, list) and isinstance(key, int)
        if inside:
            body = body[key]
        if inside or part != "body" or (problem["type"] == "missing" and at == len(keys)):
            yield str(key)


def _words(problem: Mapping[str, Any]) -> str:
    if problem["type"] == "string_pattern_mismatch":
        return f"{problem['input']!r} should be {PATTERN_WORDS[problem['ctx']['pattern']]}"
    if problem["type"] == "less_than_equal":  # its own words round what is more than a float holds
        return f"Input should be less than or equal to {problem['ctx']['le']}"
    return str(problem["msg"]).removeprefix("Value error, ")


async def _http_error(_: Request, problem: Exception) -> JSONResponse:
    assert isinstance(problem, HTTPException)
    return JSONResponse({"error": str(problem.detail), "kind": "HTTPError"}, problem.status_code)


def install(app: FastAPI) -> None:
    """Let an application answer with errors of this form."""
    app.add_exception_handler(SplitplaneError, _splitplane_error)
    app.add_exception_handler(RequestValidationError, _invalid_request)
    app.add_exception_handler(HTTPException, _http_error)
