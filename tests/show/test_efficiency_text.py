"""What is shown of efficiency: a profile whose parts are worked out by hand (efficiency_plan.py), in every format."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path

import pytest
from build import analyze_path
from conftest import ROOT, run_cli
from efficiency_plan import BUSY, MS, PEAK, TOO_MUCH, USEFUL, WHOLE, Product, table
from msgspec.structs import replace

from npuperf.model.efficiency_result import Efficiency
from npuperf.model.result import Device, Result
from npuperf.model.shortened import lean_devices
from npuperf.show.efficiency_text import efficiency_lines

TABLES = ("efficiency", "efficiency_devices", "efficiency_idle", "efficiency_steps", "efficiency_phases")
#: Of three products, the gap and the addition: FLOP, ns.
PARTS = {
    "useful": (3 * USEFUL, 13_653_333),
    "padded": (3 * (BUSY - USEFUL), 1_346_667),
    "cube_idle": (30 * MS * PEAK / 1e9 - 3 * BUSY, 15 * MS),
    "vector": (5 * MS * PEAK / 1e9, 5 * MS),
    "unattributed": (5 * MS * PEAK / 1e9, 5 * MS),
}


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("plan"), Product(), Product(), Product(unit="scalar"))


def shown(path: Path, *options: str, columns: int = 80) -> str:
    return run_cli(["analyze", str(path), "--no-cache", *options], columns=columns).stdout


def section_of(path: Path, *options: str, columns: int = 80) -> list[str]:
    """The lines of the screen that are about efficiency."""
    found = shown(path, *options, columns=columns).split("\nefficiency: ")
    return found[1].split("\n\n")[0].split("\n") if len(found) > 1 else []


def words_of(path: Path, *options: str) -> str:
    return " ".join(" ".join(section_of(path, *options)).split())


def rows(path: Path, name: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(shown(path, "--format", "csv", "--table", name))))


def test_the_first_screen_says_how_busy_useful_and_where_the_rest_goes(path: Path) -> None:
    for columns in (80, 120):
        lines = section_of(path, columns=columns)
        assert len(lines) <= 4 and max(map(len, lines)) <= columns
        words = " ".join(" ".join(lines).split())
        assert words == (
            "cube cores busy 37.5 % of 294.9 TFLOPS (20 × 1800 MHz, by counters) useful 34.1 % (HFU), MFU of kernels "
            "22.8–34.1 % lost most to: cube cores idle in kernels 37.5 %, vector kernels 12.5 %, unattributed "
            "(no launch recorded) 12.5 %"
        )


@pytest.mark.parametrize("columns", [80, 120])
def test_all_of_it_has_a_bar_of_the_parts_as_wide_as_their_time(path: Path, columns: int) -> None:
    lines = section_of(path, "--full", columns=columns)
    words = " ".join(" ".join(lines).split())
    assert "U useful 34.1 % P padding and masks 3.4 % I cube cores idle in kernels 37.5 % V vector" in words
    assert "idle in kernels, by cause (inferred): memory 66.7 %, scalar 33.3 %" in words
    (bar,) = [line.strip() for line in lines if line.strip().startswith("UU")]
    room = columns - 2
    assert {sign: bar.count(sign) for sign in "UPIV."} == pytest.approx(
        {"U": 0.3413 * room, "P": 0.0337 * room, "I": 0.375 * room, "V": 0.125 * room, ".": 0.125 * room}, abs=1
    )


def test_the_table_adds_up_to_peak_times_time(path: Path) -> None:
    found = rows(path, "efficiency")
    assert {row["part"]: (float(row["flop"]), int(row["ns"])) for row in found} == {
        name: (pytest.approx(flop, rel=1e-9), ns) for name, (flop, ns) in PARTS.items()
    }
    assert sum(int(row["ns"]) for row in found) == 40 * MS
    assert sum(float(row["flop"]) for row in found) == pytest.approx(WHOLE, rel=1e-12)
    assert sum(float(row["share"]) for row in found) == pytest.approx(1, rel=1e-12)
    (device,) = rows(path, "efficiency_devices")
    assert float(device["mfu_least"]) == pytest.approx(2 * USEFUL / WHOLE)  # one of three may be computed anew
    assert float(device["mfu_most"]) == float(device["hfu_most"]) == pytest.approx(3 * USEFUL / WHOLE)
    assert float(device["cube_busy_share"]) == pytest.approx(3 * BUSY / WHOLE)
    assert (device["cube_cores"], device["clock_mhz"], device["basis"]) == ("20", "1800.0", "counters")
    assert [(row["cause"], float(row["share"])) for row in rows(path, "efficiency_idle")] == [
        ("memory", pytest.approx(2 / 3)), ("scalar", pytest.approx(1 / 3))
    ]  # fmt: skip
    (step,) = rows(path, "efficiency_steps")
    assert step["step"] == "11" and float(step["useful_flop_least"]) == pytest.approx(3 * USEFUL)
    assert sum(float(row["cube_busy_flop"] or 0) for row in rows(path, "efficiency_phases")) == pytest.approx(3 * BUSY)
    operators = {row["type"]: row for row in rows(path, "operators")}
    assert float(operators["MatMulV3"]["peak_share"]) == pytest.approx(0.5)  # while it runs
    assert float(operators["MatMulV3"]["useful_flop_most"]) == pytest.approx(3 * USEFUL)
    assert operators["Add"]["peak_share"] == operators["Add"]["cube_busy_flop"] == ""


def test_markdown_and_json_have_the_same(path: Path) -> None:
    told = shown(path, "--format", "markdown")
    assert "efficiency: cube cores busy 37.5 % of 294.9 TFLOPS" in told
    assert "| useful | 4.027 | 13.653 | 34.1 |" in " ".join(
        told.split("## where peak × time goes")[1].split("## ")[0].split()
    )
    (device,) = json.loads(shown(path, "--format", "json"))["devices"]
    parts = {part["part"]: (part["flop"], part["ns"]) for part in device["judged"]["efficiency"]["parts"]}
    assert {name: parts[name] for name in PARTS} == {
        name: (pytest.approx(flop, rel=1e-9), ns) for name, (flop, ns) in PARTS.items()
    }
    full = shown(path, "--full", columns=200)
    assert all(title in full for title in ("where peak × time goes", "efficiency by device", "efficiency by phase"))


def test_what_contradicts_and_what_cannot_be_is_said(tmp_path: Path) -> None:
    path = table(tmp_path, *[Product()] * 4, Product(shapes=TOO_MUCH), Product(mac=1.5))
    words = words_of(path)
    assert "the shapes of 1 kernel contradict its counters: what is useful of it is not counted" in words
    assert "1 kernel has counters that cannot be, which are not counted" in words
    # five tell it: of the odd one its shapes do
    assert "kernels with 83.3 % of the time of cube cores have shapes and a formula" in words
    whole = 70 * MS * PEAK / 1e9
    assert f"useful {500 * USEFUL / whole:.1f} % (HFU)" in words
    (open_,) = [row for row in rows(path, "efficiency") if row["part"] == "cube_uncounted"]
    assert open_["note"] == "1 kernel, which multiplies there or is idle; 1 has counters that cannot be"
    assert float(open_["ns"]) == pytest.approx(10 * MS - USEFUL / PEAK * 1e9, abs=2)
    two = table(tmp_path, *[Product()] * 3, *[Product(shapes=TOO_MUCH)] * 2)
    assert "the shapes of 2 kernels contradict their counters" in words_of(two)


def test_nothing_is_said_where_nothing_is_known_and_tables_say_what_lacks(tmp_path: Path) -> None:
    path = table(tmp_path, *[Product()] * 3, counters=False)
    assert "efficiency" not in shown(path) and "efficiency" not in shown(path, "--format", "markdown")
    for name in TABLES:
        said = " ".join(shown(path, "--table", name).split())
        assert "npuperf profile --level 1 --aic-metrics PipeUtilization" in said and "--soc NAME" in said
    assert "peak" not in shown(path).split("operators, in")[1].split("\n\n")[0]
    (device,) = json.loads(shown(path, "--format", "json"))["devices"]
    assert device["efficiency"] is device["judged"]["efficiency"] is None


def test_without_counters_the_chip_and_shapes_tell_and_that_is_inferred(tmp_path: Path) -> None:
    path = table(tmp_path, *[Product()] * 3, counters=False)
    words = words_of(path, "--soc", "Ascend910B3")  # 20 cube cores at 1800 MHz
    assert words.startswith(
        "cube cores useful 34.1 % of 294.9 TFLOPS, inferred from shapes alone (20 × 1800 MHz, as asked for) MFU of "
        "kernels 22.8–34.1 %"
    )
    said = shown(path, "--soc", "Ascend910B3", "--table", "efficiency", columns=200)
    assert "3 kernels, which multiply there or are idle" in said and "cube cores idle" not in said


def with_efficiency(device: Device, rank: int, hfu: float) -> Device:
    assert device.judged is not None and device.judged.efficiency is not None
    found = replace(device.judged.efficiency, hfu=(hfu, hfu))
    return replace(device, rank=rank, judged=replace(device.judged, efficiency=found))


def of(device: Device) -> Efficiency:
    assert device.window_efficiency is not None
    return device.window_efficiency


def test_of_several_devices_the_least_efficient_is_told_and_how_far_the_others_are(path: Path) -> None:
    result = analyze_path(path, no_cache=True)
    (device,) = result.devices
    apart = replace(
        result, devices=[with_efficiency(device, rank, hfu) for rank, hfu in ((0, 0.3), (1, 0.2), (2, 0.4))]
    )
    title, *rest = (str(line.content) for line in efficiency_lines(apart))
    assert title.startswith("efficiency of rank 1, device 0: cube cores busy 37.5 % of")
    assert "useful, of 3 devices: 20.0 % on rank 1, device 0 to 40.0 % on rank 2, device 0" in rest
    alike = replace(result, devices=[with_efficiency(device, rank, 0.3) for rank in (0, 1)])
    assert "useful on each of 2 devices: 30.0 %" in [str(line.content) for line in efficiency_lines(alike)]
    brief = [str(line.content) for line in efficiency_lines(apart, brief=True)]
    assert len(brief) == 3 and not any("lost" in line for line in brief)


def test_of_devices_in_their_sums_one_says_where_the_rest_goes(path: Path) -> None:
    (device,) = analyze_path(path, no_cache=True).devices
    many = [with_efficiency(device, rank, 0.3 - rank / 100) for rank in range(3)]
    lean = lean_devices(many)
    assert [len(of(one).parts) for one in lean] == [0, 0, 13]
    assert not any(one.efficiency and one.efficiency.parts for one in lean)
    assert [of(one).mfu for one in lean] == [of(one).mfu for one in many]
    assert len(of(lean[2]).idle) == 2 and not any(one.steps for one in lean)


def test_operators_of_devices_with_other_peaks_have_no_share_of_one(path: Path) -> None:
    from npuperf.show.efficiency_tables import operators_of

    result = analyze_path(path, no_cache=True)
    (device,) = result.devices
    assert device.judged is not None
    other = replace(of(device), peak_flop_per_s=PEAK * 0.9)
    apart = replace(device, rank=1, judged=replace(device.judged, efficiency=other))

    def peaks(*devices: Device) -> set[float | None]:
        changed: Result = replace(result, devices=list(devices))
        return {peak for _, peak in operators_of(changed)}

    assert peaks(device, device) == {PEAK} and peaks(device, apart) == {None}


REAL = ROOT.parent / "shared" / "data" / "msinsight" / "cluster4" / "rank_0_ascend_pt"


@pytest.mark.skipif(not REAL.exists(), reason="no such recording here")
def test_a_real_recording_on_one_screen() -> None:
    """Busy by the kernel table alone: cycles × mac ratio over cores × clock × span."""
    (file,) = REAL.rglob("kernel_details.csv")
    with file.open(newline="") as lines:
        kernels = [row for row in csv.DictReader(lines) if row["aic_total_cycles"] not in ("", "N/A")]
    cycles = sum(float(row["aic_total_cycles"]) * float(row["aic_mac_ratio"]) for row in kernels)
    busy = 100 * cycles / (20 * 1650e6 * 0.81002236)
    words = words_of(REAL)
    assert busy > 1 and f"cube cores busy {busy:.1f} % of 270.3 TFLOPS (20 × 1650 MHz" in words
    assert "useful 8.0 % (HFU)" in words and "lost most to: exposed communication 51.9 %" in words
