"""The key `policy` of RFC 33's scheduler table, for all queues or for one.

The table belongs to schedulers: this one ignores its other keys.
"""

from __future__ import annotations

from typing import Any

import msgspec

from flux_trio.config import Config, SchedConfig
from flux_trio.formats import FormatError
from flux_trio.policies import POLICIES


def scheduler_policies(
    config: Config, policy: str | None = None
) -> tuple[SchedConfig, dict[str, str]]:
    """Return `[sched]` with the general policy, and the policy of each named queue.

    `policy` overrides both. Raises FormatError for an unknown policy.
    """
    general = policy or _policy_in(config, None) or config.sched.policy
    queues = {name: policy or _policy_in(config, name) or general for name in config.queues}
    return msgspec.structs.replace(config.sched, policy=general), queues


def _policy_in(config: Config, queue: str | None) -> Any:
    """Return a queue's policy; the general policy if its table has no policy."""
    policy = config.policy_for(queue).scheduler.get("policy")
    if policy is not None and policy not in POLICIES:
        table = "policy" if queue is None else f"queues.{queue}.policy"
        raise FormatError(f"one of {', '.join(POLICIES)}", policy, f"{table}.scheduler.policy")
    return policy
