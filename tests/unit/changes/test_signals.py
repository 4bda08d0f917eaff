"""Signals that ask a run to stop."""

import os
import signal
import threading

import pytest

from gpustack.changes.signals import stopping


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_is_noted_and_the_former_handler_returns(number: signal.Signals) -> None:
    stop, former = threading.Event(), signal.getsignal(number)
    with stopping(stop) as arrived:
        os.kill(os.getpid(), number)
        assert stop.wait(60)
    assert arrived == [number]
    assert signal.getsignal(number) is former


def test_another_thread_changes_no_handler() -> None:
    seen: list[bool] = []

    def work() -> None:
        former = signal.getsignal(signal.SIGTERM)
        with stopping(threading.Event()):
            seen.append(signal.getsignal(signal.SIGTERM) is former)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [True]
