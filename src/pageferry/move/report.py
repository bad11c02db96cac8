# SPDX-License-Identifier: GPL-2.0-only
"""Writes the account of a move, for people and for programs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from pageferry import output
from pageferry.move.account import MOVED, NOT_ASKED, TEXTS, Account, Reason
from pageferry.move.mover import Request
from pageferry.sysfs.pagebits import PAGE
from pageferry.sysfs.processes import Process
from pageferry.units import format_nodes, format_rate, format_size

_BLIND = (
    "without root the kernel shows no page flags: sizes of pages and writeback are"
    " unknown"
)
_NO_HOLDERS = (
    "the kernel shows no holders of pages; only registered buffers of io_uring are"
    " certain"
)


def by_reason(account: Account) -> dict[Reason, Counter[str]]:
    """Group the pages that stayed by reason, then by kind; pages in the way first."""
    found: dict[Reason, Counter[str]] = {}
    for reason in sorted(Reason, key=lambda reason: reason in NOT_ASKED):
        kinds = Counter(
            {
                kind: pages
                for (kind, why), pages in account.stayed.items()
                if why is reason
            }
        )
        if kinds:
            found[reason] = kinds
    return found


def unseen(account: Account) -> list[str]:
    """List the things that this kernel does not show to this command."""
    found = [] if account.sees_frames else [_BLIND]
    reasons = account.reasons()
    if reasons[Reason.PINNED] > sum(account.pinned_by.values()):
        found.append(_NO_HOLDERS)
    return found


def rate(account: Account) -> float:
    """Return the bytes per second of the whole command."""
    return account.moved_pages * PAGE / max(account.elapsed_s, 1e-9)


def document(
    account: Account, request: Request, found: Sequence[Process]
) -> dict[str, object]:
    """Write the document of --json."""
    steps = account.steps
    stayed = []
    for reason, kinds in by_reason(account).items():
        row: dict[str, object] = {
            "reason": str(reason),
            "text": TEXTS[reason],
            "pages": kinds.total(),
            "kinds": dict(kinds),
        }
        if reason in account.examples:
            pid, address = account.examples[reason]
            row["example"] = {"pid": pid, "address": hex(address)}
        stayed.append(row)
    result: dict[str, object] = {
        "processes": [{"pid": p.pid, "name": output.printable(p.name)} for p in found],
        "from": list(request.routes),
        "to": list(request.targets),
        "shared": request.shared,
        "dry_run": request.dry_run,
        "interrupted": account.interrupted,
        "ended_processes": account.ended_processes,
        "page_bytes": PAGE,
        "found_pages": account.found.total(),
        "moved_pages": account.moved_pages,
        "movable_pages": account.movable.total(),
        "kept_pages": account.kept_pages,
        "elapsed_ns": round(account.elapsed_s * 1e9),
        "bytes_per_s": round(rate(account)),
        "kinds": [
            {
                "kind": kind,
                "found_pages": account.found[kind],
                "asked_pages": account.asked(kind),
                "moved_pages": account.moved[kind],
                "movable_pages": account.movable[kind],
            }
            for kind in account.kinds()
        ],
        "stayed": stayed,
        "pinned_by": [
            {"holder": holder, "pages": pages}
            for holder, pages in account.pinned_by.items()
        ],
        "suspects": [
            {"holder": name, "files": files} for name, files in account.suspects.items()
        ],
        "steps": {
            "count": steps.count,
            "longest_ns": round(steps.longest_s * 1e9),
            "total_ns": round(steps.total_s * 1e9),
            "fixed_ns": round(steps.fixed_s * 1e9),
            "limit_ns": round(request.limit_s * 1e9),
            "over_limit": steps.over_limit,
            "smallest_pages": steps.smallest_pages,
            "largest_pages": steps.largest_pages,
        },
        "unseen": unseen(account),
    }
    if account.partner is not None:
        result["partner"] = {
            "pid": account.partner.pid,
            "name": output.printable(account.partner.name),
            "moved_pages": account.partner_pages,
        }
    if account.failures:
        result.update(account.failures[0].as_json())
    return result


def text(account: Account, request: Request, found: Sequence[Process]) -> str:
    """Write the account for people."""
    lines = [_headline(account, request, found)]
    if account.partner is not None and not request.dry_run:
        lines.append(
            f"{account.partner.pid} ({output.printable(account.partner.name)}):"
            f" {format_size(account.partner_pages * PAGE)} moved the other way"
        )
    steps = account.steps
    if steps.count:
        lines.append(
            f"calls     {steps.count:,} of {steps.smallest_pages:,} to"
            f" {steps.largest_pages:,} pages, the longest {steps.longest_s * 1e3:.1f} ms;"
            f" {steps.over_limit:,} over the limit of {request.limit_s * 1e3:g} ms;"
            f" each {steps.fixed_s * 1e3:.1f} ms longer, without a stall"
        )
    done, column = account.moved, MOVED
    if request.dry_run:
        done, column = account.movable, "would move"
    rows = [
        [kind, f"{asked:,}", f"{done[kind]:,}", f"{asked - done[kind]:,}"]
        for kind in account.kinds()
        if (asked := account.asked(kind))
    ]
    if rows:
        header = ("kind", f"on node {format_nodes(request.routes)}", column, "stayed")
        lines += ["", output.table(header, rows)]
    reasons = by_reason(account)
    kept = [item for item in reasons.items() if item[0] not in NOT_ASKED]
    rest = [item for item in reasons.items() if item[0] in NOT_ASKED]
    if kept:
        lines += ["", "pages that stayed:", *_reasons(account, kept)]
    if rest:
        lines += ["", "not to move:", *_reasons(account, rest)]
    lines += ["", *(f"not visible: {line}" for line in unseen(account))]
    return "\n".join(lines).rstrip()


def _headline(account: Account, request: Request, found: Sequence[Process]) -> str:
    who = f"{len(found)} processes"
    if len(found) == 1:
        who = f"{found[0].pid} ({output.printable(found[0].name)})"
    way = f"from node {format_nodes(request.routes)} to {format_nodes(request.targets)}"
    if request.dry_run:
        size = format_size(account.movable.total() * PAGE)
        return f"{who}: {size} would move {way}"
    line = (
        f"{who}: {format_size(account.moved_pages * PAGE)} moved {way}"
        f" in {account.elapsed_s:.2f} s, {format_rate(rate(account))}"
    )
    if account.interrupted:
        line += "; stopped before the end"
    if account.ended_processes:
        line += f"; ended meanwhile: {account.ended_processes}"
    return line


def _reasons(
    account: Account, items: Sequence[tuple[Reason, Counter[str]]]
) -> list[str]:
    width = max(len(f"{kinds.total():,}") for _, kinds in items)
    lines = []
    for reason, kinds in items:
        names = ", ".join(f"{kind} {pages:,}" for kind, pages in sorted(kinds.items()))
        lines.append(f"  {kinds.total():>{width},}  {TEXTS[reason]}")
        indent = " " * (width + 4)
        where = ""
        if reason in account.examples:
            pid, address = account.examples[reason]
            where = f"; the first at {address:x} of process {pid}"
        lines.append(f"{indent}{names}{where}")
        if reason is Reason.PINNED:
            lines += [f"{indent}{line}" for line in _holders(account, kinds.total())]
    return lines


def _holders(account: Account, pages: int) -> list[str]:
    lines = [f"{count:,} by {name}" for name, count in account.pinned_by.items()]
    unknown = pages - sum(account.pinned_by.values())
    if unknown > 0:
        lines.append(f"{unknown:,} by an unknown holder")
        lines += [
            f"perhaps {name} (open files: {files})"
            for name, files in account.suspects.items()
        ]
    return lines
