#!/usr/bin/env python3
"""Reads the event file of a run with the tensorboard package and compares every number with record.jsonl.

Usage: check_tensorboard.py RUN_DIR
"""
import json
import pathlib
import struct
import sys

from tensorboard.backend.event_processing import event_accumulator

STEP = {"nats": "train/nats_per_token", "norm": "train/gradient_norm", "rate": "train/rate", "tokens_per_s": "train/tokens_per_s"}
EVAL = {"valid_ppl": "perplexity/valid", "train_ppl": "perplexity/train", "window_ppl": "perplexity/windows", "epoch": "eval/epoch"}
COUPLING = ["objective", "penalty", "residual_mean", "residual_max", "residual_relative", "dual_norm", "state_move", "lambda"]
EVAL.update({key: f"coupling/{key}" for key in COUPLING})
END = {"test_ppl": "perplexity/test"}


def single(x):
    """The nearest number of 32 bits, which is what the format keeps."""
    return struct.unpack("f", struct.pack("f", x))[0]


run = pathlib.Path(sys.argv[1])
files = list(run.glob("events.out.tfevents.*"))
assert len(files) == 1, f"{len(files)} event files in {run}"
wanted = {}
with open(run / "record.jsonl", encoding="utf-8") as record:
    for line in record:
        event = json.loads(line)
        for key, tag in {"step": STEP, "eval": EVAL, "end": END}.get(event["event"], {}).items():
            if event.get(key) is not None:
                wanted.setdefault(tag, []).append((event["step"], single(event[key])))
board = event_accumulator.EventAccumulator(str(run), size_guidance={event_accumulator.SCALARS: 0})
board.Reload()
tags = board.Tags()["scalars"]
assert sorted(tags) == sorted(wanted), f"{sorted(tags)} instead of {sorted(wanted)}"
count = 0
for tag, numbers in wanted.items():
    read = [(scalar.step, scalar.value) for scalar in board.Scalars(tag)]
    assert read == numbers, f"{tag}: {read[:3]} … instead of {numbers[:3]} …"
    times = [scalar.wall_time for scalar in board.Scalars(tag)]
    assert times == sorted(times), f"{tag}: times go back"
    count += len(read)
assert "perplexity/valid" in tags
print(f"{len(tags)} tags, {count} numbers: TensorBoard reads what the record says")
