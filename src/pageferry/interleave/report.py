# SPDX-License-Identifier: GPL-2.0-only
"""The output of start, set and status, as text and as JSON."""

from __future__ import annotations

from typing import Any

from pageferry import output
from pageferry.interleave.control import KERNEL, Outcome, Status
from pageferry.interleave.sessions import Session
from pageferry.interleave.user_space import Report
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE
from pageferry.units import format_nodes, format_size


def nodes(session: Session, found: Report) -> list[dict[str, object]]:
    """List nodes with their wanted and actual shares."""
    weights = dict(session.weights)
    total = max(found.total_pages, 1)
    listed = sorted(set(weights) | {node for node, n in found.pages.items() if n})
    return [
        {
            "id": node,
            "weight": weights.get(node, 0),
            "wanted_share": round(session.wanted.share(node), 6),
            "actual_share": round(found.pages[node] / total, 6),
            "pages": found.pages[node],
        }
        for node in listed
    ]


def writes(files: Files) -> list[dict[str, str]]:
    """List the writes, real or of a dry run."""
    return [{"path": str(path), "value": value} for path, value in files.writes]


def plan(outcome: Outcome, files: Files) -> dict[str, object]:
    """Return the plan of a dry run."""
    session = outcome.session
    document: dict[str, object] = {
        "pid": session.pid,
        "pids": outcome.pids,
        "by": session.by,
        "weights": str(session.wanted),
        "hot": session.hot,
        "quota_bytes": session.quota_bytes,
        "quota_ms": session.quota_ms,
        "writes": writes(files),
    }
    if outcome.why_user is not None:
        document["why_not_kernel"] = outcome.why_user
    if outcome.report is not None:
        document["nodes"] = nodes(session, outcome.report)
        document["would_move_pages"] = outcome.report.left_pages
    return document


def plan_text(document: dict[str, Any]) -> str:
    """Format a plan as text."""
    lines = []
    if "pids" in document:
        who = ", ".join(map(str, document["pids"]))
        what = "hot memory" if document["hot"] else "all memory"
        lines.append(f"{what} of {who} by weights {document['weights']}")
    if document.get("quota_bytes"):
        size = format_size(document["quota_bytes"])
        lines.append(f"at most {size} in {document['quota_ms']} ms")
    if document.get("by") == KERNEL:
        lines.append("by DAMON, in the kernel, until it is stopped:")
    elif "would_move_pages" in document:
        size = format_size(document["would_move_pages"] * PAGE)
        lines.append(f"from user space, by move_pages(2): {size} would move")
        if "why_not_kernel" in document:
            lines.append(f"(DAMON of this kernel cannot: {document['why_not_kernel']})")
    lines += [f"{write['value']} > {write['path']}" for write in document["writes"]]
    return "\n".join(lines) or "nothing to do"


def outcome(done: Outcome) -> dict[str, object]:
    """Return the result of a start or a change."""
    session = done.session
    document: dict[str, object] = {
        "pid": session.pid,
        "pids": done.pids,
        "by": session.by,
        "weights": str(session.wanted),
    }
    if done.report is not None:
        document |= _figures(done.report)
        document["nodes"] = nodes(session, done.report)
    return document


def outcome_text(done: Outcome) -> str:
    """Format a result as text."""
    session = done.session
    who = f"{session.pid} ({output.printable(session.name)})"
    if len(done.pids) > 1:
        who += f" and {len(done.pids) - 1} more"
    if done.report is None:
        doer = "DAMON" if session.by == KERNEL else "its worker"
        return f"{who}: {doer} moves memory by weights {session.wanted}"
    return f"{who}: {pass_text(done.report)}\n{_table(session, done.report)}"


def pass_text(done: Report) -> str:
    """Format the result of one pass as text."""
    text = f"{format_size(done.moved_pages * PAGE)} moved"
    if done.unmovable:
        text += f"; not movable: {_reasons(dict(done.unmovable))}"
    if done.no_room:
        text += f"; {no_room_text(done)}"
    return text


def no_room_text(done: Report) -> str:
    """Format the memory for which nodes had no room."""
    size = format_size(sum(done.no_room.values()) * PAGE)
    return f"{size} found no room on node {format_nodes(done.no_room)}"


def status(found: Status) -> dict[str, object]:
    """Return the status of a session."""
    session = found.session
    return {
        "pid": session.pid,
        "name": session.name,
        "by": session.by,
        "alive": found.alive,
        "running": found.running,
        "resting": session.resting,
        "weights": str(session.wanted),
        "hot": session.hot,
        "include_children": session.include_children,
        "quota_bytes": session.quota_bytes,
        "quota_ms": session.quota_ms,
        "page_bytes": PAGE,
        "nodes": nodes(session, found.report),
        "moved_pages": found.moved_pages,
        "left_pages": found.report.left_pages,
        "unmovable_pages": sum(found.unmovable.values()),
        "unmovable": found.unmovable,
        "no_room_pages": sum(session.no_room.values()),
        "damon": found.kernel_stats or None,
        "cpu_share": {name: round(share, 6) for name, share in found.costs.items()},
    }


def status_text(found: Status) -> str:
    """Format a status as text."""
    session = found.session
    if not found.alive:
        state = "has ended"
    elif session.by == KERNEL and found.running:
        state = "DAMON moves memory"
    elif session.by == KERNEL:
        at_rest = "memory is in its place, and DAMON rests"
        state = at_rest if session.resting else "another program has stopped DAMON"
    else:
        state = (
            "a worker moves memory" if found.running else "moved once, from user space"
        )
    lines = [
        f"{session.pid} ({output.printable(session.name)}), weights {session.wanted}: {state}"
    ]
    if found.alive:
        lines.append(_table(session, found.report))
    lines.append(f"moved        {format_size(found.moved_pages * PAGE)}")
    lines.append(f"left         {format_size(found.report.left_pages * PAGE)}")
    costs = [f"{name} {share:.2%} of a CPU" for name, share in found.costs.items()]
    if costs:
        lines.append(f"watching     {', '.join(costs)}")
    if found.unmovable:
        lines.append(f"not movable  {_reasons(found.unmovable)}")
    for node, pages in session.no_room.items():
        lines.append(f"no room      {format_size(pages * PAGE)} for node {node}")
    return "\n".join(lines)


def _figures(done: Report) -> dict[str, object]:
    return {
        "moved_pages": done.moved_pages,
        "unmovable_pages": sum(done.unmovable.values()),
        "unmovable": dict(done.unmovable),
        "no_room_pages": sum(done.no_room.values()),
        "no_room": {str(node): pages for node, pages in done.no_room.items()},
    }


def _reasons(found: dict[str, int]) -> str:
    parts = [f"{format_size(pages * PAGE)} {why}" for why, pages in found.items()]
    return ", ".join(parts)


def _table(session: Session, found: Report) -> str:
    rows = [
        [
            str(row["id"]),
            str(row["weight"]),
            f"{row['wanted_share']:.1%}",
            f"{row['actual_share']:.1%}",
            format_size(int(str(row["pages"])) * PAGE),
        ]
        for row in nodes(session, found)
    ]
    return output.table(["node", "weight", "wanted", "is", "memory"], rows)
