"""J, the jobspec with the signature of its user, as flux-core's programs send it."""

from __future__ import annotations

import base64

import msgspec
import pytest

from flux_trio.formats import FormatError
from flux_trio.formats.signed_jobspec import SignedJobspec, sign, unwrap

# The beginning of the J that `flux submit true` of flux-core 0.88 has sent.
HEADER = "dmVyc2lvbgBpMQB1c2VyaWQAaTAAbWVjaGFuaXNtAHNub25lAA=="


def test_what_flux_core_sends_is_read_and_written() -> None:
    j = f"{HEADER}.{base64.b64encode(b'{}').decode()}.none"
    assert unwrap(j) == SignedJobspec(0, b"{}")
    assert sign(0, b"{}") == j


@pytest.mark.parametrize("jobspec", [b"", b'{"a": 1}', "é".encode()])
def test_what_is_signed_is_read_again(jobspec: bytes) -> None:
    assert unwrap(sign(4_000_000_000, jobspec)) == SignedJobspec(4_000_000_000, jobspec)


@pytest.mark.parametrize(
    ("j", "complaint"),
    [
        ("a.b", "J: expected 3 parts that dots separate"),
        ("", "J: expected 3 parts that dots separate"),
        ("%.e30=.none", "J: expected a header in base64"),
        (f"{HEADER}.%.none", "J: expected a jobspec in base64"),
        (f"{HEADER}.é.none", "J: expected a jobspec in base64"),
        ("dmVyc2lvbgBpMQA=.e30=.none", "J: expected the mechanism none"),
        (f"{base64.b64encode(b'userid').decode()}.e30=.none", "J: expected the mechanism none"),
        (
            f"{base64.b64encode(b'userid' + bytes(1) + b'ix' + bytes(1)).decode()}.e30=.none",
            "J: expected the mechanism none",
        ),
        (
            base64.b64encode(b"userid\0ix\0mechanism\0snone\0").decode() + ".e30=.none",
            "J: expected a userid in the header",
        ),
        (
            base64.b64encode(b"userid\0i0\0mechanism\0smunge\0").decode() + ".e30=.sig",
            'J: expected the mechanism none, got "munge"',
        ),
    ],
)
def test_what_is_no_j_is_refused_with_what_was_expected(j: str, complaint: str) -> None:
    with pytest.raises(FormatError) as refused:
        unwrap(j)
    assert str(refused.value).startswith(complaint)


def test_a_text_in_j_is_shown_shortened() -> None:
    with pytest.raises(FormatError) as refused:
        unwrap("x" * 10_000)
    assert len(str(refused.value)) < 200
    assert msgspec.json.encode(str(refused.value))
