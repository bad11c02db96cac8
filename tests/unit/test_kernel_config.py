# SPDX-License-Identifier: GPL-2.0-only
"""Kconfig fragments."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.sources import found
from pageferry.errors import ExitCode, PageferryError
from pageferry.kernel import config
from pageferry.kernel.arch import ARM64, X86_64, Architecture

CONFIGS = Path(__file__).resolve().parents[2] / "linux" / "configs"
FRAGMENTS = config.Fragments(CONFIGS)

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
    one = config.canonical(["debug-lockdep", "debug-kasan"], FRAGMENTS)
    other = config.canonical(["vm", "debug-kasan", "debug-lockdep"], FRAGMENTS)
    assert one == other == ("vm", "debug-kasan", "debug-lockdep")


def test_an_unknown_config_lists_those_there_are() -> None:
    with pytest.raises(PageferryError) as caught:
        config.canonical(["nope"], FRAGMENTS)
    assert caught.value.code == ExitCode.USAGE
    assert caught.value.hint is not None and "debug-kasan" in caught.value.hint


def test_later_fragments_win_and_vanilla_leaves_ours_out(tmp_path: Path) -> None:
    (tmp_path / "vm.config").write_text(
        "CONFIG_A=y\nCONFIG_B=m\nCONFIG_MIGRATION=y\n"
        "CONFIG_MIGRATION_COPY_OFFLOAD=y\nCONFIG_MIGRATE_MTCOPY=m\n"
    )
    (tmp_path / "more.config").write_text("# CONFIG_A is not set\n")
    here = config.Fragments(tmp_path)
    merged = config.merge(("vm", "more"), here, vanilla=True, extra={})
    assert merged == {"A": "n", "B": "m", "MIGRATION": "y"}
    patched = config.merge(("vm",), here, vanilla=False, extra={"V": '"-x"'})
    assert patched["MIGRATION_COPY_OFFLOAD"] == "y"
    assert patched["V"] == '"-x"'


def test_a_fragment_for_the_architecture_goes_before_the_common_one(
    tmp_path: Path,
) -> None:
    (tmp_path / "arm64").mkdir()
    (tmp_path / "vm.config").write_text("CONFIG_A=y\n")
    (tmp_path / "arm64/vm.config").write_text("CONFIG_B=y\n")
    (tmp_path / "more.config").write_text("CONFIG_C=y\n")
    arm = config.Fragments(tmp_path, ARM64)
    assert arm.available() == config.Fragments(tmp_path).available() == ["more", "vm"]
    assert config.merge(("vm", "more"), arm, vanilla=False, extra={}) == {
        "B": "y",
        "C": "y",
    }


def test_a_fragment_for_the_base_comes_after_the_others(tmp_path: Path) -> None:
    for name, text in (
        ("vm.config", "CONFIG_A=y\nCONFIG_B=y\n"),
        ("arm64/vm.config", "CONFIG_A=m\n"),
        ("7.3/vm.config", "# CONFIG_B is not set\nCONFIG_C=y\n"),
    ):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)

    def merged(arch: Architecture, base: str) -> dict[str, str]:
        here = config.Fragments(tmp_path, arch, base)
        return config.merge(("vm",), here, vanilla=False, extra={})

    assert merged(X86_64, "6.12") == {"A": "y", "B": "y"}
    assert merged(X86_64, "7.3") == {"A": "y", "B": "n", "C": "y"}
    assert merged(ARM64, "7.3") == {"A": "m", "B": "n", "C": "y"}


def test_a_fragment_can_be_for_one_base_only(tmp_path: Path) -> None:
    (tmp_path / "7.3").mkdir()
    (tmp_path / "vm.config").write_text("CONFIG_A=y\n")
    (tmp_path / "7.3/new.config").write_text("CONFIG_B=y\n")
    newer, older = (config.Fragments(tmp_path, base=b) for b in ("7.3", "6.12"))
    assert newer.available() == ["new", "vm"]
    assert older.available() == ["vm"]
    both = config.merge(("vm", "new"), newer, vanilla=False, extra={})
    assert both == {"A": "y", "B": "y"}


def test_what_kconfig_refuses_is_an_error_that_names_it() -> None:
    result = "CONFIG_A=y\n# CONFIG_B is not set\n"
    config.check({"A": "y", "B": "n", "C": "n"}, result)
    with pytest.raises(PageferryError) as caught:
        config.check({"A": "m", "C": "y"}, result)
    assert caught.value.reason == "CONFIG_A=m (is y), CONFIG_C=y (is n)"


@pytest.mark.parametrize("path", found(CONFIGS, "**/*.config"), ids=str)
def test_our_fragments_parse_and_repeat_nothing(path: Path) -> None:
    text = path.read_text()
    parsed = config.parse(text, path.name)
    lines = [x for x in text.splitlines() if x.startswith(("CONFIG_", "# CONFIG_"))]
    assert parsed and len(lines) == len(parsed)
