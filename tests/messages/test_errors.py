import errno

import pytest

from flux_trio.messages import Errno, FluxError
from flux_trio.messages.errors import errno_text


def test_errnums_are_those_of_the_texts() -> None:
    """6.errors.1 6.streaming.1 6.streaming.3 6.cancel.3"""
    assert (Errno.ENOSYS, Errno.EHOSTUNREACH) == (38, 113)
    assert (Errno.EPROTO, Errno.ENODATA, Errno.ECANCELED) == (71, 61, 125)


@pytest.mark.parametrize("number", list(Errno))
def test_every_errnum_has_its_posix_name_and_a_text(number: Errno) -> None:
    assert getattr(errno, number.name) > 0
    assert errno_text(number) != f"error {int(number)}"


def test_an_error_without_a_text_says_what_its_errnum_means() -> None:
    assert str(FluxError(Errno.ENOSYS)) == "Function not implemented"
    assert str(FluxError(9999)) == "error 9999"
    assert str(FluxError(Errno.ENOSYS, "no method a.b")) == "no method a.b"
