"""What is said of efficiency: how busy cube cores are, with what, where the rest of peak × time goes, between ranks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import RenderableType

from npuperf.base.messages import Message, Quantity, chain, number, say, say_n, series, share, tflops
from npuperf.model.efficiency_result import Efficiency, ModelWork
from npuperf.model.result import Device, Result, least_efficient
from npuperf.show.device_text import WORTH
from npuperf.show.efficiency_tables import BASES, CAUSES, INFERRED, words_of
from npuperf.show.formats import View
from npuperf.show.terminal import legend_of, line, painted, section
from npuperf.show.words import Line, device_name, in_letters

_WIDEST: Final = 160
#: Letters of the parts in a bar, and their colours; what has no colour says that nothing is known of it.
_LETTERS: Final = {
    "useful": ("U", "green"),
    "useful_or_padded": ("u", "bright_green"),
    "padded": ("P", "bright_blue"),
    "cube_busy_without_formula": ("B", "bright_cyan"),
    "cube_uncounted": ("?", "white"),
    "cube_idle": ("I", "red"),
    "vector": ("V", "cyan"),
    "communication": ("M", "magenta"),
    "other": ("o", "blue"),
    "host_wait": ("H", "yellow"),
    "launch_latency": ("L", "bright_yellow"),
    "dependency": ("D", "bright_magenta"),
    "unattributed": (".", "dim"),
}
_COLOURS: Final = dict(_LETTERS.values())
#: What is not lost, for all that is known.
_DONE: Final = ("useful", "useful_or_padded", "cube_busy_without_formula", "cube_uncounted")
_LOST: Final = 3
#: Parts below this share of peak × time read as nothing.
LEAST: Final = 0.0005


def interval(ends: tuple[float, float]) -> Quantity:
    """Return shares as an interval, or as one where both read the same."""
    return share(ends[0]) if str(share(ends[0])) == str(share(ends[1])) else share(*ends)


def says_something(found: Efficiency) -> bool:
    """Tell whether anything is known of what cube cores do: counters, or shapes of which formulas tell it."""
    return bool(found.formula_share) or found.cube_busy_flop is not None


def efficiency_title(found: Efficiency, device: Device | None = None) -> Message:
    """Say how much of the peak is used, as counters tell, else as shapes do; ``device``: which, of several."""
    peak = say("{peak}", peak=tflops(found.peak_flop_per_s))
    known = say("{basis}", basis=INFERRED if found.inferred else BASES[found.basis])
    if found.cube_cores is not None and found.clock_mhz is not None:
        known = say("{cores} × {mhz} MHz, {basis}", cores=found.cube_cores, mhz=number(found.clock_mhz), basis=known)
    if found.most_flop_per_s is not None:
        known = say(
            "{known}, or a chip of {peak} that is throttled throughout", known=known, peak=tflops(found.most_flop_per_s)
        )
    if found.cube_busy_share is None:
        said = say("cube cores useful {useful} of {peak}, inferred from shapes alone ({known})",
                   useful=interval(found.hfu), peak=peak, known=known)  # fmt: skip
    else:
        said = say("cube cores busy {busy} of {peak} ({known})", busy=share(found.cube_busy_share), peak=peak,
                   known=known)  # fmt: skip
    if device is None:
        return say("efficiency: {said}", said=said)
    return say("efficiency of {device}: {said}", device=device_name(device), said=said)


def useful_line(found: Efficiency) -> Message | None:
    """Say what of it is useful, with and without what was computed anew."""
    if not found.formula_share:
        return None
    mfu = say("MFU of kernels {mfu}", mfu=interval(found.mfu.kernels))
    useful = None if found.cube_busy_share is None else say("useful {useful} (HFU)", useful=interval(found.hfu))
    return chain(useful, mfu, by=", ")


def lost_line(device: Device, found: Efficiency) -> Message | None:
    """Say where most of the rest goes."""
    lost = sorted((part for part in found.parts if part.part not in _DONE), key=lambda part: -part.ns)
    parts = [say("{part} {share}", part=words_of(device, part), share=share(part.share))
             for part in lost[:_LOST] if part.share >= WORTH]  # fmt: skip
    return say("lost most to: {parts}", parts=series(parts)) if parts else None


def model_line(found: Efficiency, model: ModelWork | None) -> Message | None:
    """Say what the model's size tells, if the user gave it."""
    if model is None or found.mfu.palm is None or found.mfu.verl is None:
        return None
    if model.given:
        mfu = say("MFU {mfu} by the FLOP of a step that were given", mfu=share(found.mfu.palm))
    else:
        mfu = say("MFU by the model's size: {palm} as PaLM counts, {verl} as verl does",
                  palm=share(found.mfu.palm), verl=share(found.mfu.verl))  # fmt: skip
    tokens = None
    if found.tokens_per_s is not None:
        tokens = say("{tokens} tokens/s per device", tokens=round(found.tokens_per_s))
    among = say_n("divided among {n} device", "divided among {n} devices", model.devices) if model.assumed else None
    return chain(mfu, tokens, among, by=", ")


def idle_line(found: Efficiency) -> Message | None:
    """Say what cube cores wait for while a kernel has them."""
    causes = [say("{cause} {share}", cause=CAUSES[one.cause], share=share(one.share))
              for one in found.idle if one.share >= LEAST]  # fmt: skip
    return say("idle in kernels, by cause (inferred): {causes}", causes=series(causes)) if causes else None


def notes_of(found: Efficiency) -> Iterator[Message]:
    """Say what does not count."""
    if found.reason is not None:
        yield say("peak × time cannot be split: {why}", why=found.reason)
    if found.contradictions:
        counters = found.cube_busy_flop is not None
        yield (
            say_n(
                "the shapes of {n} kernel contradict its counters: what is useful of it is not counted",
                "the shapes of {n} kernels contradict their counters: what is useful of them is not counted",
                found.contradictions,
            )
            if counters
            else say_n(
                "the shapes of {n} kernel ask for more than the peak allows: it is not counted",
                "the shapes of {n} kernels ask for more than the peak allows: they are not counted",
                found.contradictions,
            )
        )
    if found.odd:
        yield say_n("{n} kernel has counters that cannot be, which are not counted",
                    "{n} kernels have counters that cannot be, which are not counted", found.odd)  # fmt: skip
    if found.uncounted > found.odd and found.cube_busy_flop is not None:
        yield say_n("{n} kernel on cube cores has no counters: whether it multiplies is not told",
                    "{n} kernels on cube cores have no counters: whether they multiply is not told",
                    found.uncounted - found.odd)  # fmt: skip
    if found.formula_share == 0:
        yield say("no kernel on cube cores has shapes and a formula that tell what is useful")
    elif found.formula_share is not None and found.formula_share < 1:
        yield say("kernels with {part} of the time of cube cores have shapes and a formula that tell what is useful",
                  part=share(found.formula_share))  # fmt: skip


def between(devices: Sequence[Device], first: Device) -> Message | None:
    """Say how far apart several devices are."""
    known = [(device, found) for device in devices if (found := device.window_efficiency) is not None]
    lowest = first.window_efficiency
    if len(known) < 2 or lowest is None:
        return None
    if all(found.formula_share for _, found in known):
        device, highest = max(known, key=lambda one: one[1].hfu[0])
        ends, what = (lowest.hfu, highest.hfu), say("useful")
    elif all(found.cube_busy_share is not None for _, found in known):
        device, highest = max(known, key=lambda one: one[1].cube_busy_share or 0.0)
        first, lowest = min(known, key=lambda one: one[1].cube_busy_share or 0.0)
        busy = [(found.cube_busy_share or 0.0,) * 2 for found in (lowest, highest)]
        ends, what = (busy[0], busy[1]), say("busy")
    else:
        return None
    low, high = (interval(end) for end in ends)
    if str(low) == str(high):
        return say("{what} on each of {n} devices: {low}", what=what, n=len(known), low=low)
    return say("{what}, of {n} devices: {low} on {least} to {high} on {most}", what=what, n=len(known), low=low,
               least=device_name(first), high=high, most=device_name(device))  # fmt: skip


def _least(result: Result) -> tuple[Device, Efficiency] | None:
    """Return the device that does least, with what is known of it: nothing where nothing is."""
    device = least_efficient(result.devices)
    found = None if device is None else device.window_efficiency
    return None if device is None or found is None or not says_something(found) else (device, found)


def efficiency_lines(result: Result, *, brief: bool = False) -> list[Line]:
    """Return what is said of efficiency, of several devices of the one that does least: nothing where none is known.

    ``brief``: without where the rest goes, and what does not count.
    """
    least = _least(result)
    if least is None:
        return []
    device, found = least
    title = efficiency_title(found, device if len(result.devices) > 1 else None)
    said = (useful_line(found), model_line(found, result.model), between(result.devices, device))
    more = () if brief else (lost_line(device, found), *notes_of(found))
    return [Line(title, "bold"), *(Line(one) for one in (*said, *more) if one)]


def efficiency_sections(result: Result, view: View, *, brief: bool = False) -> Iterator[RenderableType]:
    """Show it, with all that there is also a bar of the parts and what idle cube cores wait for."""
    least = _least(result)
    if least is None:
        return
    title, *lines = (one.content for one in efficiency_lines(result, brief=brief))
    body: list[RenderableType] = [line(one) for one in lines]
    if view.full and least[1].parts:
        device, parts = least[0], least[1].parts
        letters = in_letters([(_LETTERS[part.part][0], part.ns) for part in parts], min(view.width - 2, _WIDEST))
        meant = {
            _LETTERS[part.part][0]: say("{part} {share}", part=words_of(device, part), share=share(part.share))
            for part in parts
            if part.share >= LEAST
        }
        idle = idle_line(least[1])
        body += [painted(letters, _COLOURS), legend_of(meant, _COLOURS), *([line(idle)] if idle else [])]
    yield section(title, *body)
