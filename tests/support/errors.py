"""What every error looks like."""

import httpx


def checked(answer: httpx.Response, status: int) -> dict[str, object]:
    """The error of an answer in OpenAI's shape."""
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/json"
    assert set(answer.json()) == {"error"}
    error = answer.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text
    return error
