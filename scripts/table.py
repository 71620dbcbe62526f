#!/usr/bin/env python3
"""A Markdown table of validation perplexity by epoch from run records (no packages needed).

Usage: table.py RUN_DIR...      each with record.jsonl and settings.toml
"""
import json
import pathlib
import sys

runs = [pathlib.Path(run) for run in sys.argv[1:]]
evals = {}
for run in runs:
    with open(run / "record.jsonl", encoding="utf-8") as record:
        events = [json.loads(line) for line in record if line.endswith("\n")]
    evals[run] = [event for event in events if event["event"] == "eval"]
epochs = max(len(e) for e in evals.values())
print("| run | " + " | ".join(f"epoch {i + 1}" for i in range(epochs)) + " | training ppl | residual |")
print("|---" * (epochs + 3) + "|")
for run in runs:
    e = evals[run]
    cells = [f"{x['valid_ppl']:.2f}" for x in e] + [""] * (epochs - len(e))
    residual = f"{100 * e[-1]['residual_relative']:.1f} %" if "residual_relative" in e[-1] else ""
    print(f"| {run.name} | " + " | ".join(cells) + f" | {e[-1]['train_ppl']:.2f} | {residual} |")
