# SPDX-License-Identifier: GPL-2.0-only
"""The policies that take turns, and the shell commands that start two of them."""

from __future__ import annotations

import shlex
import shutil
import sys
from pathlib import Path

# In the order of the table.
NAMES = ("nothing", "balancing", "damo", "tier")
OURS = "tier"
_QUOTA = ("--damos_quota_interval", "1s", "--damos_quota_space", "200MB")
# Linux 6.15 and later choose intervals between these by themselves.
_TUNED = ("--monitoring_intervals_goal", "4%", "3", "5ms", "10s")
_FIXED = ("--monitoring_intervals", "5ms", "100ms", "1s")
_MARK = "END-OF-CONFIGURATION"


def find_damo() -> str | None:
    """Return damo of the tool's environment, or of this machine."""
    beside = Path(sys.executable).parent / "damo"
    return str(beside) if beside.exists() else shutil.which("damo")


def _scheme(
    action: tuple[str, str],
    rate: tuple[str, str],
    kind: tuple[str, ...],
    goal: tuple[str, ...],
) -> list[str]:
    words = ["--damos_action", *action, "--damos_access_rate", *rate, *_QUOTA]
    words += ["--damos_apply_interval", "1s", "--damos_filter", *kind]
    return [*words, *(("--damos_quota_goal", *goal) if goal else ())]


def damo_words(fast: int, slow: int, *, goals: bool) -> list[str]:
    """List the options of `damo start` for two tiers, with the values of mem_tier.sh.

    damo's package lacks this script of its authors. The script needs goals by node,
    which Linux has since 6.16, and a filter that allows, which it has since 6.14. To
    reject what is not young is the same as to allow what is.
    """
    intervals = _TUNED if goals else _FIXED
    free = ("node_mem_free_bp", "0.5%", str(fast)) if goals else ()
    used = ("node_mem_used_bp", "99.7%", str(fast)) if goals else ()
    words = ["--numa_node", str(fast), *intervals]
    words += _scheme(
        ("migrate_cold", str(slow)), ("0%", "0%"), ("reject", "young"), free
    )
    words += ["--numa_node", str(slow), *intervals]
    young = ("allow", "young") if goals else ("reject", "none", "young")
    words += _scheme(("migrate_hot", str(fast)), ("5%", "max"), young, used)
    for each in ("nr_filters", *(["nr_quota_goals"] if goals else [])):
        words += [f"--damos_{each}", "1", "1"]
    for each in ("targets", "schemes", "ctxs"):
        words += [f"--nr_{each}", "1", "1"]
    return words


def damo_command(damo: str, fast: int, slow: int) -> str:
    """Return the command that starts damo, without goals where the kernel has none."""
    with_goals, without = (
        shlex.join([damo, "start", *damo_words(fast, slow, goals=goals)])
        for goals in (True, False)
    )
    # damo keeps files in its home, and the virtual machine can write to few places.
    return f"export HOME=/tmp; {with_goals} || exec {without}"


def tier_command(config: str) -> str:
    """Return the command that serves the parent of the shell."""
    source = Path(__file__).parents[3]
    words = ["exec", "env", f"PYTHONPATH={source}", sys.executable, "-m", "pageferry"]
    # The shell replaces $PPID.
    command = f'{shlex.join([*words, "tier", "--pid"])} "$PPID"'
    if not config:
        return command
    return f"{command} --config /dev/stdin <<'{_MARK}'\n{config}\n{_MARK}"
