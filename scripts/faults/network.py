"""The faults of a network, as a proxy plays them: how each begins and ends."""

from faults.plan import Fault
from faults.proxy import Proxy


def strike_network(proxy: Proxy, fault: Fault) -> None:
    traffic = proxy.traffic[fault.node, fault.other]
    match fault.kind:
        case "cut":
            proxy.cut(fault.node, fault.other)
        case "one-way":
            traffic.held.clear()
        case "delay":
            traffic.delay = fault.amount
        case "slow":
            traffic.rate = fault.amount
        case "duplicate":
            traffic.repeated = int(fault.amount)
        case "reorder":
            traffic.swapped = int(fault.amount)
        case "corrupt" if fault.amount > 0:
            traffic.changed = int(fault.amount)
        case "corrupt":
            traffic.damaged = int(-fault.amount)
            traffic.changed = int(-fault.amount) if not proxy.framed else 0


def mend_network(proxy: Proxy, fault: Fault) -> None:
    """The fault ends. Others that last stay."""
    one, other = proxy.traffic[fault.node, fault.other], proxy.traffic[fault.other, fault.node]
    match fault.kind:
        case "cut":
            one.refused = other.refused = False
        case "one-way":
            one.held.set()
        case "delay":
            one.delay = 0.0
        case "slow":
            one.rate = 0.0
        case "duplicate":
            one.repeated = 0
        case "reorder":
            one.swapped = 0
        case "corrupt":
            one.changed = one.damaged = 0
