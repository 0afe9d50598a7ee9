"""A host that can't take part ends the whole job.

It still connects to the other hosts, to report the reason; otherwise they would wait for it until their deadline. If it
can't connect, it ends alone.
"""

import time

from berth.contract.errors import JobError
from berth.runtime.software import kit_version
from berth.train.hosts.events import Events, Lost, Message, Signalled
from berth.train.hosts.log import get_logger
from berth.train.hosts.outcome import Outcome, outcome_fields, read_outcome
from berth.train.hosts.rendezvous import Introduction, Stopped
from berth.train.launching.host import HostContext


def report_refusal(context: HostContext, reason: Outcome) -> Outcome:
    """Report to the other hosts why this one can't take part; returns the outcome of the whole job."""
    return _lead(context, reason) if context.job.leads else _follow(context, reason)


def _lead(context: HostContext, reason: Outcome) -> Outcome:
    context.finish(reason)
    try:
        leader = context.listen()
    except JobError as error:
        get_logger().info("rendezvous: could not report this to the other hosts: %s", error)
    else:
        leader.dismiss(outcome_fields(reason, time.time()), time.monotonic() + context.timeout)
    return reason


def _follow(context: HostContext, reason: Outcome) -> Outcome:
    job = context.job
    get_logger().info("rendezvous: this host can't take part; joining the leader %s to report why", job.leader)
    connection = None
    outcome = None
    try:
        connection = context.join(Introduction(job.current_host, ranks=0, version=kit_version()))
        connection.send("done", **outcome_fields(reason, time.time()))
        outcome = _await_outcome(context.events)
    except JobError as error:
        get_logger().info("rendezvous: could not report this to the leader: %s", error)
    except Stopped:
        get_logger().info("rendezvous: did not report this to the leader, because this host got a stop signal")
    context.finish(outcome or reason)
    if connection is not None:
        connection.send("bye")
        connection.close()
    return outcome or reason


def _await_outcome(events: Events) -> Outcome | None:
    """Wait for the job's outcome; None if the leader is lost or a signal comes first."""
    while True:
        match events.get():
            case Message(kind="outcome", fields=fields):
                return read_outcome(fields, time.time())
            case Lost() | Signalled():
                return None
            case _:
                pass
