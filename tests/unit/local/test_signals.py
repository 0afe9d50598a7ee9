"""Signals are recorded as a flag, which loops check."""

import os
import signal

import pytest

from berth.local.signals import Interrupted, Interrupts


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_signal_is_raised_at_the_next_check(signum: signal.Signals) -> None:
    inherited = signal.signal(signum, signal.default_int_handler)  # nohup's runs ignore SIGHUP
    with Interrupts() as interrupts:
        interrupts.check()
        os.kill(os.getpid(), signum)
        with pytest.raises(Interrupted, match="interrupted; what this command started is removed") as caught:
            interrupts.wait(10)
        assert (caught.value.signum, caught.value.exit_code) == (signum, 128 + signum)
        assert caught.value.by == ("Ctrl-C" if signum == signal.SIGINT else signum.name)
        os.kill(os.getpid(), signum)
        assert interrupts.count == 2
    assert signal.signal(signum, inherited) == signal.default_int_handler
