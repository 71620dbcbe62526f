#!/usr/bin/env python3
"""Perplexity of an exported model in PyTorch, to hold beside `tprop eval --json`.

    pip install torch numpy safetensors
    python scripts/check_export.py DIR --tokens FILE [--streams 32]

Loads DIR/model.safetensors into torch.nn.Embedding, RNN | GRU | LSTM and Linear by name (load_state_dict, strict: no
converter) and evaluates the whitespace-separated token numbers in FILE: n tokens are cut into S streams of
m = floor((n - 1) / S); stream i reads tokens i·m … i·m+m−1 and predicts each one's successor; the state starts at zero and is
carried. `--streams 1` drops nothing. Prints one JSON line; exit code 2 for an input that cannot be used.
"""
import argparse
import json
import math
import sys
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors import SafetensorError
from safetensors.torch import load_file

CELLS = {1: torch.nn.RNN, 3: torch.nn.GRU, 4: torch.nn.LSTM}  # gates -> module; torch.nn.RNN is tanh


def check(folder):
    """Refuses what torch.nn has no module for; the tensors alone do not tell."""
    path = folder / "config.json"
    config = json.loads(path.read_text()) if path.exists() else {}
    if config.get("activation") not in (None, "tanh"):
        raise ValueError(f"activation {config['activation']}: torch.nn.RNN is not it (docs/formats.md has a module that is)")


class Model(torch.nn.Module):
    def __init__(self, tensors):
        super().__init__()
        vocab, embed = tensors["embed.weight"].shape
        rows, hidden = tensors["rnn.weight_hh_l0"].shape
        layers = sum(name.startswith("rnn.weight_hh_l") for name in tensors)
        if rows % hidden or rows // hidden not in CELLS:
            raise ValueError(f"rnn.weight_hh_l0 is {rows} x {hidden}: neither an RNN, a GRU nor an LSTM")
        self.tied = "out.weight" not in tensors
        self.embed = torch.nn.Embedding(vocab, embed)
        self.rnn = CELLS[rows // hidden](embed, hidden, layers)
        self.out = torch.nn.Linear(hidden, vocab)
        if self.tied:
            self.out.weight = self.embed.weight
            tensors = {**tensors, "out.weight": tensors["embed.weight"]}
        self.to(tensors["embed.weight"].dtype)
        self.load_state_dict(tensors, strict=True)

    def forward(self, x, state):
        o, state = self.rnn(self.embed(x), state)
        return self.out(o), state


@torch.no_grad()
def evaluate(model, ids, streams):
    vocab, m = model.embed.num_embeddings, (len(ids) - 1) // streams
    if m < 1:
        raise ValueError(f"{len(ids)} tokens are too few for {streams} streams")
    if ids.min() < 0 or ids.max() >= vocab:
        raise ValueError(f"token numbers run from {ids.min()} to {ids.max()}, the vocabulary from 0 to {vocab - 1}")
    x = torch.from_numpy(ids[: streams * m].reshape(streams, m).T.copy())
    y = torch.from_numpy(ids[1 : streams * m + 1].reshape(streams, m).T.copy())
    piece = max(1, 2**24 // (streams * vocab))  # at most 64 MB of f32 logits where a step allows it
    state, nats = None, 0.0  # None is the zero state
    for t in range(0, m, piece):
        logits, state = model(x[t : t + piece], state)
        each = F.cross_entropy(logits.flatten(0, 1), y[t : t + piece].flatten(), reduction="none")
        nats += each.double().sum().item()
    return nats, streams * m


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("dir", type=Path, help="directory with model.safetensors")
    p.add_argument("--tokens", type=Path, required=True, help="file of whitespace-separated token numbers")
    p.add_argument("--streams", type=int, default=32)
    p.add_argument("--threads", type=int, default=1)
    a = p.parse_args()
    torch.set_num_threads(a.threads)
    try:
        if a.streams < 1:
            raise ValueError("--streams must be at least 1")
        check(a.dir)
        model = Model(load_file(a.dir / "model.safetensors"))
        ids = np.array(a.tokens.read_text().split(), dtype=np.int64)
        nats, tokens = evaluate(model, ids, a.streams)
    except KeyError as e:
        sys.exit(complain(f"model.safetensors has no tensor {e}"))
    except (OSError, ValueError, RuntimeError, SafetensorError) as e:
        sys.exit(complain(e))
    print(
        json.dumps(
            {
                "cell": {"RNN": "elman"}.get(model.rnn.mode.split("_")[0], model.rnn.mode.lower()),
                "layers": model.rnn.num_layers,
                "hidden": model.rnn.hidden_size,
                "embed": model.embed.embedding_dim,
                "vocab": model.embed.num_embeddings,
                "tied": model.tied,
                "streams": a.streams,
                "nats": nats,
                "tokens": tokens,
                "perplexity": math.exp(nats / tokens),
                "bits_per_token": nats / tokens / math.log(2),
            }
        )
    )


def complain(what):
    print(f"check_export: {what}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    main()
