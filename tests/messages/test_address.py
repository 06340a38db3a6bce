import pytest

from flux_trio.messages.address import host_and_port, socket_path, uri_of, uri_of_socket


@pytest.mark.parametrize(
    ("uri", "parts"), [("ws://127.0.0.1:80", ("127.0.0.1", 80)), ("ws://[::1]:4567", ("::1", 4567))]
)
def test_a_uri_and_its_parts_say_the_same(uri: str, parts: tuple[str, int]) -> None:
    assert host_and_port(uri) == parts
    assert uri_of(*parts) == uri


@pytest.mark.parametrize("uri", ["", "127.0.0.1:80", "http://a:1", "ws://a", "ws://a:x", "ws://:1"])
def test_anything_else_is_refused_by_name(uri: str) -> None:
    with pytest.raises(
        ValueError,
        match=r"is not an address of an instance: expected ws://HOST:PORT or unix://PATH",
    ):
        host_and_port(uri)


def test_a_socket_has_its_path_in_its_uri_and_a_port_has_none() -> None:
    assert uri_of_socket("/run/local") == "unix:///run/local"
    assert socket_path("unix:///run/local") == "/run/local"
    assert socket_path("ws://127.0.0.1:80") is None
