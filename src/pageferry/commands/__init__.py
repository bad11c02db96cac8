# SPDX-License-Identifier: GPL-2.0-only
"""The commands: one module each, loaded when a command runs.

`pageferry --help` shows one line for each first word. These lines are here, so that it
loads no module.
"""

ABOUT = {
    "status": "show the active engine, the limit and the counters",
    "top": "watch what migrates, why, how fast, and what fails",
    "move": "move a process's memory to other nodes, and explain what stays",
    "demo": "build, boot, move memory with every engine, print one table",
    "engine": "see and choose what copies pages",
    "interleave": "spread a process's memory over nodes by weight",
    "balance": "keep interleave weights right as bandwidth changes",
    "tier": "keep hot memory on fast nodes, and cold memory on slow ones",
    "exporter": "give the counters of migration to Prometheus",
    "compare": "run your own program with each engine while its memory migrates",
    "off": "turn every copy engine off",
    "doctor": "list what this machine and this kernel can do, and what is missing",
    "bench": "measure page migration",
    "report": "print results of benchmarks as one HTML page, or compare two",
    "model": "predict throughput and unmapped time from a machine's constants",
    "kernel": "build Linux with pageferry's changes",
    "vm": "run commands in a virtual machine",
    "fault-campaign": "move memory with DMA channels that fail in every way",
}
