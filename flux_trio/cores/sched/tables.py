"""The key `policy` of RFC 33's scheduler table, for all queues or for one.

The table belongs to schedulers: this one ignores its other keys.
"""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.config import POLICIES_EXPECTED, Config, SchedConfig
from flux_trio.formats import FormatError
from flux_trio.policies import POLICIES


def policies_by_queue(
    config: Config, policy: str | None = None
) -> tuple[SchedConfig, dict[str, str]]:
    """Return `[sched]` with the general policy, and the policy of each named queue.

    `policy` overrides both. Raises FormatError for an unknown policy.
    """
    general = policy or _policy_in(config, None) or _known(config.sched.policy, "sched.policy")
    queues = {name: policy or _policy_in(config, name) or general for name in config.queues}
    return msgspec.structs.replace(config.sched, policy=general), queues


def _policy_in(config: Config, queue: str | None) -> Any:
    """Return a queue's policy; the general policy if its table has no policy."""
    policy = config.policy_for(queue).scheduler.get("policy")
    table = "policy" if queue is None else f"queues.{queue}.policy"
    return None if policy is None else _known(policy, f"{table}.scheduler.policy")


def _known(policy: Any, where: str) -> str:
    if not isinstance(policy, str) or policy not in POLICIES:
        raise FormatError(POLICIES_EXPECTED, policy, where)
    return policy
