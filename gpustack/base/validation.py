"""What pydantic finds wrong in data of others. Their keys and texts can't forge a line of a message."""

from pydantic_core import ErrorDetails, ValidationError

from gpustack.base.text import printable

_LONGEST_KEY = 256


def first_problem(error: Exception) -> str:
    """The first of pydantic's errors as one line; of another error, its text."""
    return problem(error.errors()[0]) if isinstance(error, ValidationError) else printable(str(error), keep="")


def problem(detail: ErrorDetails, root: str = "$") -> str:
    """One of pydantic's errors as one line, such as ``$.pci[0].address: field required``.

    :param root: the JSON path of what was validated.
    """
    steps = (f"[{part}]" if isinstance(part, int) else f".{part[:_LONGEST_KEY]}" for part in detail["loc"])
    message = detail["msg"]
    return printable(f"{root}{''.join(steps)}: {message[:1].lower()}{message[1:]}", keep="")
