# ---
# jupyter:
#   jupytext:
#     formats: ipynb,py:percent
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3 (ipykernel)
#     language: python
#     name: python3
# ---

# %% [markdown]
# # npuperf in a notebook
#
# The samples that ship with the project are read here. With your own data, give the path of a profile, or none:
# `npuperf.load()` takes the latest run of `npuperf profile` in this folder.

# %%
from pathlib import Path

import npuperf

samples = next(place / "samples" for place in (Path.cwd(), *Path.cwd().parents) if (place / "samples").is_dir())
run = npuperf.load(samples / "transformer_ascend_pt")

# %% [markdown]
# ## What the run says
#
# A run at the end of a cell is shown as the main parts of its report: the verdict, where the time goes, the steps,
# findings with what each saves at most, and the operators that take most time.

# %%
run

# %% [markdown]
# `print(run)` says the same in a few lines. What decides is there as data: the verdict, and, behind it, the numbers
# that were judged.

# %%
print(run)
run.verdict.bound, run.verdict.basis, run.verdict.evidence

# %% [markdown]
# ## Tables
#
# All tables are pandas frames; times are int64 nanoseconds. Parts of a step add up to its span exactly:

# %%
parts = ["compute_ns", "comm_exposed_ns", "other_exposed_ns", "idle_ns"]
steps = run.steps.set_index("step")
assert (steps[parts].sum(axis="columns") == steps["span_ns"]).all()
steps[["span_ns", *parts, "bound"]]

# %% [markdown]
# What the host did while the device waited for it, in microseconds per cause, and in which lines of code:

# %%
run.blame.assign(us=run.blame["ns"] / 1000).groupby(["cause", "where"], dropna=False)["us"].sum().nlargest(8)

# %% [markdown]
# `run.kernels` has one row per kernel, with the operator of torch that it belongs to and its hardware counters. How
# much longer the slowest kernel of a type takes than its median one:

# %%
compute = run.kernels[run.kernels["work"] == "compute"]
times = compute.groupby("type", observed=True)["dur_ns"].agg(["count", "median", "max"])
times.assign(ratio=times["max"] / times["median"]).nlargest(5, "ratio")

# %% [markdown]
# What to do about it, the greatest gain first:

# %%
problems = run.findings[run.findings["status"] == "problem"]
problems[["severity", "title", "next"]].head(5)

# %% [markdown]
# ## Many ranks
#
# A folder of ranks is read as one job. Its report also says why ranks wait for each other, and has a picture of every
# rank in every step.

# %%
job = npuperf.load(samples / "pipeline_job")
job

# %% [markdown]
# ## Two runs
#
# `new.compare(old)` says whether a run got slower by more than its steps differ anyway, and where the difference comes
# from. Here the same recording stands on both sides, so that nothing changed. Give several earlier runs, and what
# differs between those is taken for noise.

# %%
earlier = npuperf.load(samples / "transformer_ascend_pt")
run.compare(earlier)

# %% [markdown]
# The same as tables; parts of the waterfall add up to the difference, to the nanosecond:

# %%
changes = run.changes(earlier)
assert changes["waterfall"]["delta_ns"].sum() == run.compare(earlier).delta_ns
changes["comparison"]

# %% [markdown]
# ## A page to hand on
#
# The whole report as one file that needs no network, with a timeline to zoom into. An earlier page of that name is
# replaced, any other file is not. With an earlier run behind the name, the page compares the two.

# %%
page = run.save_html("report.html")
print(f"{page}: {page.stat().st_size / 1000:.0f} kB")
