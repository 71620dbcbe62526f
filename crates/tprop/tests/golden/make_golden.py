#!/usr/bin/env python3
"""Golden vectors from PyTorch: cells, optimisers, whole training steps, the KL penalty.

    pip install torch numpy safetensors
    python crates/tprop/tests/golden/make_golden.py            # writes beside itself
    python crates/tprop/tests/golden/make_golden.py --out DIR  # or elsewhere, to compare

Only this script needs Python; the tests read the committed files. README.md says what each file holds.
Nothing depends on a clock, on torch's own generator or on the number of threads: all numbers come from numpy's PCG64 with
a seed made from the file's name, and every given number is representable in f32, so that an f32 file and its f64
twin start from the same values. On another CPU or torch version the results may differ in the last bits.
"""
import argparse
import zlib
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

V, E, H = 11, 5, 7  # vocabulary, embedding, hidden: all different, so that a transposed matrix cannot pass
ROWS, STEPS = 4, 6
CLIP = 0.5
RNN = {"elman": torch.nn.RNN, "gru": torch.nn.GRU, "lstm": torch.nn.LSTM}  # torch.nn.RNN is tanh by default

OPTIM = {  # name -> (class, the settings that count); what is not listed here is 0 or off
    "sgd": (torch.optim.SGD, {"lr": 0.1}),
    "nag": (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "nesterov": True}),
    "adagrad": (torch.optim.Adagrad, {"lr": 0.05, "eps": 1e-5}),
    "rmsprop": (torch.optim.RMSprop, {"lr": 0.001, "alpha": 0.99, "eps": 1e-8}),
    "adadelta": (torch.optim.Adadelta, {"lr": 1.0, "rho": 0.9, "eps": 1e-6}),
    "adam": (torch.optim.Adam, {"lr": 0.001, "betas": (0.9, 0.999), "eps": 1e-8}),
}


def draws(name):
    return np.random.default_rng(zlib.crc32(name.encode()))


def given(array, dtype):
    """A given tensor: rounded to f32 first, whatever the type it is used in."""
    return torch.from_numpy(np.asarray(array, dtype=np.float32)).to(dtype)


def one(number, dtype=torch.float64):
    return torch.tensor([number], dtype=dtype)


def hyper(settings):
    flat = dict(settings)
    flat.pop("nesterov", None)
    if "betas" in flat:
        flat["beta1"], flat["beta2"] = flat.pop("betas")
    return {f"hyper.{k}": one(v) for k, v in flat.items()}


class Model(torch.nn.Module):
    """Embedding -> RNN, GRU or LSTM -> Linear, with the project's tensor names."""

    def __init__(self, cell, layers, rng, dtype, vocab=V, embed=E, scale=0.6, tied=False):
        super().__init__()
        self.embed = torch.nn.Embedding(vocab, embed)
        self.rnn = RNN[cell](embed, H, layers)
        self.out = torch.nn.Linear(H, vocab)
        if tied:
            self.out.weight = self.embed.weight
        self.to(dtype)
        with torch.no_grad():
            for _, w in self.named_parameters():
                w.copy_(given(rng.uniform(-scale, scale, w.shape), dtype))

    def forward(self, x, state):
        """x [steps][rows], state rows x width -> logits [steps][rows][V], end state rows x width."""
        o, end = self.rnn(self.embed(x), self.unpack(state))
        end = pack(end)
        # The top layer's h stands where the README says it does.
        top = end[:, -2 * H : -H] if self.lstm else end[:, -H:]
        assert torch.equal(o[-1], top)
        return self.out(o), end

    @property
    def lstm(self):
        return isinstance(self.rnn, torch.nn.LSTM)

    @property
    def width(self):
        return self.rnn.num_layers * H * (2 if self.lstm else 1)

    def unpack(self, state):
        """rows x [h_0 | h_1 ...] or rows x [h_0 | c_0 | h_1 | c_1 ...] -> what torch.nn takes."""
        parts = torch.stack(state.split(H, dim=1))
        if self.lstm:
            return parts[0::2].contiguous(), parts[1::2].contiguous()
        return parts

    def tensors(self, prefix=""):
        return {prefix + k: w.detach().clone() for k, w in self.named_parameters()}


def pack(end):
    """The inverse of Model.unpack."""
    if isinstance(end, tuple):
        return torch.cat([torch.cat([h, c], dim=1) for h, c in zip(*end)], dim=1)
    return torch.cat(list(end), dim=1)


def cell_case(name, cell, layers, dtype, embed=E, tied=False):
    rng = draws(name)
    model = Model(cell, layers, rng, dtype, embed=embed, tied=tied)
    # Successive tokens of each row; item 4 is never read (its embedding row has no gradient) but is once a target.
    text = rng.choice([v for v in range(V) if v != 4], (STEPS + 1, ROWS))
    text[STEPS, 2] = 4
    x, y = torch.from_numpy(text[:-1].copy()), torch.from_numpy(text[1:].copy())
    start = given(rng.uniform(-0.9, 0.9, (ROWS, model.width)), dtype).requires_grad_()
    d_end = given(rng.normal(0, 1, (ROWS, model.width)), dtype)

    logits, end = model(x, start)
    nats = F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum")
    names = [k for k, _ in model.named_parameters()] + ["start"]
    leaves = [*model.parameters(), start]
    plain = torch.autograd.grad(nats, leaves, retain_graph=True)
    pull = torch.autograd.grad(nats + (d_end * end).sum(), leaves)
    return {
        **model.tensors(),
        "tokens": x,
        "targets": y,
        "start": start.detach(),
        "d_end": d_end,
        "logits": logits.detach(),
        "nats": nats.detach().reshape(1),
        "end": end.detach(),
        **{f"grad.{k}": g for k, g in zip(names, plain)},
        **{f"pull.grad.{k}": g for k, g in zip(names, pull)},
    }


def optim_case(name, optim, dtype):
    rng = draws(name)
    make, settings = OPTIM[optim]
    p = given(rng.normal(0, 1, 50), dtype).requires_grad_()
    held = {"p0": p.detach().clone(), **hyper(settings)}
    opt = make([p], foreach=False, **settings)
    for step in range(1, 6):
        g = rng.normal(0, 1, 50) * 10.0 ** rng.uniform(-6, 0, 50)
        g[:5] = 0  # never a gradient: an update may divide by its accumulator
        if step < 4:
            g[5:10] = 0  # late: the first gradient after several zeros
        if step > 1:
            g[10:15] = 0  # early: what momentum and decay do without one
        g[15 + step] = 0
        p.grad = given(g, dtype)
        held[f"g{step}"] = p.grad.clone()
        opt.step()
        held[f"p{step}"] = p.detach().clone()
    return held


def touch_all(rng, windows):
    """A corpus of rows·m + 1 tokens whose every window reads every vocabulary item."""
    cut = np.empty((ROWS, windows * STEPS), dtype=np.int64)
    for w in range(windows):
        size = ROWS * STEPS
        items = np.concatenate([np.arange(V), np.arange(V), rng.integers(0, V, size - 2 * V)])
        cut[:, w * STEPS : (w + 1) * STEPS] = rng.permutation(items).reshape(ROWS, STEPS)
    return np.append(cut.reshape(-1), rng.integers(0, V))


def touch_some(rng, windows, vocab):
    """Uniform tokens from a vocabulary that is larger than a window."""
    return rng.integers(0, vocab, ROWS * STEPS * windows + 1)


def train(rng, cell, layers, optim, windows, vocab, scale):
    make, settings = OPTIM[optim]
    model = Model(cell, layers, rng, torch.float64, vocab=vocab, scale=scale)
    corpus = touch_all(rng, windows) if vocab == V else touch_some(rng, windows, vocab)
    # The cut of DESIGN: row i reads tokens i·m … i·m+m−1 and predicts each one's successor.
    m = (len(corpus) - 1) // ROWS
    cut = lambda shift: torch.from_numpy(
        corpus[shift : shift + ROWS * m].reshape(ROWS, windows, STEPS).transpose(1, 2, 0).copy()
    )
    x, y = cut(0), cut(1)
    init = model.tensors("init.")
    opt = make(model.parameters(), foreach=False, **settings)
    state = torch.zeros(ROWS, model.width, dtype=torch.float64)
    losses, norms, states = [], [], []
    for w in range(windows):
        opt.zero_grad()
        logits, end = model(x[w], state)
        loss = F.cross_entropy(logits.flatten(0, 1), y[w].flatten())
        loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP).item())
        opt.step()
        state = end.detach()
        losses.append(loss.item())
        states.append(state)
    return {
        **init,
        **hyper(settings),
        "hyper.clip": one(CLIP),
        "corpus": torch.from_numpy(corpus),
        "tokens": x,
        "targets": y,
        "losses": torch.tensor(losses, dtype=torch.float64),
        "norms": torch.tensor(norms, dtype=torch.float64),
        "states": torch.stack(states),
        "end": state,
        **model.tensors("final."),
    }


def steps_case(name, cell, layers, optim, windows=5, vocab=V):
    """The first draw in which some steps clip and some do not, none of them near the edge."""
    rng = draws(name)
    for attempt in range(2000):
        held = train(rng, cell, layers, optim, windows, vocab, scale=[0.4, 0.6, 0.8, 1.0][attempt % 4])
        norms = held["norms"]
        if (norms > CLIP).any() and (norms < CLIP).any() and ((norms - CLIP).abs() > 0.02).all():
            break
    else:
        raise SystemExit(f"{name}: no draw with clipped and unclipped steps")
    for x in held["tokens"]:
        assert (len(x.unique()) == V) == (vocab == V)
    return held


def kl_case(name):
    rng = draws(name)
    f64 = torch.float64
    held = {
        "F": given(rng.uniform(-1, 1, (5, H)), f64),
        "s": given(rng.uniform(-1, 1, (5, H)), f64),
        "out.weight": given(rng.uniform(-1.5, 1.5, (V, H)), f64),
        "out.bias": given(rng.uniform(-1, 1, V), f64),
    }
    leaves = [w.clone().requires_grad_() for w in held.values()]
    end, s, W, b = leaves
    log_p, log_q = F.log_softmax(end @ W.T + b, 1), F.log_softmax(s @ W.T + b, 1)
    for way, (lp, lq) in {"forward": (log_p, log_q), "reverse": (log_q, log_p)}.items():
        kl = (lp.exp() * (lp - lq)).sum()
        grads = torch.autograd.grad(kl, leaves, retain_graph=True)
        held[f"{way}.kl"] = kl.detach().reshape(1)
        held.update({f"{way}.grad.{k}": g for k, g in zip(["F", "s", "out.weight", "out.bias"], grads)})
    return held


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--out", type=Path, default=Path(__file__).resolve().parent)
    out = p.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    total = 0

    def write(name, held):
        nonlocal total
        path = out / f"{name}.safetensors"
        # One metadata entry only: the order of several is not fixed.
        save_file({k: t.contiguous() for k, t in held.items()}, path, {"made_by": f"make_golden.py, torch {torch.__version__}"})
        total += path.stat().st_size
        print(f"{path.stat().st_size:8} {path.name}")

    def write_both(name, make):
        """The f64 file and its f32 twin, which must tell the same story."""
        exact, rough = make(torch.float64), make(torch.float32)
        for k, t in exact.items():
            apart = (t.double() - rough[k].double()).abs().max()
            assert apart <= 1e-5 * max(1.0, t.double().abs().max()), (name, k, apart)
        write(name, exact)
        write(f"{name}_f32", rough)

    for cell in RNN:
        for layers in (1, 2):
            name = f"cells_{cell}_{layers}"
            write_both(name, lambda dtype: cell_case(name, cell, layers, dtype))
    write_both("cells_gru_1_tied", lambda dtype: cell_case("cells_gru_1_tied", "gru", 1, dtype, embed=H, tied=True))
    for optim in OPTIM:
        name = f"optim_{optim}"
        write_both(name, lambda dtype: optim_case(name, optim, dtype))
    for cell, layers, optims in (("gru", 1, list(OPTIM)), ("elman", 2, ["adagrad"]), ("lstm", 2, ["adagrad"])):
        for optim in optims:
            name = f"steps_{cell}_{optim}"
            write(name, steps_case(name, cell, layers, optim))
    for optim in ("adagrad", "sgd"):
        name = f"steps_gru_{optim}_long"
        write(name, steps_case(name, "gru", 1, optim, windows=12, vocab=31))
    write("kl", kl_case("kl"))
    print(f"{total:8} in all")


if __name__ == "__main__":
    main()
