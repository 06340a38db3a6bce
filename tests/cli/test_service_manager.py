"""Under a service manager: it is told of each state over its socket, and SIGHUP reloads."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from flux_trio.cli.instance.service_manager import ServiceManager, service_manager
from tests.support.instance import DEADLINE_S, FLUX_TRIO, RunningInstance, environment, until

FIRST = "[exec]\nsimulate = true\n[policy.limits]\nduration = '1h'\n"


@contextmanager
def manager_socket(address: str) -> Iterator[socket.socket]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiving:
        receiving.bind(address)
        receiving.settimeout(DEADLINE_S)
        yield receiving


def told(receiving: socket.socket) -> dict[str, str]:
    """The assignments of the next datagram."""
    lines = receiving.recv(1 << 16).decode().split("\n")
    return dict(line.split("=", 1) for line in lines)


@pytest.mark.parametrize("address", ["{tmp_path}/notify", "@flux-trio-test-{pid}"])
def test_manager_is_told_over_its_socket(tmp_path: Path, address: str) -> None:
    address = address.format(tmp_path=tmp_path, pid=os.getpid())
    environ = {"NOTIFY_SOCKET": address, "HOME": "/"}
    manager = service_manager(environ)
    assert manager
    assert environ == {"HOME": "/"}, "a child would speak for this process"
    with manager_socket(address.replace("@", "\0", 1)) as receiving:
        before = time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1000
        manager.reloading()
        manager.ready("two\nlines")
        manager.stopping("end")
        reloading = told(receiving)
        assert before <= int(reloading.pop("MONOTONIC_USEC"))
        assert int(time.clock_gettime_ns(time.CLOCK_MONOTONIC)) // 1000 - before < 60e6
        assert reloading == {"RELOADING": "1"}
        assert told(receiving) == {"READY": "1", "STATUS": "two lines"}
        assert told(receiving) == {"STOPPING": "1", "STATUS": "end"}


def test_manager_that_is_gone_is_a_line_on_standard_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ServiceManager(str(tmp_path / "gone")).ready("")
    assert capsys.readouterr().err.startswith(f"flux-trio: NOTIFY_SOCKET {tmp_path}/gone: ")


def test_without_a_manager_nobody_is_told() -> None:
    manager = service_manager({})
    assert not manager
    manager.ready("")


@pytest.mark.real
def test_instance_under_a_manager(tmp_path: Path) -> None:
    """Ready, a reload, a reload that is refused, a broken file, the end; then dmesg has it all."""
    statedir, config = tmp_path / "state", tmp_path / "config.toml"
    config.write_text(FIRST)
    with manager_socket(str(tmp_path / "notify")) as receiving:
        env = environment(NOTIFY_SOCKET=str(tmp_path / "notify"))
        words = ("start", "--config", config, "--statedir", statedir, "--log-level", "info")
        with (tmp_path / "stderr").open("w") as stderr:
            process = subprocess.Popen(
                [*FLUX_TRIO, *map(str, words), "--log-format", "json"],
                env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=stderr,
            )  # fmt: skip
        try:
            ready = told(receiving)
            assert ready["READY"] == "1"
            assert str(statedir) in ready["STATUS"]
            instance = RunningInstance(statedir, None, "")  # type: ignore[arg-type]

            def reload() -> str:
                process.send_signal(signal.SIGHUP)
                assert told(receiving).keys() == {"RELOADING", "MONOTONIC_USEC"}
                answer = told(receiving)
                assert answer["READY"] == "1"
                return answer["STATUS"]

            def limit() -> str:
                return instance.ok("config", "get", "policy.limits.duration").strip()

            config.write_text(FIRST.replace("1h", "2h"))
            assert reload() == "the configuration is reloaded"
            assert limit() == "2h"
            config.write_text("[policy.limits\n")
            refused = reload()
            assert refused.startswith(f"the configuration is unchanged: {config}: expected TOML")
            config.write_text(FIRST.replace("1h", "nonsense"))
            assert reload().startswith(
                f"the configuration is unchanged: {config}.policy.limits.duration: "
            )
            config.unlink()
            assert (
                reload() == f"the configuration is unchanged: {config}: No such file or directory"
            )
            assert limit() == "2h"
            process.terminate()
            assert told(receiving)["STOPPING"] == "1"
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
            process.wait(DEADLINE_S)
    lines = [json.loads(line) for line in (tmp_path / "stderr").read_text().splitlines()]
    mine = [line for line in lines if line["module"] == "config"]
    assert [line["level"] for line in mine] == ["info", "info", "err", "err", "err"]
    assert mine[0]["text"] == "changed: policy.limits.duration"
    assert mine[2]["text"] == refused
    assert mine[2]["timestamp"] == pytest.approx(time.time(), abs=DEADLINE_S)
    assert stored_texts(statedir)[-len(lines) :] == [line["text"] for line in lines]


def stored_texts(statedir: Path) -> list[str]:
    return [json.loads(line)["text"] for line in (statedir / "log").read_text().split("\n") if line]


@pytest.mark.real
def test_hangup_before_the_instance_is_ready_reloads_later(tmp_path: Path) -> None:
    """The signal comes while Python still loads the instance, or while the instance starts."""
    config = tmp_path / "config.toml"
    config.write_text(FIRST)
    with manager_socket(str(tmp_path / "notify")) as receiving:
        process = subprocess.Popen(
            [*FLUX_TRIO, "start", "--config", config, "--statedir", tmp_path / "state"],
            env=environment(NOTIFY_SOCKET=str(tmp_path / "notify")),
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            until((tmp_path / "state" / "state.sqlite").exists)
            process.send_signal(signal.SIGHUP)
            assert told(receiving)["READY"] == "1"
            assert "RELOADING" in told(receiving)
            assert told(receiving)["STATUS"] == "the configuration is reloaded"
            process.terminate()
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
            process.wait(DEADLINE_S)
