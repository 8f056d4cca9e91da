"""Chips: their names, cores, clocks and memory, as CANN's platform files and the vendor's data sheets have them."""

from __future__ import annotations

import pytest

from npuperf.model.chip import (
    chip_of_soc,
    cores_of_soc,
    cube_flop_per_s,
    hbm_of_soc,
    known_socs,
    memory_of_soc,
    vector_cores_beside,
    vector_flop_per_s,
)


@pytest.mark.parametrize(
    ("soc", "cube", "vector", "mhz"),
    [
        ("Ascend910B1", 24, 48, 1850),
        ("ascend910b2c", 24, 48, 1800),
        ("Ascend910B3", 20, 40, 1800),
        ("Ascend910B4-1", 20, 40, 1500),
        ("Ascend910_9392", 24, 48, 1850),
        ("Ascend910_9363", 20, 40, 1500),
        ("Ascend950PR_9579", 28, 56, 1650),
        ("Ascend950PR_957bx", 28, 56, None),
        ("Ascend950DT_9582x", 32, 64, None),
        ("Ascend950DT_9581X", 32, 64, None),
        ("Ascend950PR_958b", 32, 64, 1650),
        ("Ascend950PR_9599", 36, 72, 1800),
        ("Ascend950DT_950x", 8, 16, None),
        ("Ascend950DT_950y", 8, 16, None),
        ("Ascend950PR_950z", 4, 8, None),
        ("Ascend350_354f", 14, 28, None),
        ("Ascend350_355e", 16, 32, None),
        ("Ascend310P3", 8, 7, None),
        ("Ascend310P1", 10, 8, None),
        ("Ascend310B4", 1, 1, None),
        ("Ascend910A", 32, 0, None),
        ("Ascend910ProA", 32, 0, None),
        ("Ascend910PremiumA", 32, 0, None),
        ("Ascend910ProB", 30, 0, None),
    ],
)
def test_what_is_known_of_a_chip(soc: str, cube: int, vector: int, mhz: int | None) -> None:
    chip, cores = chip_of_soc(soc), cores_of_soc(soc)
    assert chip is not None and cores is not None
    assert (chip.cube, chip.vector, chip.mhz) == (cores.cube, cores.vector, mhz) == (cube, vector, mhz)


def test_a_name_that_is_of_no_one_chip_is_not_known() -> None:
    assert chip_of_soc("Ascend910B") is None and cores_of_soc("Ascend910") is None and hbm_of_soc("") is None


def test_no_chip_is_in_the_table_twice() -> None:
    assert len(set(known_socs())) == len(known_socs())
    for name in ("Ascend950DT_9581", "Ascend950DT_9581x", "Ascend950PR_957b", "Ascend950PR_957bx"):
        assert chip_of_soc(name) is not None


def test_the_memory_of_a_chip_is_told_where_all_cards_of_its_name_have_as_much() -> None:
    gib = {soc: hbm_of_soc(soc) for soc in ("Ascend910B2", "Ascend910_9391", "Ascend910B4", "Ascend910_9362")}
    assert gib == {"Ascend910B2": 64 << 30, "Ascend910_9391": 64 << 30, "Ascend910B4": None, "Ascend910_9362": None}


def test_rates_of_memory_are_of_a_chip_or_of_its_kind() -> None:
    assert memory_of_soc("Ascend310P3", 8) is memory_of_soc("Ascend950PR_9599", 24) is memory_of_soc(None, 7) is None
    told = [memory_of_soc(soc, 24) for soc in ("Ascend910B2", "Ascend910B1", None)]
    assert [one is not None and one.of_chip for one in told] == [True, False, False]


def test_vector_cores_follow_from_cube_cores_on_split_chips_alone() -> None:
    # 8 cube cores: an Ascend950DT_950x has 16 vector cores beside them, an Ascend310P3, which is not split, 7
    assert [vector_cores_beside(n) for n in (4, 8, 10, 12, 20, 24, 30, 36)] == [8, 16, None, None, 40, 48, None, 72]


@pytest.mark.parametrize(
    ("cores", "mhz", "cube", "vector"),  # TFLOPS of FP16 as published: 376 of an Ascend910B2 are 353.9 + 22.1
    [((24, 48), 1800, 353.9, 22.1), ((20, 40), 1800, 294.9, 18.4), ((36, 72), 1800, 530.8, 33.2)],
)
def test_peaks_are_those_published(cores: tuple[int, int], mhz: int, cube: float, vector: float) -> None:
    assert cube_flop_per_s(cores[0] * mhz) / 1e12 == pytest.approx(cube, abs=0.06)
    assert vector_flop_per_s(cores[1] * mhz) / 1e12 == pytest.approx(vector, abs=0.06)
