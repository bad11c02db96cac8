# SPDX-License-Identifier: GPL-2.0-only
"""Kconfig fragments."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pageferry.errors import ExitCode, PageferryError
from pageferry.kernel import config

CONFIGS = Path(__file__).resolve().parents[2] / "linux" / "configs"

symbols = st.from_regex(r"[A-Z][A-Z0-9_]{0,20}", fullmatch=True)
values = st.sampled_from(["y", "m", "n", "42", "0x1000", '"a string"'])


@given(st.dictionaries(symbols, values))
def test_what_is_written_reads_back(wanted: dict[str, str]) -> None:
    assert config.parse(config.render(wanted), "x") == wanted


def test_a_typo_is_named_with_its_line() -> None:
    with pytest.raises(PageferryError) as caught:
        config.parse("# fine\nCONFG_X=y\n", "some.config")
    assert caught.value.value == "some.config:2"


def test_the_order_of_options_does_not_matter() -> None:
    one = config.canonical(["debug-lockdep", "debug-kasan"], CONFIGS)
    other = config.canonical(["vm", "debug-kasan", "debug-lockdep"], CONFIGS)
    assert one == other == ("vm", "debug-kasan", "debug-lockdep")


def test_an_unknown_config_lists_those_there_are() -> None:
    with pytest.raises(PageferryError) as caught:
        config.canonical(["nope"], CONFIGS)
    assert caught.value.code == ExitCode.USAGE
    assert caught.value.hint is not None and "debug-kasan" in caught.value.hint


def test_later_fragments_win_and_vanilla_leaves_ours_out(tmp_path: Path) -> None:
    (tmp_path / "vm.config").write_text(
        "CONFIG_A=y\nCONFIG_B=m\nCONFIG_MIGRATION=y\n"
        "CONFIG_MIGRATION_COPY_OFFLOAD=y\nCONFIG_MIGRATE_MTCOPY=m\n"
    )
    (tmp_path / "more.config").write_text("# CONFIG_A is not set\n")
    merged = config.merge(("vm", "more"), tmp_path, vanilla=True, extra={})
    assert merged == {"A": "n", "B": "m", "MIGRATION": "y"}
    patched = config.merge(("vm",), tmp_path, vanilla=False, extra={"V": '"-x"'})
    assert patched["MIGRATION_COPY_OFFLOAD"] == "y"
    assert patched["V"] == '"-x"'


def test_what_kconfig_refuses_is_an_error_that_names_it() -> None:
    result = "CONFIG_A=y\n# CONFIG_B is not set\n"
    config.check({"A": "y", "B": "n", "C": "n"}, result)
    with pytest.raises(PageferryError) as caught:
        config.check({"A": "m", "C": "y"}, result)
    assert caught.value.reason == "CONFIG_A=m (is y), CONFIG_C=y (is n)"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.config")), ids=lambda p: p.stem)
def test_our_fragments_parse_and_repeat_nothing(path: Path) -> None:
    text = path.read_text()
    parsed = config.parse(text, path.name)
    lines = [x for x in text.splitlines() if x.startswith(("CONFIG_", "# CONFIG_"))]
    assert parsed and len(lines) == len(parsed)
